"""Loads what the library and the commands save: a calibrator's file, or the folder of a bundle."""

from __future__ import annotations

from pathlib import Path

from trueodds import calibrators
from trueodds.bundle.bundle import Bundle
from trueodds.bundle.label_bundle import LabelBundle
from trueodds.bundle.stored_bundle import read_card
from trueodds.calibrators import Calibrator, MultilabelPlatt
from trueodds.files import FileError, read_json

ALLOWED = "allowed are the JSON file that calibrator.save wrote, and the folder of a bundle"


def load(path: str | Path) -> Calibrator | MultilabelPlatt | Bundle | LabelBundle:
    """Load a calibrator from its JSON file, or a bundle from its folder.

    Nothing in the file is executed. A bundle's hashes are checked.

    Args:
        path: The file that `calibrator.save` or `trueodds calibrate` wrote, or the folder that `trueodds export` or
            `trueodds import` wrote.

    Returns:
        The calibrator, or the bundle. A bundle has its calibrator as `bundle.calibrator`. That of a model of
        independent labels is a `trueodds.bundle.LabelBundle`.

    Raises:
        FileError: There is no such file or folder, or the file holds no calibrator.
        BundleError: The folder is not a complete bundle, or a file in it is altered.

    Examples:
        >>> import tempfile, pathlib
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name) / "temperature.json"
        >>> trueodds.calibrators.Temperature(2.0).save(path)
        >>> trueodds.load(path).predict_proba([[2.0, 0.0]]).round(3)
        array([[0.731, 0.269]])
        >>> folder.cleanup()
    """
    path = Path(path)
    if path.is_dir():
        return load_bundle(path)
    if not path.exists():
        raise FileError(f"{path} does not exist; {ALLOWED}. Check the path")
    try:
        tree = read_json(path)
    except FileError:
        raise FileError(f"{path} is not JSON; {ALLOWED}. Save the calibrator again") from None
    if not (isinstance(tree, dict) and "calibrator" in tree):
        raise FileError(f"{path} holds no calibrator; {ALLOWED}. Save it with calibrator.save(path)")
    try:
        if tree["calibrator"] == MultilabelPlatt.name:
            return MultilabelPlatt.from_json(tree)
        return calibrators.from_json(tree)
    except ValueError as error:
        raise FileError(
            f"{path} holds no valid calibrator: {error}. Save it again with calibrator.save(path)"
        ) from None


def load_bundle(directory: str | Path, place: str | None = None) -> Bundle | LabelBundle:
    """Read a bundle of either kind: of exclusive classes, or of independent labels.

    Args:
        directory: Folder of the bundle.
        place: Name of the folder in messages, if its files come from elsewhere.

    Raises:
        BundleError: A file is missing or altered, or the card is not valid.
    """
    directory = Path(directory)
    is_of_labels = read_card(directory, place or str(directory)).card.multilabel
    return LabelBundle.load(directory, place) if is_of_labels else Bundle.load(directory, place)
