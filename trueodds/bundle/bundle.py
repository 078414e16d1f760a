"""Bundle: a servable model in a folder, checked before it is used.

A bundle has model.onnx (logits), calibrator.json, card.json and MODEL_CARD.md; text models also have tokenizer.json.
The card holds the SHA-256 of the other files. So the card's own hash identifies the whole content: it is the bundle's
version.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trueodds import calibrators
from trueodds.bundle.act_alone import ActAlone
from trueodds.bundle.card import CalibratorDistribution, Card, Description, Reference
from trueodds.bundle.contents import CALIBRATOR, CARD, NO_BUNDLE, SETS, BundleError
from trueodds.bundle.model_card import model_card
from trueodds.bundle.stored_bundle import GoldenRow, StoredBundle, check_classes, read_card, write_files
from trueodds.calibrators.conformal import ConformalSets, digest_of
from trueodds.files import naming, read_json, write_text
from trueodds.inputs import Inputs


@dataclass(frozen=True)
class Bundle(StoredBundle[calibrators.Calibrator]):
    """A loaded bundle whose hashes are checked.

    `check_golden` also checks its answers; it needs a function that runs the model. The example in `trueodds.bundle`
    writes a bundle.

    Examples:
        >>> try:
        ...     trueodds.Bundle.load("no/such/folder")
        ... except trueodds.UserError as error:
        ...     print(str(error).partition(";")[0])
        no/such/folder/card.json is missing: no/such/folder is not a complete bundle
    """

    conformal: ConformalSets | None = None
    """Calibration scores of its conformal sets, from which the sets of any level follow. None: it has no sets."""

    @classmethod
    def write(
        cls,
        out: str | Path,
        model: str | Path,
        calibrator: calibrators.Calibrator,
        description: Description,
        *,
        golden_input: Inputs,
        golden_logits: npt.ArrayLike,
        reference: Reference | None = None,
        conformal: ConformalSets | None = None,
        trial: Callable[[Bundle], object] | None = None,
    ) -> Bundle:
        """Write a bundle to the folder `out`, the card last, and load it.

        A bundle in `out` is replaced only after the new one is complete and has passed its checks. Equal arguments give
        equal bytes, and so an equal version.

        Args:
            out: Folder of the bundle. It is created if it does not exist.
            model: ONNX graph from inputs (N, ...) of the description's kind to logits (N, C). It is copied.
            calibrator: Calibrator that turns the logits into probabilities.
            description: Parts of the card that are not computed here. A card can be passed too; its hashes, golden
                prediction and reference are ignored, because they belong to other files.
            golden_input: One input, with the shape and dtype of its kind.
            golden_logits: The model's logits (C,) for it. Every later load of the model must reproduce them.
            reference: Confidences that live confidences are compared with.
            conformal: Calibration scores of the description's sets. They must be of this calibrator.
            trial: Called with the bundle before it takes its place. If it raises, `out` is unchanged.

        Returns:
            The loaded bundle.

        Raises:
            BundleError: The golden input or logits do not have the description's shape. Or the sets are of another
                calibrator, or there are rules of sets without scores.
            InputError: The golden input has another dtype.
            ValueError: The calibrator has other classes, or numbers are not finite.
            OSError: The model cannot be read, or `out` cannot be written.
        """
        out = Path(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as folder,
            naming(out, aside := Path(folder)),
        ):
            logits_NC = np.asarray(golden_logits)[None]
            whose = calibrators.origin(calibrator)
            write_files(
                aside,
                model,
                calibrator.to_json(),
                description,
                model_card(description, calibrator, reference),
                GoldenRow(golden_input, logits_NC[0], calibrator(logits_NC)[0]),
                reference=reference,
                distribution=None if whose is None else CalibratorDistribution(**whose._asdict()),
                sets=None if conformal is None else conformal.to_json(),
            )
            whole = cls.load(aside)
            whole.check_golden(lambda _: logits_NC)
            if trial is not None:
                trial(whole)
            return whole.move_to(out)

    def promising(self, promise: ActAlone | None, out: Path) -> Bundle:
        """Write a copy of the bundle to the folder `out` with a promise to act alone, or without one.

        A published version never changes. So a new promise makes a new version, with its own rollback, evidence and
        alarm.

        Raises:
            BundleError: The bundle is damaged.
            OSError: `out` cannot be written.
        """
        return Bundle.write(
            out,
            self.model_path,
            self.calibrator,
            self.card.model_copy(update={"act_alone": promise}),
            golden_input=self.golden_input()[0],
            golden_logits=self.card.golden.logits,
            reference=self.card.reference,
            conformal=self.conformal,
        )

    @classmethod
    def load(cls, directory: str | Path, place: str | None = None) -> Bundle:
        """Read a bundle, and check its card, the SHA-256 of its files and its calibrator.

        Args:
            directory: Folder of the bundle.
            place: Name of the folder in messages, if its files come from elsewhere.

        Raises:
            BundleError: A file is missing or altered, or the card is not valid.
        """
        directory = Path(directory)
        place = place or str(directory)
        card, version = read_card(directory, place)
        check_classes(card, place)
        try:
            calibrator = calibrators.from_json(read_json(directory / CALIBRATOR))
        except ValueError as error:
            raise BundleError(f"{place}/{CALIBRATOR}: {error}") from None
        if calibrator.classes not in (None, len(card.classes)):
            problem = f"{place}/{CALIBRATOR} was fitted on {calibrator.classes} classes, but {CARD} names"
            raise BundleError(f"{problem} {len(card.classes)}: put back the calibrator of this model")
        return cls(directory, card, calibrator, version, _read_sets(directory, place, card, calibrator))


def _read_sets(directory: Path, place: str, card: Card, calibrator: calibrators.Calibrator) -> ConformalSets | None:
    """Read the calibration scores of a bundle's sets, and check that they belong to its card and its calibrator.

    Raises:
        BundleError: They do not, or there are scores without rules, or rules without scores.
    """
    if card.sets is None and SETS not in card.files:
        return None
    cure = "write the bundle with the sets that were fitted to its calibrator, or without sets"
    if card.sets is None or SETS not in card.files:
        missing = f"{SETS} is missing" if card.sets else f"{CARD} has no rules of sets"
        raise BundleError(f"{place}: {missing}; {cure}")
    try:
        sets = ConformalSets.from_json(read_json(directory / SETS))
    except ValueError as error:
        raise BundleError(f"{place}/{SETS}: {error}") from None
    if sets.calibrator_sha256 != digest_of(calibrator):
        raise BundleError(f"{place}/{SETS} is of the probabilities of another calibrator than {CALIBRATOR}; {cure}")
    if sets.classes != len(card.classes):
        raise BundleError(f"{place}/{SETS} is of {sets.classes} classes, but {CARD} names {len(card.classes)}; {cure}")
    if problem := card.sets.problem_with(sets):
        raise BundleError(f"{place}/{CARD}: {problem}; {cure}")
    return sets


def write_none(folder: Path, why: str) -> None:
    """Empty a folder for a bundle, and write the reason why there is none."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_text(folder / NO_BUNDLE, f"{why}\n")
