"""Label bundle: a servable model of independent yes/no labels, one sigmoid for each, in a folder.

It has the files of a bundle of exclusive classes. Its card says `multilabel`, and its probabilities do not sum to 1.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trueodds.bundle.bundle import Bundle
from trueodds.bundle.bundle_files import CALIBRATOR, CARD, BundleError
from trueodds.bundle.card import Description
from trueodds.bundle.label_card import label_card
from trueodds.bundle.stored_bundle import GoldenRow, StoredBundle, read_card, write_files
from trueodds.calibrators import MultilabelPlatt, Platt
from trueodds.files import naming, read_json
from trueodds.inputs import Inputs
from trueodds.sums.inputs import Array
from trueodds.texts import quotes


@dataclass(frozen=True)
class LabelBundle(StoredBundle[MultilabelPlatt]):
    """A loaded bundle of independent labels whose hashes are checked. `card.classes` are the labels.

    Examples:
        >>> from trueodds.bundle import LabelBundle
        >>> try:
        ...     LabelBundle.load("no/such/folder")
        ... except trueodds.UserError as error:
        ...     print(error)
        no/such/folder/card.json is missing: no/such/folder is not a complete bundle
    """

    def probabilities_of(self, logits_NC: npt.ArrayLike) -> Array:
        """Compute the calibrated probability of each label (N, L) from the model's logits (N, L)."""
        return self.calibrator.apply(np.asarray(logits_NC, np.float64))

    def binary_calibrators(self) -> tuple[Platt, ...]:
        """Return the curve of each label as a calibrator of two classes, false and true.

        On the logits (0, z) it gives (1 - p, p) with p = sigma(a z + b).
        """
        slopes, offsets = np.asarray(self.calibrator.slope_L), np.asarray(self.calibrator.offset_L)
        return tuple(
            Platt([-b, b], [a, a], fitted_classes=2) for a, b in zip(slopes.tolist(), offsets.tolist(), strict=True)
        )

    @classmethod
    def write(
        cls,
        out: str | Path,
        model: str | Path,
        calibrator: MultilabelPlatt,
        description: Description,
        *,
        golden_input: Inputs,
        golden_logits: npt.ArrayLike,
        trial: Callable[[LabelBundle], object] | None = None,
    ) -> LabelBundle:
        """Write a bundle to the folder `out`, the card last, and load it.

        Args:
            out: Folder of the bundle. It is created if it does not exist.
            model: ONNX graph from inputs (N, ...) of the description's kind to logits (N, L). It is copied.
            calibrator: Calibrator of the labels.
            description: Parts of the card that are not computed here, with `multilabel`.
            golden_input: One input, with the shape and dtype of its kind.
            golden_logits: The model's logits (L,) for it. Every later load of the model must reproduce them.
            trial: Called with the bundle before it takes its place. If it raises, `out` is unchanged.

        Returns:
            The loaded bundle.

        Raises:
            BundleError: The description is one of exclusive classes, or the labels of the calibrator differ.
            InputError: The golden input has another dtype.
            OSError: The model cannot be read, or `out` cannot be written.
        """
        out, z_L = Path(out), np.asarray(golden_logits, np.float64)
        out.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as folder,
            naming(out, aside := Path(folder)),
        ):
            golden = GoldenRow(golden_input, z_L, calibrator.apply(z_L))
            page = label_card(description, calibrator)
            write_files(aside, model, calibrator.to_json(), description, page, golden)
            whole = cls.load(aside)
            whole.check_golden(lambda _: z_L[None])
            if trial is not None:
                trial(whole)
            return whole.move_to(out)

    @classmethod
    def load(cls, directory: str | Path, place: str | None = None) -> LabelBundle:
        """Read a bundle of independent labels, and check its card, the SHA-256 of its files and its calibrator.

        Args:
            directory: Folder of the bundle.
            place: Name of the folder in messages, if its files come from elsewhere.

        Raises:
            BundleError: A file is missing or altered, the card is not valid, or it is one of exclusive classes.
        """
        directory = Path(directory)
        place = place or str(directory)
        card, version = read_card(directory, place)
        if not card.multilabel:
            raise BundleError(f"{place} holds a model of exclusive classes; read it with trueodds.Bundle.load")
        try:
            calibrator = MultilabelPlatt.from_json(read_json(directory / CALIBRATOR))
        except ValueError as error:
            raise BundleError(f"{place}/{CALIBRATOR}: {error}") from None
        if calibrator.labels != tuple(card.classes):
            problem = f"{place}/{CALIBRATOR} is of the labels {quotes(calibrator.labels)}, but {CARD} names"
            raise BundleError(f"{problem} {quotes(card.classes)}: put back the calibrator of this model")
        return cls(directory, card, calibrator, version)


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
