"""A servable model: a folder with model.onnx (logits), calibrator.json and card.json, checked before it is trusted.

The card holds the sha256 of the other two files, so the card's own hash names the whole content: that is the
bundle's version.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from trueodds import calibrators
from trueodds.bundle.risk_coverage import RiskCoverage
from trueodds.errors import UserError
from trueodds.files import read_json, sha256
from trueodds.metrics import CELLS, cell_of
from trueodds.sums.bins import COARSE_CELLS, coarse_counts
from trueodds.sums.inputs import Array

MODEL, CALIBRATOR, CARD = "model.onnx", "calibrator.json", "card.json"
DEFAULT, SHADOW = "default", "shadow"
GOLDEN_TOLERANCE = (
    1e-3  # of a logit, absolute and relative: processors differ in the last bits, wrong models by far more
)

NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"  # of a model or a version: a folder's name that cannot climb out

Infer = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.floating]]


class BundleError(UserError, ValueError):
    """A bundle that must not be served; the message says what is wrong and where."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ImageInput(_Model):
    """uint8 pixels, N x height x width x channels."""

    kind: Literal["image"] = "image"
    height: int = Field(ge=1)
    width: int = Field(ge=1)
    channels: Literal[1, 3]
    resized: bool = False
    """Whether training scaled and cropped its images to this size: the service then does the same."""

    @model_validator(mode="after")
    def _square_if_resized(self) -> Self:
        if self.resized and self.height != self.width:
            raise ValueError(f"resized images are square; the card says {self.height} x {self.width}")
        return self

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.height, self.width, self.channels


class Golden(_Model):
    """A stored input and what the model answered when it was exported."""

    input_b64: str
    """Pixels as raw bytes, H x W x C, base64."""
    logits: list[float]
    probabilities: list[float]


class Reference(_Model):
    """Confidences of the validation rows after the calibrator: what live ones are compared with."""

    rows: int = Field(ge=1)
    counts: list[int] = Field(min_length=COARSE_CELLS, max_length=COARSE_CELLS)
    """On 60 equal cells (lo, hi] of [0, 1]; 0 lies in the first."""
    mean: float = Field(ge=0, le=1)

    @model_validator(mode="after")
    def _all_rows(self) -> Self:
        if min(self.counts) < 0 or sum(self.counts) != self.rows:
            raise ValueError(f"counts add up to {sum(self.counts)} rows, the reference says {self.rows}")
        return self

    @classmethod
    def of(cls, confidence_N: npt.ArrayLike) -> Self:
        """From the confidence of each row, the calibrated probability of its top label.

        Raises:
            ValueError: no rows, or a confidence outside [0, 1].
        """
        counts_C = np.bincount(cell_of(confidence_N), minlength=CELLS)
        confidence = np.minimum(np.asarray(confidence_N, np.float64), 1.0)
        if not len(confidence):
            raise ValueError("no rows, so there are no confidences to compare later ones with")
        counts = coarse_counts(counts_C).tolist()
        return cls(rows=len(confidence), counts=counts, mean=float(confidence.mean()))


class Card(_Model):
    """What is known about a model. It holds no dates: equal runs give equal cards."""

    format: Literal[1] = 1
    name: str = Field(pattern=f"^{NAME}$")
    classes: list[str] = Field(min_length=1)
    input: ImageInput
    method: str
    training: dict[str, Any]
    metrics: dict[str, Any]
    risk_coverage: RiskCoverage | None = None
    notes: list[str] = Field(default_factory=list)
    data_sha256: str
    code_sha256: str
    files: dict[str, str]
    golden: Golden
    reference: Reference | None = None

    @field_validator("classes")
    @classmethod
    def _different(cls, classes: list[str]) -> list[str]:
        if twice := [name for name, count in Counter(classes).items() if count > 1]:
            raise ValueError(f"the class {twice[0]!r} stands twice; a label by name would be ambiguous")
        return classes


@dataclass(frozen=True)
class Bundle:
    """A loaded, hash-checked bundle. `check_golden` needs something that runs the model."""

    directory: Path
    card: Card
    calibrator: calibrators.Calibrator
    version: str

    @property
    def model_path(self) -> Path:
        return self.directory / MODEL

    @classmethod
    def load(cls, directory: str | Path) -> Bundle:
        """Read and check the card, the files' sha256 and the calibrator.

        Raises:
            BundleError: a missing or altered file, a card that does not validate.
        """
        directory = Path(directory)
        try:
            raw = (directory / CARD).read_bytes()
            card = Card.model_validate_json(raw)
            for name in (MODEL, CALIBRATOR):
                found, stated = sha256(directory / name), card.files.get(name)
                if found != stated:
                    raise BundleError(
                        f"{directory / name} has sha256 {found}, its card says {stated}: altered or damaged"
                    )
            calibrator = calibrators.from_json(read_json(directory / CALIBRATOR))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise BundleError(f"{error.filename} is missing: {directory} is not a whole bundle") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise BundleError(f"{directory / CARD}: {where}: {first['msg']}") from None
        except BundleError:
            raise
        except ValueError as error:
            raise BundleError(f"{directory / CALIBRATOR}: {error}") from None
        return cls(directory, card, calibrator, hashlib.sha256(raw).hexdigest()[:12])

    def golden_input(self) -> npt.NDArray[np.uint8]:
        """The stored input as a batch of one.

        Raises:
            BundleError: its size does not agree with the card's input.
        """
        try:
            pixels = np.frombuffer(base64.b64decode(self.card.golden.input_b64, validate=True), np.uint8)
        except binascii.Error as error:
            raise BundleError(f"{self.directory / CARD}: the golden input is not base64: {error}") from None
        if pixels.size != np.prod(self.card.input.shape):
            raise BundleError(f"{self.directory / CARD}: the golden input does not have shape {self.card.input.shape}")
        return pixels.reshape(1, *self.card.input.shape)

    def check_golden(self, infer: Infer) -> None:
        """Run the stored input and compare with the stored answer.

        Raises:
            BundleError: another number of classes, or a logit or probability off by more than the tolerance.
        """
        logits_NC = infer(self.golden_input())
        if logits_NC.shape != (1, len(self.card.classes)):
            shape = f"{logits_NC.shape}, expected (1, {len(self.card.classes)}), one logit per class"
            raise BundleError(f"{self.model_path} answers with shape {shape}")
        self._check_near("logits", logits_NC[0].astype(np.float64), self.card.golden.logits)
        # Of the stored logits: a step of an isotonic fit may lie between them and today's, which differ in last bits.
        stored = self.calibrator([self.card.golden.logits])[0]
        self._check_near("probabilities", stored, self.card.golden.probabilities)

    def _check_near(self, what: str, found: Array, stored: list[float]) -> None:
        if len(stored) != len(found):  # allclose would broadcast a single number
            raise BundleError(f"{self.directory / CARD}: {len(stored)} golden {what}, expected {len(found)}")
        if not np.allclose(found, stored, rtol=GOLDEN_TOLERANCE, atol=GOLDEN_TOLERANCE):
            off = float(np.abs(found - np.asarray(stored)).max())
            raise BundleError(f"{self.directory}: golden {what} differ by {off:.2g}: not the model that was exported")
