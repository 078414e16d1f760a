"""Published models: the version that answers, the shadows, the log of changes, and the methods that change them.

Published bundles are in MODELS/<name>/<version>/. Small files hold the roles. MODELS/default (<name>/<version>) answers
requests that name no model; MODELS/<name>/default (<version>) answers those that name only the model. Two versions are
scored on the same inputs without answering: MODELS/<name>/shadow, a net, and MODELS/<name>/recalibrated, a calibrator
for the served net. MODELS/<name>/waiting becomes the shadow when that place is free. MODELS/.id identifies the place,
wherever it is mounted. Each change of a role is a line of an audit log (`trueodds.bundle.audit_log`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from trueodds.bundle import changing
from trueodds.bundle.audit_log import Change, Reason
from trueodds.bundle.changing import Draft, check_is_published, check_model
from trueodds.bundle.contents import CARD, BundleError, Contents, Listing, Step, VersionSummary, shadow_of
from trueodds.bundle.storage.folder import Folder, Single
from trueodds.bundle.storage.locks import lock
from trueodds.bundle.storage.objects import is_url
from trueodds.bundle.storage.storage import Storage
from trueodds.processes.choices import DEFAULT, MODELS, RECALIBRATED, SHADOW, WAITING, Role, Slot
from trueodds.texts import short

if TYPE_CHECKING:  # a list of versions needs neither numpy nor pydantic, which take longer to import than it takes
    from trueodds.bundle.card import Card
    from trueodds.calibrators import Calibrator, MultilabelPlatt

T = TypeVar("T")
NO_SHADOWS = (
    "holds a model of independent labels, which has no shadow; publish it as the served version, or put a calibrator"
    " for the served net into the slot recalibrated"
)
ANOTHER_MODEL = "give it a name of its own (trueodds import --name), or make it the served version (role default)"
"""Cure for a version that cannot be judged beside the served one."""


@dataclass(frozen=True)
class PublishedModels:
    """Models in a place, and the methods that change them. `open_models` opens a place.

    Every method that changes something takes `why` and `who` for the audit log; `who` defaults to the user of this
    process. Several processes may use one place at once. The first `publish` creates the folder.

    Raises:
        BundleError: In every method: the named model or version is not published.
        AuditLogError: In every method that changes something: `why` or `who` is not a single line of text, or a line of
            the log is not a change.
        OSError: In every method: the place cannot be read or written.

    Examples:
        See `trueodds.bundle`.
    """

    storage: Storage

    @property
    def path(self) -> Path:
        """Folder on this machine with the versions."""
        return self.storage.path

    @property
    def place(self) -> str:
        """Value of `--models` for this place, valid in any folder."""
        return self.storage.place

    @property
    def given_place(self) -> str:
        """Value of `--models` for this place, as it was given in the current folder."""
        return self.storage.given_place

    def address(self, name: str, version: str) -> str:
        """Return the address of a published version for people."""
        return f"{self.given_place}/{name}/{version}"

    def exists(self) -> bool:
        """Return whether the folder exists, or whether the bucket holds an object; a bucket has no empty folders."""
        return self.storage.list().exists

    def check_writable(self) -> None:
        """Check that something can be published.

        Raises:
            OSError: The place cannot be written.
        """
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
        return sorted(listing.models[name], key=lambda version: (listing.modified_at(f"{name}/{version}"), version))

    def version_folder(self, name: str, version: str) -> Path:
        """Return the folder of a published version. It is fetched if necessary."""
        check_is_published(self.storage.list(), (name, version))
        return self.storage.fetch((name, version))

    def version_of(self, name: str, role: Role) -> str | None:
        """Return the version with a role, whether or not it exists. None: no version has the role."""
        return self._listing(name).version_of(name, role)

    def default(self) -> Path:
        """Return the folder of the default version, which answers requests without a model.

        In a bucket it may not be fetched yet.

        Raises:
            BundleError: There is no default, or it names a missing folder.
        """
        contents = self.contents()
        if contents.default is None:
            raise BundleError(contents.problems[0])
        return self.storage.folder(contents.default)

    def default_model(self) -> str | None:
        """Return the default model, which answers requests without a model, whether or not its version exists."""
        return self.storage.list().default_model()

    def changes(self, name: str | None = None) -> list[Change]:
        """Read the audit log of a model's versions, or of the default model."""
        return changing.changes(self.storage.list() if name is None else self._listing(name), name)

    def since_ms(self, name: str, slot: Slot) -> int:
        """Return the time from which on answers count for a slot's version (Unix milliseconds); 0 without a version.

        The version's fit does not know these answers. The currently served version gave all of them, since it last
        began to answer. Earlier answers are excluded, because they decided which version is served.
        """
        return changing.since_ms(self._listing(name), name, slot)

    def summary(self, name: str, version: str) -> tuple[Card, Calibrator | MultilabelPlatt]:
        """Read the card and the calibrator of a published version. A local version is checked completely.

        Raises:
            BundleError: The version is damaged.
        """
        check_is_published(self.storage.list(), (name, version))
        return self.storage.read((name, version))

    def version_summary(self, name: str, version: str) -> VersionSummary:
        """Summarise a published version for a list. The hashes of a local version are checked.

        Raises:
            BundleError: The version is damaged.
        """
        check_is_published(self.storage.list(), (name, version))
        return self.storage.summary((name, version))

    def standing(self, name: str, version: str) -> str:
        """Describe, for people, the role of a published version and how to send requests to it."""
        this = f"{name}/{version}"
        option = "" if self.given_place == (os.environ.get(MODELS) or "models") else f" --models {self.given_place}"
        default, default_model = self.version_of(name, DEFAULT), self.default_model()
        if default == version:
            if default_model == name:
                return f"{this} answers now: calls with ?model={name}, and calls that name no model."
            return (
                f"{this} answers now: calls with ?model={name}. Calls that name no model are answered by"
                f" {default_model or 'none'}; to change that: trueodds default {name}{option}"
            )
        query = f"Send requests to it with ?model={name}&version={version}."
        promote = f"Let it answer: trueodds promote {name} {version}{option}"
        judge = f"Its evidence: trueodds judge --model {name}{option}"
        if (shadow := self.version_of(name, SHADOW)) == version:
            return (
                f"{this} is the shadow of {default}, which answers for {name}: it is scored on the same inputs without"
                f" answering (/calibration-report?model={shadow_of(name)}). {query} {judge}. {promote}"
            )
        if self.version_of(name, RECALIBRATED) == version:
            report = f"/calibration-report?model={shadow_of(name, RECALIBRATED)}"
            applied = f"applied to the same logits without answering ({report})"
            if self.summary(name, version)[0].multilabel:
                applied = "compared by the logits of the labelled answers"
            about = f"{this} is a calibrator for {default}, which answers for {name}: it is {applied}"
            return f"{about}. {query} {judge}. {promote}"
        if self.version_of(name, WAITING) == version:
            return (
                f"{this} waits behind {shadow}, the shadow of {name}: it becomes the shadow"
                f" when the evidence on {shadow} is decided. {query} To end that evidence now: trueodds shadow {name}"
                f" {version}{option}. {promote}"
            )
        return f"{this} has no role; {default or 'nothing'} answers for {name}. {query}"

    def publish(
        self,
        bundle: str | Path,
        role: Literal["default", "shadow"] | None = DEFAULT,
        *,
        displace: bool = False,
        default_model: bool = False,
        why: str = "published",
        who: str | None = None,
    ) -> Path:
        """Copy a bundle to MODELS/<name>/<version>/, and give it a role for its own model.

        Publishing the same content again copies nothing. If the call fails or the process is killed, roles and logs are
        as before or as after. A complete copy without a role may remain; publish again.

        Args:
            bundle: Folder of the bundle.
            role: `default`: the version answers for its model. `shadow`: it is scored beside the served version. If no
                version answers yet, it answers. If another net is the shadow, it waits until that place is free and
                replaces a version that waited. None: it answers only requests that name its version.
            displace: Replace the current shadow instead of waiting.
            default_model: The model becomes the default model, which answers requests without a model. Otherwise the
                default model does not change, unless there is none.
            why: Reason, for the log.
            who: Author, for the log.

        Returns:
            The published folder; for a bucket, the folder in the cache.

        Raises:
            BundleError: The bundle is damaged, or the published folder of this version is. Or the bundle should be the
                shadow and has other inputs or classes than the served version.
        """
        from trueodds.bundle.label_bundle import LabelBundle
        from trueodds.bundle.storage.loading import load_bundle

        reason = Reason.of(why, who)
        source = load_bundle(bundle)
        if source.card.name == DEFAULT:
            raise BundleError(
                f"{source.directory / CARD}: the name '{DEFAULT}' is reserved for the file that names the default"
            )
        if role == SHADOW and isinstance(source, LabelBundle):
            raise BundleError(f"{source.directory} {NO_SHADOWS}")
        if role == SHADOW and source.card.name in self.names():
            self._check_card_to_judge(source.card, source.version)
        folder = self.storage.upload(source)
        self.identify()
        if role is not None or default_model:
            key = source.card.name, source.version
            self._change(
                key[0], reason, lambda draft: draft.appoint(key, role, displace=displace, default_model=default_model)
            )
        return folder

    def promote(
        self, name: str, version: str, *, why: str = "", who: str | None = None, beside: str | None = None
    ) -> None:
        """Let a published version answer for its model, and for requests without a model if its model is the default.

        Its other roles end; a waiting version takes the place of the shadow. A calibrator under judgement for another
        version than this one is withdrawn, because it was fitted for that version.

        Args:
            name: Name of the model.
            version: Version to promote.
            why: Reason, for the log.
            who: Author, for the log.
            beside: The version that must still answer now.

        Raises:
            BundleError: `beside` no longer answers.
        """
        self._change(name, Reason.of(why, who), lambda draft: draft.promote((name, version), beside))

    def roll_back(self, name: str, *, why: str = "", who: str | None = None) -> str:
        """Promote the version that answered before, and return it. A second call goes back one version more.

        Raises:
            AuditLogError: The log knows no earlier version.
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
        """Let a published version be scored on its model's inputs without answering.

        It replaces the slot's current version.

        Args:
            name: Name of the model.
            version: Version to score.
            slot: `recalibrated` for a version with the same net as the served one, `shadow` for another net.
            why: Reason, for the log.
            who: Author, for the log.
            since_ms: Answers given from then on were unknown to its fit (Unix milliseconds, the service's clock).
            beside: The version that must still answer now.

        Raises:
            BundleError: The version answers itself, `beside` no longer answers, a model of independent labels should
                be the shadow, or the version has other inputs or classes than the served one.
        """
        from trueodds.bundle.label_bundle import LabelBundle
        from trueodds.bundle.storage.loading import load_bundle

        key = name, version
        if slot != RECALIBRATED and isinstance(load_bundle(self.version_folder(name, version)), LabelBundle):
            raise BundleError(f"{name}/{version} {NO_SHADOWS}")
        self._check_card_to_judge(self.summary(name, version)[0], version)
        self._change(name, Reason.of(why, who), lambda draft: draft.shadow(key, slot, since_ms, beside))

    def _check_card_to_judge(self, card: Card, version: str) -> None:
        """Check that a version has the inputs and classes of the served one, since it is scored on the same inputs.

        Raises:
            BundleError: It has others.
        """
        served = self._listing(card.name).present(card.name, DEFAULT)
        if served is None or served == version:
            return
        try:
            other = self.summary(card.name, served)[0]
        except BundleError:  # whatever loads the served version says that it is damaged
            return
        pairs = {"multilabel": (card.multilabel, other.multilabel), "classes": (card.classes, other.classes)}
        inputs = card.input.model_dump(), other.input.model_dump()
        pairs |= {f"input.{name}": (inputs[0].get(name), inputs[1].get(name)) for name in {**inputs[0], **inputs[1]}}
        for name, (own, theirs) in pairs.items():
            if own == theirs:
                continue
            if isinstance(own, list) and isinstance(theirs, list) and len(own) == len(theirs):
                k = next(k for k, (one, another) in enumerate(zip(own, theirs, strict=True)) if one != another)
                name, own, theirs = f"{name}[{k}]", own[k], theirs[k]
            problem = f"{card.name}/{version} has {name} = {short(own)} on its card, and the served version {served}"
            judged = "A version is judged on the same inputs and classes"
            raise BundleError(f"{problem} has {short(theirs)}. {judged}: {ANOTHER_MODEL}")

    def withdraw(self, name: str, slot: Slot = SHADOW, *, why: str = "", who: str | None = None) -> None:
        """Empty a slot of a model. A net that waits for the shadow's place gets it."""
        self._change(name, Reason.of(why, who), lambda draft: draft.withdraw(name, slot))

    def set_default(self, name: str, *, why: str = "", who: str | None = None) -> str:
        """Make a model the default model, which answers requests without a model.

        Return the version that answers for it.

        Raises:
            BundleError: No version answers for the model.
        """
        return self._change(name, Reason.of(why, who), lambda draft: draft.set_default(name))

    def roll_back_default(self, *, why: str = "", who: str | None = None) -> str:
        """Make the previous default model the default again, and return its name.

        A second call goes back one model more.

        Raises:
            AuditLogError: The log knows no earlier model.
        """
        return self._change(None, Reason.of(why, who), Draft.roll_back_default)

    def identify(self) -> str:
        """Return the identity of this place. It is created now if there is none."""
        return self.storage.list().identity() or self.storage.write(None, changing.identify)

    def lock(self, name: str, purpose: str, wait: Callable[[], object] | None = None) -> AbstractContextManager[None]:
        """Lock a model against other processes with the same purpose (see `storage.locks.lock`).

        Other machines see the lock if they share the folder. The lock of a bucket is only on this machine. Changes that
        other machines make to the bucket meanwhile are in the log and are not lost.

        Raises:
            BusyError: Another process holds the lock, and there is no `wait`.
        """
        self._listing(name)
        folder = self.path / name
        folder.mkdir(parents=True, exist_ok=True)
        return lock(folder / f".{purpose}.lock", wait)

    def _listing(self, name: str) -> Listing:
        """Return the listing, which must contain the model."""
        listing = self.storage.list()
        check_model(listing, name)
        return listing

    def _change(self, model: str | None, reason: Reason, verb: Callable[[Draft], T]) -> T:
        """Apply a change of roles to the storage."""

        def change(listing: Listing) -> tuple[T, list[Step]]:
            draft = Draft(listing, reason)
            return verb(draft), draft.steps

        return self.storage.write(model, change)


def open_models(place: str | Path | None = None, *, home: Path | None = None) -> PublishedModels:
    """Open the models in a folder (relative to `home`) or under s3://bucket/prefix. Nothing is read yet.

    Args:
        place: Folder or URL. Default: the variable TRUEODDS_MODELS, else `models`, as in the service.
        home: Folder that a relative path starts from.

    Examples:
        >>> open_models("s3://bucket/models").place
        's3://bucket/models'
    """
    location = str(place or os.environ.get(MODELS) or "models")
    if not is_url(location):
        return PublishedModels(Folder((home or Path()) / location))
    from trueodds.bundle.storage.bucket import Bucket, cache_of

    return PublishedModels(Bucket(location, cache_of(location)))


def open_storage(place: str, bundle: Path | None, cache: Path | None, seconds: float) -> Storage:
    """Open the storage of a service: one bundle's folder, a folder of models, or a bucket read every `seconds`."""
    if bundle is not None:
        return Single(bundle)
    if not is_url(place):
        return Folder(Path(place))
    from trueodds.bundle.storage.bucket import cache_of
    from trueodds.bundle.storage.cached import CachedBucket

    return CachedBucket(place, cache_of(place, cache), seconds)
