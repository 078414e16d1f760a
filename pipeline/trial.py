"""The trial of a bundle before it is published: whether a service would take it."""

from __future__ import annotations

from pathlib import Path

from trueodds.bundle import Bundle


def try_bundle(folder: str | Path) -> str:
    """Tries a bundle as a service will use it; returns "", or a note where nothing can try it here.

    Raises:
        BundleError: the service would refuse the bundle.
    """
    bundle = Bundle.load(folder)
    try:
        from trueodds.importing import importer
    except ModuleNotFoundError as error:
        return f"note: the bundle was not tried, for {error.name} is not installed here"
    importer.try_bundle(bundle)
    return ""
