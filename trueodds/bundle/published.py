"""Reading the folder of published models: who answers, who shadows, and how it came to that.

Published bundles lie in MODELS/<name>/<version>/. Small files say who does what: MODELS/default (<name>/<version>)
answers when nothing is named, MODELS/<name>/default (<version>) when only the model is. Two are scored on the same
inputs without being answered: MODELS/<name>/shadow, a net, and MODELS/<name>/recalibrated, a calibrator for the net
that answers. MODELS/<name>/waiting becomes the shadow when that place is free. MODELS/.id tells one model folder from
another, wherever it is mounted. Each change of a role is a line of an audit log (`trueodds.bundle.audit_log`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from trueodds.bundle.audit_log import AuditLog, Change, role_of
from trueodds.bundle.bundle import Bundle, BundleError
from trueodds.bundle.card import NAME, Card
from trueodds.bundle.contents import (
    DEFAULT,
    RECALIBRATED,
    SHADOW,
    WAITING,
    Contents,
    Key,
    Role,
    default_model_of,
    default_of,
    names_in,
    version_of,
)
from trueodds.bundle.shadows import Slot, shadow_of
from trueodds.calibrators import Calibrator

VARIABLE = "TRUEODDS_MODELS"


@dataclass(frozen=True)
class PublishedModels:
    """The models that are published in a folder, for those who only read it."""

    path: Path

    @property
    def place(self) -> str:
        """Where the models are, for people: what `--models` takes from any folder."""
        return str(self.path.resolve())

    @property
    def given(self) -> str:
        """What `--models` takes for it in this folder."""
        return str(self.path)

    def address(self, name: str, version: str) -> str:
        """Where a published version is, for people."""
        return f"{self.given}/{name}/{version}"

    def exists(self) -> bool:
        """Whether the folder is there."""
        return self.path.is_dir()

    def contents(self) -> Contents:
        """All models, versions and roles.

        Raises:
            OSError: a folder that is there and cannot be read.
        """
        return Contents.read(self.path)

    def folder(self, key: Key) -> Path:
        """Where a version of the contents lies."""
        return self.path.joinpath(*key)

    def fetch(self, key: Key) -> Path:
        """Where a version of the contents lies, on this machine and as a whole as far as anybody knows."""
        return self.folder(key)

    def revision(self, key: Key) -> tuple[tuple[str, str], ...]:
        """Changes when a version does where `fetch` takes it from, if that is elsewhere."""
        return ()

    def names(self) -> list[str]:
        """The names of the models."""
        return names_in(self.path)

    def versions(self, name: str) -> list[str]:
        """The published versions of a model, the oldest first.

        Raises:
            BundleError: there is no such model.
        """
        folder = self._model(name)
        return sorted(names_in(folder), key=lambda version: (folder / version).stat().st_mtime)

    def version_folder(self, name: str, version: str) -> Path:
        """The folder of a published version.

        Raises:
            BundleError: there is none.
        """
        path = self.path / name / version
        if not (re.fullmatch(NAME, name) and re.fullmatch(NAME, version) and path.is_dir()):
            raise BundleError(f"there is no folder {path}; publish the bundle first: trueodds publish")
        return path

    def version_of(self, name: str, role: Role) -> str | None:
        """The version that has a role for a model, whether or not its folder is there; None if none has.

        Raises:
            BundleError: there is no such model.
        """
        return version_of(self._model(name), role)

    def default(self) -> Path:
        """The folder of the version that answers calls that name no model.

        Raises:
            BundleError: there is no default, or it names a folder that is not there.
        """
        return self.path.joinpath(*default_of(self.path))

    def default_model(self) -> str | None:
        """The model that answers calls that name none, whether or not its version is there."""
        return default_model_of(self.path)

    def changes(self, name: str | None = None) -> list[Change]:
        """The audit log of a model's versions, or of the model that answers calls that name none.

        Raises:
            AuditLogError: a line that is no change.
            BundleError: there is no such model.
        """
        return AuditLog(self.path if name is None else self._model(name)).changes()

    def since_ms(self, name: str, slot: Slot) -> int:
        """The time from which on answers count for a slot's version (Unix milliseconds); 0 without one.

        Its fit knows none of them, and they are answers of what answers now since it last began to: which version
        answers was decided by looking at earlier ones.

        Raises:
            AuditLogError: a line of the log that is no change.
            BundleError: there is no such model.
        """
        if (version := self.version_of(name, slot)) is None:
            return 0
        changes = self.changes(name)
        since = _since_ms(changes, slot, version)
        if since is None:
            since = int((self.path / name / slot).stat().st_mtime * 1000)
        return max(since, _since_ms(changes, DEFAULT, self.version_of(name, DEFAULT)) or 0)

    def summary(self, name: str, version: str) -> tuple[Card, Calibrator]:
        """The card and the calibrator of a published version, which was looked at as a whole where that costs little.

        Raises:
            BundleError: there is none, or it is damaged.
        """
        bundle = Bundle.load(self.version_folder(name, version))
        return bundle.card, bundle.calibrator

    def standing(self, name: str, version: str) -> str:
        """Describes, for people, the role of a published version and how to ask it."""
        this = f"{name}/{version}"
        option = "" if self.given == (os.environ.get(VARIABLE) or "models") else f" --models {self.given}"
        default, default_model = self.version_of(name, DEFAULT), self.default_model()
        if default == version:
            if default_model == name:
                return f"{this} answers now: calls with ?model={name}, and calls that name no model."
            return (
                f"{this} answers now: calls with ?model={name}. Calls that name no model are answered by"
                f" {default_model or 'none'}; to change that: trueodds default {name}{option}"
            )
        query = f"It is asked with ?model={name}&version={version}."
        promote = f"Let it answer: trueodds promote {name} {version}{option}"
        judge = f"Its evidence: trueodds judge --model {name}{option}"
        if (shadow := self.version_of(name, SHADOW)) == version:
            return (
                f"{this} is the shadow of {default}, which answers for {name}: it is scored on the same inputs and not"
                f" answered (/calibration-report?model={shadow_of(name)}). {query} {judge}. {promote}"
            )
        if self.version_of(name, RECALIBRATED) == version:
            return (
                f"{this} is a calibrator for {default}, which answers for {name}: it is applied to the same logits and"
                f" not answered (/calibration-report?model={shadow_of(name, RECALIBRATED)}). {query} {judge}. {promote}"
            )
        if self.version_of(name, WAITING) == version:
            return (
                f"{this} waits behind {shadow}, the shadow of {name}, whose evidence goes on: it becomes the shadow"
                f" when that is decided. {query} Now, at the cost of that evidence: trueodds shadow {name}"
                f" {version}{option}. {promote}"
            )
        return f"{this} has no role; {default or 'nothing'} answers for {name}. {query}"

    def _model(self, name: str) -> Path:
        folder = self.path / name
        if not (re.fullmatch(NAME, name) and folder.is_dir()):
            raise BundleError(f"there is no model {name!r} in {self.path}; trueodds versions lists them")
        return folder


def _since_ms(changes: list[Change], role: Role, version: str | None) -> int | None:
    """When a version got the role that it has, in Unix milliseconds; None: the log does not say."""
    for change in reversed(changes):
        if role_of(change.action) == role:
            if change.after != version:
                return None
            return change.since_ms or int(datetime.fromisoformat(change.when).timestamp() * 1000)
    return None
