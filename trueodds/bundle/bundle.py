"""Bundle: a servable model in a folder, checked before it is used.

A bundle has model.onnx (logits), calibrator.json, card.json and MODEL_CARD.md; text models also have tokenizer.json.
The card holds the SHA-256 of the other files. So the card's own hash identifies the whole content: it is the bundle's
version.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from trueodds import calibrators
from trueodds.bundle.act_alone import ActAlone
from trueodds.bundle.card import CalibratorDistribution, Card, Description, Golden, Reference
from trueodds.bundle.model_card import model_card
from trueodds.errors import MissingExtraError, UserError
from trueodds.files import naming, read_json, sha256, write_json, write_text
from trueodds.inputs import InputError, Inputs
from trueodds.sums.inputs import Array

MODEL = "model.onnx"
"""File of a bundle with the graph, from inputs to logits."""
CALIBRATOR = "calibrator.json"
"""File of a bundle with the fitted calibrator, from logits to probabilities."""
CARD = "card.json"
"""File of a bundle with its card: the input, the classes, the test numbers, and the hashes of the other files."""
MODEL_CARD = "MODEL_CARD.md"
"""File of a bundle with the card as a page for people."""
NO_BUNDLE = "NO_BUNDLE.txt"
"""File that explains why a folder for a bundle is empty."""
GOLDEN_TOLERANCE = 1e-3
"""Tolerance of a logit, absolute and relative, or of a probability.

Processors differ in the last bits, wrong models by more.
"""

Infer = Callable[[Inputs], npt.NDArray[np.floating]]
"""Function from inputs (N, ...) to logits (N, C)."""


class BundleError(UserError, ValueError):
    """The bundle must not be served. The message says what is wrong and where."""


@dataclass(frozen=True)
class Bundle:
    """A loaded bundle whose hashes are checked.

    `check_golden` also checks its answers; it needs a function that runs the model. The example in `trueodds.bundle`
    writes a bundle.

    Examples:
        >>> try:
        ...     trueodds.Bundle.load("no/such/folder")
        ... except trueodds.UserError as error:
        ...     print(error)
        no/such/folder/card.json is missing: no/such/folder is not a complete bundle
    """

    directory: Path
    """Folder of the bundle."""
    card: Card
    """Card of the bundle."""
    calibrator: calibrators.Calibrator
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
        return (*_required_files(self.card), CARD)

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
            trial: Called with the bundle before it takes its place. If it raises, `out` is unchanged.

        Returns:
            The loaded bundle.

        Raises:
            BundleError: The golden input or logits do not have the description's shape.
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
            shutil.copyfile(model, aside / MODEL)
            write_json(aside / CALIBRATOR, calibrator.to_json())
            for name, data in description.input.files_beside.items():
                (aside / name).write_bytes(data)
            (aside / MODEL_CARD).write_text(
                model_card(description, calibrator, reference), encoding="utf-8", newline="\n"
            )
            files = (MODEL, CALIBRATOR, MODEL_CARD, *description.input.beside)
            logits_NC = np.asarray(golden_logits)[None]
            whose = calibrators.origin(calibrator)
            stated = {name: getattr(description, name) for name in Description.model_fields}
            card = Card(
                **stated,
                files={name: sha256(aside / name) for name in files},
                golden=Golden(
                    input_b64=base64.b64encode(description.input.encode(golden_input)).decode(),
                    logits=logits_NC[0].tolist(),
                    probabilities=calibrator(logits_NC)[0].tolist(),
                ),
                reference=reference,
                calibrator_distribution=None if whose is None else CalibratorDistribution(**whose._asdict()),
            )
            write_json(aside / CARD, card.model_dump())
            whole = cls.load(aside)
            whole.check_golden(lambda _: logits_NC)
            if trial is not None:
                trial(whole)
            return whole.move_to(out)

    def move_to(self, out: Path) -> Bundle:
        """Move the files to the folder `out` on the same file system, the card last, and load them there.

        Raises:
            OSError: `out` cannot be written.
        """
        out.mkdir(exist_ok=True)
        (out / CARD).unlink(missing_ok=True)
        for name in self.files:
            (self.directory / name).replace(out / name)
        return self.load(out)

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
        try:
            raw = (directory / CARD).read_bytes()
            card = Card.model_validate_json(raw)
            for name in _required_files(card):
                actual, stated = sha256(directory / name), card.files.get(name)
                if actual != stated:
                    raise BundleError(f"{place}/{name} has sha256 {actual}, its card says {stated}: altered or damaged")
            calibrator = calibrators.from_json(read_json(directory / CALIBRATOR))
        except (FileNotFoundError, NotADirectoryError) as error:
            if reason := why_none(directory):
                raise BundleError(f"{place} holds no bundle: {reason}") from None
            file = f"{place}/{Path(error.filename).name}"
            raise BundleError(f"{file} is missing: {place} is not a complete bundle") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise BundleError(f"{place}/{CARD}: {where}: {first['msg']}") from None
        except BundleError:
            raise
        except ValueError as error:
            raise BundleError(f"{place}/{CALIBRATOR}: {error}") from None
        try:
            beside = {name: (directory / name).read_bytes() for name in card.input.beside}
            card = card.model_copy(update={"input": card.input.with_files(beside)})
        except (InputError, MissingExtraError) as error:
            raise BundleError(f"{place}: {error}") from None
        if calibrator.classes not in (None, len(card.classes)):
            problem = f"{place}/{CALIBRATOR} was fitted on {calibrator.classes} classes, but {CARD} names"
            raise BundleError(f"{problem} {len(card.classes)}: put back the calibrator of this model")
        return cls(directory, card, calibrator, hashlib.sha256(raw).hexdigest()[:12])

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
        probabilities_C = self.calibrator([self.card.golden.logits])[0]
        self._check_near("probabilities", probabilities_C, self.card.golden.probabilities)

    def _check_near(self, name: str, actual_C: Array, expected: list[float]) -> None:
        """Compare numbers with the stored ones."""
        if len(expected) != len(actual_C):  # allclose would broadcast a single number
            raise BundleError(f"{self.directory / CARD}: {len(expected)} golden {name}, expected {len(actual_C)}")
        if not same_answers(actual_C, expected):
            off = float(np.abs(actual_C - np.asarray(expected)).max())
            raise BundleError(f"{self.directory}: golden {name} differ by {off:.2g}: not the model that was exported")


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


def _required_files(card: Card) -> list[str]:
    """Return the files that a bundle must have besides its card. Old bundles have no MODEL_CARD.md."""
    return [MODEL, CALIBRATOR, *([MODEL_CARD] if MODEL_CARD in card.files else []), *card.input.beside]


def write_none(folder: Path, why: str) -> None:
    """Empty a folder for a bundle, and write the reason why there is none."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_text(folder / NO_BUNDLE, f"{why}\n")


def why_none(folder: Path) -> str:
    """Return the reason why a folder holds no bundle; "" if none is given."""
    path = folder / NO_BUNDLE
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""
