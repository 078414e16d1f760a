"""Content that every bundle has: its card, its version, its files, and the check of its golden prediction."""

from __future__ import annotations

import base64
import binascii
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from trueodds.bundle.card import CalibratorDistribution, Card, Description, Golden, Reference
from trueodds.bundle.contents import CALIBRATOR, CARD, MODEL, MODEL_CARD, SETS, BundleError, version_of, why_none
from trueodds.calibrators import Calibrator, MultilabelPlatt
from trueodds.errors import MissingExtraError
from trueodds.files import sha256, write_json
from trueodds.inputs import InputError, Inputs
from trueodds.sums.inputs import Array

GOLDEN_TOLERANCE = 1e-3
"""Tolerance of a logit, absolute and relative, or of a probability.

Processors differ in the last bits, wrong models by more.
"""

Infer = Callable[[Inputs], npt.NDArray[np.floating]]
"""Function from inputs (N, ...) to logits (N, C)."""
Fitted = TypeVar("Fitted", Calibrator, MultilabelPlatt)


@dataclass(frozen=True)
class StoredBundle(ABC, Generic[Fitted]):
    """Base of the loaded bundles. The hashes of their files are checked."""

    directory: Path
    """Folder of the bundle."""
    card: Card
    """Card of the bundle."""
    calibrator: Fitted
    """Calibrator that turns logits into probabilities."""
    version: str
    """Version: the first 12 hex digits of the card's SHA-256."""

    @property
    def model_path(self) -> Path:
        """Path of the ONNX file."""
        return self.directory / MODEL

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files, the card last."""
        return (*required_files(self.card), CARD)

    @classmethod
    @abstractmethod
    def load(cls, directory: str | Path, place: str | None = None) -> Self:
        """Read a bundle, and check its card, the SHA-256 of its files and its calibrator.

        Args:
            directory: Folder of the bundle.
            place: Name of the folder in messages, if its files come from elsewhere.

        Raises:
            BundleError: A file is missing or altered, the card is not valid, or the bundle is of another kind.
        """

    def move_to(self, out: Path) -> Self:
        """Move the files to the folder `out` on the same file system, the card last, and load them there.

        Raises:
            OSError: `out` cannot be written.
        """
        out.mkdir(exist_ok=True)
        (out / CARD).unlink(missing_ok=True)
        for name in self.files:
            (self.directory / name).replace(out / name)
        return self.load(out)

    def probabilities_of(self, logits_NC: npt.ArrayLike) -> Array:
        """Compute the calibrated probabilities of the model's logits."""
        return self.calibrator(logits_NC)

    def golden_input(self) -> Inputs:
        """Return the stored input as a batch of one.

        Raises:
            BundleError: The card's input kind cannot decode it.
        """
        try:
            data = base64.b64decode(self.card.golden.input_b64, validate=True)
            return self.card.input.decode(data, "the golden input")
        except binascii.Error as error:
            raise BundleError(f"{self.directory / CARD}: the golden input is not base64: {error}") from None
        except InputError as error:
            raise BundleError(f"{self.directory / CARD}: {error}") from None

    def check_golden(self, infer: Infer) -> None:
        """Run the stored input, and compare the result with the stored answer.

        Raises:
            BundleError: The number of classes differs, or a logit or probability is off by more than the tolerance.
        """
        logits_NC = infer(self.golden_input())
        if logits_NC.shape != (1, len(self.card.classes)):
            shape = f"{logits_NC.shape}, expected (1, {len(self.card.classes)}), one logit per class"
            raise BundleError(f"{self.model_path} answers with shape {shape}")
        self._check_near("logits", logits_NC[0].astype(np.float64), self.card.golden.logits)
        # Calibrate the stored logits: today's differ in the last bits, and an isotonic fit may step between them.
        probabilities_C = self.probabilities_of([self.card.golden.logits])[0]
        self._check_near("probabilities", probabilities_C, self.card.golden.probabilities)

    def _check_near(self, name: str, actual_C: Array, expected: list[float]) -> None:
        """Compare numbers with the stored ones."""
        if len(expected) != len(actual_C):  # allclose would broadcast a single number
            raise BundleError(f"{self.directory / CARD}: {len(expected)} golden {name}, expected {len(actual_C)}")
        if not same_answers(actual_C, expected):
            off = float(np.abs(actual_C - np.asarray(expected)).max())
            raise BundleError(f"{self.directory}: golden {name} differ by {off:.2g}: not the model that was exported")


class GoldenRow(NamedTuple):
    """Input whose answer every later load of a model must reproduce."""

    input: Inputs
    logits_C: npt.ArrayLike
    probabilities_C: Array


def write_files(
    folder: Path,
    model: str | Path,
    calibrator: dict[str, Any],
    description: Description,
    page: str,
    golden: GoldenRow,
    *,
    reference: Reference | None = None,
    distribution: CalibratorDistribution | None = None,
    sets: dict[str, Any] | None = None,
) -> None:
    """Write the files of a bundle to an empty folder, the card last.

    Args:
        folder: The folder.
        model: ONNX graph. It is copied.
        calibrator: The calibrator as JSON.
        description: Parts of the card that are not computed here.
        page: Text of MODEL_CARD.md.
        golden: The golden prediction.
        reference: Confidences that live confidences are compared with.
        distribution: Distribution of the calibrator, if it is not one of TrueOdds.
        sets: Calibration scores of the sets as JSON, if the bundle has sets.

    Raises:
        InputError: The golden input has another dtype or shape.
        OSError: The model cannot be read, or the folder cannot be written.
    """
    shutil.copyfile(model, folder / MODEL)
    write_json(folder / CALIBRATOR, calibrator)
    for name, data in description.input.files_beside.items():
        (folder / name).write_bytes(data)
    (folder / MODEL_CARD).write_text(page, encoding="utf-8", newline="\n")
    if sets is not None:
        write_json(folder / SETS, sets)
    files = (MODEL, CALIBRATOR, MODEL_CARD, *(() if sets is None else (SETS,)), *description.input.beside)
    stated = {name: getattr(description, name) for name in Description.model_fields}
    card = Card(
        **stated,
        files={name: sha256(folder / name) for name in files},
        golden=Golden(
            input_b64=base64.b64encode(description.input.encode(golden.input)).decode(),
            logits=np.asarray(golden.logits_C).tolist(),
            probabilities=golden.probabilities_C.tolist(),
        ),
        reference=reference,
        calibrator_distribution=distribution,
    )
    write_json(folder / CARD, card.model_dump())


class CheckedCard(NamedTuple):
    """Card of a bundle whose files have the hashes that it states."""

    card: Card
    version: str


def read_card(directory: Path, place: str) -> CheckedCard:
    """Read the card of a bundle, and check the SHA-256 of its files.

    Args:
        directory: Folder of the bundle.
        place: Name of the folder in messages.

    Raises:
        BundleError: A file is missing or altered, or the card is not valid.
    """
    try:
        raw = (directory / CARD).read_bytes()
        card = Card.model_validate_json(raw)
        for name in required_files(card):
            actual, stated = sha256(directory / name), card.files.get(name)
            if actual != stated:
                raise BundleError(f"{place}/{name} has sha256 {actual}, its card says {stated}: altered or damaged")
    except (FileNotFoundError, NotADirectoryError) as error:
        if reason := why_none(directory):
            raise BundleError(f"{place} holds no bundle: {reason}") from None
        file = f"{place}/{Path(error.filename).name}"
        problem = f"{file} is missing: {place} is not a complete bundle"
        raise BundleError(f"{problem}; write it with trueodds export or import") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise BundleError(f"{place}/{CARD}: {where}: {first['msg']}") from None
    try:
        beside = {name: (directory / name).read_bytes() for name in card.input.beside}
        card = card.model_copy(update={"input": card.input.with_files(beside)})
    except (InputError, MissingExtraError) as error:
        raise BundleError(f"{place}: {error}") from None
    return CheckedCard(card, version_of(raw))


def check_classes(card: Card, place: str) -> None:
    """Check that a model has exclusive classes.

    Raises:
        BundleError: It has independent labels. Code for classes would compute wrong numbers.
    """
    if card.multilabel:
        raise BundleError(
            f"{place} holds a model of independent labels; allowed here are models of exclusive classes. Serve it"
            " (trueodds publish, trueodds serve), or read it with trueodds.load"
        )


def same_answers(one: npt.ArrayLike, other: npt.ArrayLike) -> bool:
    """Return whether logits (..., C) are nearly equal, or, for log-probabilities, whether the probabilities are.

    The logarithm of a probability of 1e-6 changes by 0.1 if the last digit of its float32 sum changes.
    """
    if np.allclose(one, other, rtol=GOLDEN_TOLERANCE, atol=GOLDEN_TOLERANCE):
        return True
    with np.errstate(over="ignore"):
        p, q = (np.exp(np.asarray(logits, np.float64)) for logits in (one, other))
    are_probabilities = all(np.allclose(some.sum(axis=-1), 1, atol=GOLDEN_TOLERANCE) for some in (p, q))
    return are_probabilities and np.allclose(p, q, rtol=0, atol=GOLDEN_TOLERANCE)


def required_files(card: Card) -> list[str]:
    """Return the files that a bundle must have besides its card. Old bundles have no MODEL_CARD.md."""
    stated = [name for name in (MODEL_CARD, SETS) if name in card.files]
    return [MODEL, CALIBRATOR, *stated, *card.input.beside]
