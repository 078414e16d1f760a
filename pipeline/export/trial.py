"""Tries a bundle before it is published: would a service accept it?"""

from __future__ import annotations

from pathlib import Path

from trueodds.bundle import load_bundle


def try_bundle(folder: str | Path) -> str:
    """Load and run a bundle as a service will.

    Returns:
        An empty string, or a note that a package needed for the trial is not installed here.

    Raises:
        BundleError: The service would refuse the bundle.
    """
    bundle = load_bundle(folder)
    try:
        from trueodds.importing import importer
    except ModuleNotFoundError as error:
        return f"note: the bundle was not tried, because {error.name} is not installed here"
    importer.try_bundle(bundle)
    return ""
