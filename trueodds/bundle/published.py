"""Published models: which version answers, which is a shadow, how it came to that, and how it changes.

Published bundles lie in MODELS/<name>/<version>/. Small files say who does what: MODELS/default (<name>/<version>)
answers when nothing is named, MODELS/<name>/default (<version>) when only the model is. Two are scored on the same
inputs without being answered: MODELS/<name>/shadow, a net, and MODELS/<name>/recalibrated, a calibrator for the net
that answers. MODELS/<name>/waiting becomes the shadow when that place is free. MODELS/.id tells one place from another,
wherever it is mounted. Each change of a role is a line of an audit log (`trueodds.bundle.audit_log`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from trueodds.bundle import changing
from trueodds.bundle.audit_log import Change, Reason
from trueodds.bundle.bundle import CARD, Bundle, BundleError
from trueodds.bundle.card import Card
from trueodds.bundle.changing import Draft, check_model, check_published
from trueodds.bundle.contents import (
    DEFAULT,
    RECALIBRATED,
    SHADOW,
    WAITING,
    Contents,
    Listing,
    Role,
    Slot,
    Step,
    shadow_of,
)
from trueodds.bundle.storage.bucket import Bucket, cache_of
from trueodds.bundle.storage.cached import CachedBucket
from trueodds.bundle.storage.folder import Folder, Single
from trueodds.bundle.storage.locks import lock
from trueodds.bundle.storage.objects import is_url
from trueodds.bundle.storage.storage import Storage
from trueodds.calibrators import Calibrator

VARIABLE = "TRUEODDS_MODELS"

T = TypeVar("T")


@dataclass(frozen=True)
class PublishedModels:
    """Models in a place, with the verbs that change them. `open_models` opens a place.

    Every verb that changes something takes `why` and `who` for the audit log; `who` is the user of this process by
    default. Several processes may use one place at once. The first `publish` makes the folder.

    Raises:
        BundleError: by every call, where it names a model or a version that is not published.
        AuditLogError: by every verb, where `why` or `who` is not a plain line; a log with a line that is no change.
        OSError: by every call, where the place cannot be read or written.
    """

    storage: Storage

    @property
    def path(self) -> Path:
        """Folder on this machine with the versions."""
        return self.storage.path

    @property
    def place(self) -> str:
        """Name of the place that `--models` takes from any folder."""
        return self.storage.place

    @property
    def given(self) -> str:
        """Name of the place that `--models` takes in the current folder."""
        return self.storage.given

    def address(self, name: str, version: str) -> str:
        """Name the place of a published version, for people."""
        return f"{self.given}/{name}/{version}"

    def exists(self) -> bool:
        """Say whether the folder exists, or the bucket holds something: it has no empty folders."""
        return self.storage.list().exists

    def check_writable(self) -> None:
        """Raise OSError where nothing can be published."""
        self.storage.check_writable()

    def contents(self) -> Contents:
        """Read all models, versions and roles."""
        return self.storage.contents()

    def names(self) -> list[str]:
        """List the names of the models."""
        return self.storage.list().names

    def versions(self, name: str) -> list[str]:
        """List the published versions of a model, the oldest first."""
        listing = self._listing(name)
        return sorted(listing.models[name], key=lambda version: (listing.modified(f"{name}/{version}"), version))

    def version_folder(self, name: str, version: str) -> Path:
        """Return the folder of a published version, which is fetched if need be."""
        check_published(self.storage.list(), (name, version))
        return self.storage.fetch((name, version))

    def version_of(self, name: str, role: Role) -> str | None:
        """Return the version with a role, whether or not it exists. None: no version has the role."""
        return self._listing(name).version_of(name, role)

    def default(self) -> Path:
        """Return the folder of the version that answers calls without a model. That of a bucket may not be fetched yet.

        Raises:
            BundleError: there is no default, or it names a folder that is not there.
        """
        contents = self.contents()
        if contents.default is None:
            raise BundleError(contents.problems[0])
        return self.storage.folder(contents.default)

    def default_model(self) -> str | None:
        """Return the model that answers calls without a model, whether or not its version exists."""
        return self.storage.list().default_model()

    def changes(self, name: str | None = None) -> list[Change]:
        """Read the audit log of a model's versions, or of the model that answers calls without a model."""
        return changing.changes(self.storage.list() if name is None else self._listing(name), name)

    def since_ms(self, name: str, slot: Slot) -> int:
        """Return the time from which answers count for a slot's version (Unix milliseconds); 0 without a version.

        The fit of the version knows none of these answers. The served version gave all of them, since it last began to
        answer: earlier ones decided which version is served.
        """
        return changing.since_ms(self._listing(name), name, slot)

    def summary(self, name: str, version: str) -> tuple[Card, Calibrator]:
        """Read the card and the calibrator of a published version. A local version is checked as a whole.

        Raises:
            BundleError: it is damaged.
        """
        check_published(self.storage.list(), (name, version))
        return self.storage.read((name, version))

    def standing(self, name: str, version: str) -> str:
        """Describe, for people, the role of a published version and how to ask it."""
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

    def publish(
        self,
        bundle: str | Path,
        role: Literal["default", "shadow"] | None = DEFAULT,
        *,
        displace: bool = False,
        unnamed: bool = False,
        why: str = "published",
        who: str | None = None,
    ) -> Path:
        """Copy a bundle to MODELS/<name>/<version>/, and give it a role for its own model.

        `default`: it answers for its model. `shadow`: it is scored beside what answers for its model; where nothing
        does, it answers; where another net is the shadow, it waits until that place is free, in place of what waited
        before, unless it is to `displace` the shadow. None: it can only be asked by its version. Calls that name no
        model go on to be answered by the model that answers them now, unless there is none or `unnamed` says that this
        one shall.

        Publishing the same content again copies nothing. Returns the published folder, of a bucket the one in the
        cache. Where it fails, or is killed, roles and logs are as before, or as after; a copy that is whole may stay,
        without a role: publish again.

        Raises:
            BundleError: the bundle, or an already published folder of this version, is damaged.
        """
        reason = Reason.of(why, who)
        source = Bundle.load(bundle)
        if source.card.name == DEFAULT:
            raise BundleError(
                f"{source.directory / CARD}: the name '{DEFAULT}' is taken by the file that names the default"
            )
        folder = self.storage.upload(source)
        self.identify()
        if role is not None or unnamed:
            key = source.card.name, source.version
            self._change(key[0], reason, lambda draft: draft.appoint(key, role, displace=displace, unnamed=unnamed))
        return folder

    def promote(
        self, name: str, version: str, *, why: str = "", who: str | None = None, beside: str | None = None
    ) -> None:
        """Let a published version answer for its model, and when nothing is named if its model does so now.

        If it was the shadow or waited, it is no more; a shadow's place goes to the version that waits. A calibrator
        that is judged beside another version than this one is withdrawn: its fit was for that.

        Raises:
            BundleError: `beside` is given and no longer answers.
        """
        self._change(name, Reason.of(why, who), lambda draft: draft.promote((name, version), beside))

    def roll_back(self, name: str, *, why: str = "", who: str | None = None) -> str:
        """Promote the version that answered before; once more: the one before that. Returns the version.

        Raises:
            AuditLogError: nothing is known to have answered before.
        """
        return self._change(name, Reason.of(why, who), lambda draft: draft.roll_back(name))

    def shadow(
        self,
        name: str,
        version: str,
        *,
        slot: Slot = SHADOW,
        why: str = "",
        who: str | None = None,
        since_ms: int | None = None,
        beside: str | None = None,
    ) -> None:
        """Let a published version be scored on its model's inputs without being answered, whatever was so before.

        `recalibrated` is the slot of a version with the same net as what answers, `shadow` that of another one.

        `since_ms`: answers given from then on (Unix milliseconds, the service's clock) were not known to its fit.

        Raises:
            BundleError: it is the one that answers, or `beside` is given and no longer answers.
        """
        key = name, version
        self._change(name, Reason.of(why, who), lambda draft: draft.shadow(key, slot, since_ms, beside))

    def withdraw(self, name: str, slot: Slot = SHADOW, *, why: str = "", who: str | None = None) -> None:
        """Let no version be in a slot of a model; a net that waits for that of the shadow gets it."""
        self._change(name, Reason.of(why, who), lambda draft: draft.withdraw(name, slot))

    def set_default(self, name: str, *, why: str = "", who: str | None = None) -> str:
        """Let a model answer calls that name none, by the version that answers for it. Returns that version.

        Raises:
            BundleError: no version answers for it.
        """
        return self._change(name, Reason.of(why, who), lambda draft: draft.set_default(name))

    def roll_back_default(self, *, why: str = "", who: str | None = None) -> str:
        """Let the model answer calls that name none that did so before; once more: the one before that.

        Returns its name.

        Raises:
            AuditLogError: nothing is known to have answered before.
        """
        return self._change(None, Reason.of(why, who), Draft.roll_back_default)

    def identify(self) -> str:
        """Return the identity that tells this place from others. It is made now if there is none."""
        return self.storage.list().identity() or self.storage.write(None, changing.identify)

    def lock(self, name: str, purpose: str, wait: Callable[[], object] | None = None) -> AbstractContextManager[None]:
        """Hold a model against other processes with the same purpose; see `storage.locks.lock`.

        Other machines see it where they share the folder. They do not see that of a bucket, which is this machine's:
        what they change there meanwhile is in the log, and is not lost.

        Raises:
            BusyError: another process holds it, and there is no `wait`.
        """
        self._listing(name)
        folder = self.path / name
        folder.mkdir(parents=True, exist_ok=True)
        return lock(folder / f".{purpose}.lock", wait)

    def _listing(self, name: str) -> Listing:
        """List what is there, and the model among it."""
        listing = self.storage.list()
        check_model(listing, name)
        return listing

    def _change(self, model: str | None, reason: Reason, verb: Callable[[Draft], T]) -> T:
        def change(listing: Listing) -> tuple[T, list[Step]]:
            draft = Draft(listing, reason)
            return verb(draft), draft.steps

        return self.storage.write(model, change)


def open_models(place: str | Path | None = None, *, home: Path | None = None) -> PublishedModels:
    """Open the models in a folder, which is relative to `home`, or under s3://bucket/prefix. Nothing is read yet.

    None: those that TRUEODDS_MODELS names, or `models`, as the service does.

    >>> open_models("s3://bucket/models").place
    's3://bucket/models'
    """
    given = str(place or os.environ.get(VARIABLE) or "models")
    return PublishedModels(Bucket(given, cache_of(given)) if is_url(given) else Folder((home or Path()) / given))


def open_storage(place: str, bundle: Path | None, cache: Path | None, seconds: float) -> Storage:
    """Open what a service reads: the folder of one bundle, of models, or a bucket, which is read every `seconds`."""
    if bundle is not None:
        return Single(bundle)
    return CachedBucket(place, cache_of(place, cache), seconds) if is_url(place) else Folder(Path(place))
