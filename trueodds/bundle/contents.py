"""Roles of published versions, the state of a place for models at one moment, and the files of a version.

This module imports no package, so that a list of versions is quick.

A small file for each role holds one line with the version; in MODELS/default the model stands before it.

A shadow is a version that is scored on a model's inputs without answering. The store calls a net's shadow
`digits~shadow`, and a calibrator for the served net `digits~recalibrated`. Its rows have the ids of the answers, and
their labels. No bundle's name contains a ~.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from trueodds.errors import UserError
from trueodds.files import sha256
from trueodds.processes.choices import DEFAULT, ROLES, SLOTS, Role, Slot
from trueodds.texts import NAME, promise_text

MODEL = "model.onnx"
"""File of a bundle with the graph, from inputs to logits."""
CALIBRATOR = "calibrator.json"
"""File of a bundle with the fitted calibrator, from logits to probabilities."""
SETS = "conformal.json"
"""File of a bundle with the calibration scores of its conformal sets, if it has sets."""
CARD = "card.json"
"""File of a bundle with its card: the input, the classes, the test numbers, and the hashes of the other files."""
MODEL_CARD = "MODEL_CARD.md"
"""File of a bundle with the card as a page for people."""
NO_BUNDLE = "NO_BUNDLE.txt"
"""File that explains why a folder for a bundle is empty."""
ENTRIES = {
    *("format", "name", "classes", "positive", "ordered", "multilabel", "input", "method", "training", "metrics"),
    *("risk_coverage", "act_alone", "sets", "notes", "data_sha256", "code_sha256", "files", "golden", "reference"),
}
"""Entries of a card that this release knows, but for the distribution of a registered calibrator."""
IDENTITY = ".id"
Key = tuple[str, str]
"""Model and version."""
Step = tuple[str, bytes | None]
"""Name of a small file below a place, and its new content. None removes the file. A log only grows."""


@dataclass(frozen=True)
class ModelRoles:
    """Versions and roles of a model. A role whose version does not exist is None; `Contents.problems` reports it."""

    versions: frozenset[str]
    default: str | None = None
    shadow: str | None = None
    recalibrated: str | None = None
    waiting: str | None = None


@dataclass(frozen=True)
class Contents:
    """All models of a place, with their versions and roles."""

    default: Key | None = None
    models: dict[str, ModelRoles] = field(default_factory=dict)
    identity: str | None = None
    """Id of this place, the same wherever it is mounted. None before the first publication."""
    problems: tuple[str, ...] = ()
    """Models and versions that are named but missing. If there is no default, the first entry says why."""

    def __contains__(self, key: Key) -> bool:
        return key[0] in self.models and key[1] in self.models[key[0]].versions


@dataclass(frozen=True)
class Listing:
    """Content of a place at one moment. A small file is read when it is needed."""

    place: str
    """Name of the place in messages: the value of `--models`."""
    models: Mapping[str, frozenset[str]]
    """Published versions of each model."""
    read: Callable[[str], bytes | None]
    """Reads a small file by its name; returns None if there is none. Raises OSError if it cannot be read."""
    modified_at: Callable[[str], float]
    """Returns when a small file or a version such as `digits/3f2a` was last written (Unix seconds)."""
    exists: bool = True
    problem: str = ""
    """Reason why the place could not be read now; "" if it could."""

    @property
    def names(self) -> list[str]:
        """Sorted names of the models."""
        return sorted(self.models)

    def contents(self) -> Contents:
        """Read the identity and all roles: a few small files for each model."""
        problems = [self.problem] if self.problem else []
        default = self._default(problems)
        models = {name: self._model(name, default, problems) for name in self.names}
        return Contents(default, models, self.identity(), tuple(problems))

    def __contains__(self, key: Key) -> bool:
        return key[1] in self.models.get(key[0], ())

    def version_of(self, name: str, role: Role) -> str | None:
        """Return the version with a role, whether or not it exists. None: no version has the role."""
        if (version := _text(self.read(f"{name}/{role}"))) is not None:
            return version
        default = self._default([]) if role == DEFAULT else None
        return default[1] if default and default[0] == name else None

    def present(self, name: str, role: Role) -> str | None:
        """Return the version with a role, if it exists."""
        version = self.version_of(name, role)
        return version if version is not None and (name, version) in self else None

    def default_model(self) -> str | None:
        """Return the model of the place's default, whether or not its version exists."""
        try:
            name, _, version = (_text(self.read(DEFAULT)) or "").partition("/")
        except OSError:
            return None
        return name if name in self.models and re.fullmatch(NAME, version) else None

    def identity(self) -> str | None:
        """Read the identity of this place. None: nothing has been published yet."""
        try:
            text = _text(self.read(IDENTITY)) or ""
        except OSError:
            return None
        return text if re.fullmatch("[0-9a-f]{16}", text) else None

    def _default(self, problems: list[str]) -> Key | None:
        """Read the default of the place. Without one, the reason is added to `problems`."""
        file = f"{self.place}/{DEFAULT}"
        try:
            data = self.read(DEFAULT)
        except OSError as error:
            problems.append(f"{file} cannot be read: {error.strerror}; publish again")
            return None
        if data is None:
            problems.append(f"no model yet: {file} does not exist. Publish one: trueodds publish")
            return None
        text = _text(data)
        name, _, version = (text or "").partition("/")
        if (name, version) in self:  # this also excludes names that lead out of the place
            return name, version
        shown = "(not text)" if text is None else text
        problems.append(f"{file} names {shown!r}, which is not a folder <name>/<version> in {self.place}")
        return None

    def _model(self, name: str, default: Key | None, problems: list[str]) -> ModelRoles:
        """Read versions and roles of a model."""
        roles: dict[str, str | None] = {role: self._role(name, role, problems) for role in ROLES}
        if roles[DEFAULT] is None and default and default[0] == name:
            roles[DEFAULT] = default[1]
        return ModelRoles(self.models[name], **roles)

    def _role(self, name: str, role: Role, problems: list[str]) -> str | None:
        """Read the version of a role. If it does not exist, this is added to `problems`."""
        file = f"{self.place}/{name}/{role}"
        try:
            data = self.read(f"{name}/{role}")
            version = None if data is None else data.decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{file} cannot be read ({error}); publish again")
            return None
        if version is None or (name, version) in self:
            return version
        problems.append(f"{file} names {version[:100]!r}, which is not a folder in {self.place}/{name}")
        return None


def _text(data: bytes | None) -> str | None:
    """Decode the line of a small file. None: there is no file, or it is not text."""
    try:
        return None if data is None else data.decode().strip()
    except UnicodeDecodeError:
        return None


def shadow_of(model: str, slot: Slot = "shadow") -> str:
    """Return the name of a model's shadow, or of its recalibrated version."""
    return f"{model}~{slot}"


def shadows_of(model: str) -> list[str]:
    """Return the names of all versions that are judged beside a model's answers."""
    return [shadow_of(model, slot) for slot in SLOTS]


def slot_of(name: str) -> Slot | None:
    """Return the slot of a shadow's name. None: it is the name of a model.

    >>> slot_of("digits~recalibrated"), slot_of("digits")
    ('recalibrated', None)
    """
    return next((slot for slot in SLOTS if name.endswith(f"~{slot}")), None)


def is_shadow(name: str) -> bool:
    """Return whether a name is that of a shadow, in either slot."""
    return slot_of(name) is not None


def shadowed_by(name: str) -> str:
    """Return the model of a shadow's name. The name of a model is returned unchanged.

    >>> shadowed_by("digits~shadow"), shadowed_by("digits")
    ('digits', 'digits')
    """
    return name if (slot := slot_of(name)) is None else name.removesuffix(f"~{slot}")


class BundleError(UserError, ValueError):
    """The bundle must not be served. The message says what is wrong and where."""


def version_of(card: bytes) -> str:
    """Return the version of a bundle with this card: the first 12 hex digits of the card's SHA-256."""
    return hashlib.sha256(card).hexdigest()[:12]


def why_none(folder: Path) -> str:
    """Return the reason why a folder holds no bundle; "" if none is given."""
    path = folder / NO_BUNDLE
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


@dataclass(frozen=True)
class VersionSummary:
    """Calibrator, method, test numbers and promise of a version."""

    calibrator: str
    """Name of the calibrator."""
    method: str
    """Training method."""
    numbers: dict[str, float]
    """ECE and NLL of the test rows after calibration, as far as the card has them."""
    act_alone: str
    """The promise to act alone in a few words; "" if there is none."""

    @classmethod
    def of(cls, card: Mapping[str, Any], calibrator: str) -> Self:
        """Summarise a card, as JSON has it, and its calibrator, by its name."""
        after, promise = card["metrics"].get("after", {}), card.get("act_alone")
        if card.get("multilabel"):
            after = after.get("whole", {})
        numbers = {name: float(after[key]) for key, name in (("ece", "ECE"), ("nll", "NLL")) if after.get(key)}
        acts = "" if promise is None else promise_text(promise["threshold"], promise["risk"])
        return cls(calibrator, card["method"], numbers, acts)

    @classmethod
    def of_files(cls, folder: Path, version: str) -> Self | None:
        """Summarise the files of a version by their hashes.

        The version contains the hash of its card, and the card the hashes of the other files. Files with these hashes
        are those that a writer has checked. `None` means that the whole check has to decide: a hash differs, a file is
        missing, another release has written the card, or another distribution has the calibrator.

        Args:
            folder: Folder of the version.
            version: The version.

        Raises:
            OSError: A file cannot be read.
        """
        try:
            card = (folder / CARD).read_bytes()
            if version_of(card) != version:
                return None
            tree = json.loads(card)
            if not tree.keys() <= ENTRIES or any(sha256(folder / file) != own for file, own in tree["files"].items()):
                return None
            return cls.of(tree, json.loads((folder / CALIBRATOR).read_bytes())["calibrator"])
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, LookupError, AttributeError):
            return None
