"""A servable model: a folder with model.onnx (logits), calibrator.json and card.json, checked before it is trusted.

The card holds the sha256 of the other two files, so the card's own hash names the whole content: that is the
bundle's version. Published bundles lie in MODELS/<name>/<version>/. Which of them is used for what, small files say:
MODELS/default (<name>/<version>) who answers when nothing is named, MODELS/<name>/default (<version>) when only the
model is, and MODELS/<name>/shadow (<version>) who is scored on the same inputs without being answered. Each change of
the last two is a line of MODELS/<name>/history.jsonl (`pipeline.history`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pipeline import calibrators, history
from pipeline.errors import UserError
from pipeline.files import read_json, sha256
from pipeline.metrics import CELLS, cell_of
from pipeline.metrics.inputs import Array
from pipeline.selective import RiskCoverage

MODEL, CALIBRATOR, CARD = "model.onnx", "calibrator.json", "card.json"
DEFAULT, SHADOW = "default", "shadow"
GOLDEN_TOLERANCE = (
    1e-3  # of a logit, absolute and relative: processors differ in the last bits, wrong models by far more
)

NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"  # of a model or a version: a folder's name that cannot climb out

Infer = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.floating]]
Append = Callable[[history.Change], None]


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
    counts: list[int] = Field(min_length=60, max_length=60)
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
        counts = counts_C.reshape(60, -1).sum(axis=1).tolist()
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


def publish(bundle: str | Path, models: str | Path, *, default: bool = True) -> Path:
    """Copy a bundle to MODELS/<name>/<version>/, written aside and renamed; `default`: MODELS/default and
    MODELS/<name>/default name it.

    Publishing the same content again changes nothing. Returns the published folder.

    Raises:
        BundleError: the bundle, or an already published folder of this version, is damaged.
    """
    loaded, models = Bundle.load(bundle), Path(models)
    if loaded.card.name == DEFAULT:
        raise BundleError(
            f"{loaded.directory / CARD}: the name '{DEFAULT}' is taken by the file that names the default"
        )
    target = models / loaded.card.name / loaded.version
    if target.exists():
        try:
            Bundle.load(target)
        except BundleError as error:
            raise BundleError(f"{error}. Remove {target} and publish again") from None
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".publishing-", dir=target.parent))
        try:
            for name in (MODEL, CALIBRATOR, CARD):
                shutil.copyfile(loaded.directory / name, aside / name)
            aside.chmod(0o755)  # mkdtemp's 0700 would hide it from a service under another user
            aside.rename(target)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            if not target.exists():  # another publisher of the same content may have been first
                raise
    if default:
        with history.writing(target.parent) as append:
            _answer(target.parent, loaded.version, append, "publish", "published", None)
        _write(models / DEFAULT, f"{loaded.card.name}/{loaded.version}")
    return target


def promote(models: str | Path, name: str, version: str, *, why: str = "", who: str | None = None) -> None:
    """Let a published version answer for its model, and when nothing is named if its model does so now.

    If it was the shadow, there is none any more. `who` is this process's user unless it is said.

    Raises:
        BundleError: there is no such published version.
    """
    folder = find(models, name, version).parent
    with history.writing(folder) as append:
        _take_over(folder, version, append, "promote", why, who)


def rollback(models: str | Path, name: str, *, why: str = "", who: str | None = None) -> str:
    """Promote the version that answered before; once more: the one before that. Returns the version.

    Raises:
        BundleError: that version's folder is gone.
        HistoryError: nothing is known to have answered before, or the history is damaged.
    """
    folder = find_model(models, name)
    with history.writing(folder) as append:
        now = role(models, name, DEFAULT)
        version = history.answered_before(history.read(folder), now)
        if version is None:
            raise history.HistoryError(
                f"nothing is known to have answered for {name} before {now}; name it: python -m pipeline promote"
            )
        _take_over(find(models, name, version).parent, version, append, "rollback", why, who)
    return version


def set_shadow(
    models: str | Path,
    name: str,
    version: str | None,
    *,
    why: str = "",
    who: str | None = None,
    since_ms: int | None = None,
) -> None:
    """Let a published version be scored on its model's inputs without being answered; None: no version.

    Raises:
        BundleError: there is no such published version.
    """
    folder = find_model(models, name) if version is None else find(models, name, version).parent
    with history.writing(folder) as append:
        _shadow(folder, version, append, why, who, since_ms)


def role(models: str | Path, name: str, which: str) -> str | None:
    """The version that is named a model's `default` or `shadow`, there or not; None if none is."""
    models = Path(models)
    try:
        return (models / name / which).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    with contextlib.suppress(BundleError):
        if which == DEFAULT and (found := find_default(models)).parent.name == name:
            return found.name
    return None


def _take_over(folder: Path, version: str, append: Append, what: history.What, why: str, who: str | None) -> None:
    models, name = folder.parent, folder.name
    _answer(folder, version, append, what, why, who)
    if role(models, name, SHADOW) == version:
        _shadow(folder, None, append, "it answers now", who, None)
    with contextlib.suppress(BundleError):
        if find_default(models).parent.name != name:
            return
    _write(models / DEFAULT, f"{name}/{version}")


def _answer(folder: Path, version: str, append: Append, what: history.What, why: str, who: str | None) -> None:
    before = role(folder.parent, folder.name, DEFAULT)
    _write(folder / DEFAULT, version)
    if before != version:
        append(history.Change(what, before, version, why, who or history.whoever(), history.now()))


def _shadow(folder: Path, version: str | None, append: Append, why: str, who: str | None, since_ms: int | None) -> None:
    before = role(folder.parent, folder.name, SHADOW)
    if version is None:
        (folder / SHADOW).unlink(missing_ok=True)
    else:
        _write(folder / SHADOW, version)
    if before != version:
        append(history.Change("shadow", before, version, why, who or history.whoever(), history.now(), since_ms))


def find_model(models: str | Path, name: str) -> Path:
    """The folder of a model's versions.

    Raises:
        BundleError: there is none.
    """
    folder = Path(models) / name
    if not (re.fullmatch(NAME, name) and folder.is_dir()):
        raise BundleError(f"there is no model {name!r} in {models}; python -m pipeline versions lists them")
    return folder


def find(models: str | Path, name: str, version: str) -> Path:
    """The folder of a published version.

    Raises:
        BundleError: there is none.
    """
    path = Path(models) / name / version
    if not (re.fullmatch(NAME, name) and re.fullmatch(NAME, version) and path.is_dir()):
        raise BundleError(f"there is no folder {path}; publish the bundle first: python -m pipeline publish")
    return path


def _write(path: Path, line: str) -> None:
    aside = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    aside.write_text(line + "\n", encoding="utf-8")
    aside.replace(path)


def find_default(models: str | Path) -> Path:
    """The folder that MODELS/default names.

    Raises:
        BundleError: there is no default, or it names a folder that is not there.
    """
    models = Path(models)
    try:
        named = (models / DEFAULT).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise BundleError(
            f"no model yet: {models / DEFAULT} does not exist. Publish one: python -m pipeline publish"
        ) from None
    except UnicodeDecodeError:
        named = "(not text)"
    except OSError as error:
        raise BundleError(f"{models / DEFAULT} cannot be read: {error.strerror}; publish again") from None
    # A pattern, not Path.parts: "/etc" has two parts as well, and leads out of MODELS.
    if not re.fullmatch(f"{NAME}/{NAME}", named) or not (models / named).is_dir():
        raise BundleError(f"{models / DEFAULT} names {named!r}, which is not a folder <name>/<version> in {models}")
    return models / named
