"""Changes of roles, as functions of a listing: the small files that they write, in their order."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from trueodds.bundle.audit_log import (
    Action,
    AuditLogError,
    Change,
    Reason,
    began_ms,
    last_version,
    log_of,
    parse,
    previous,
    repair,
)
from trueodds.bundle.contents import IDENTITY, BundleError, Key, Listing, Step
from trueodds.processes.choices import DEFAULT, RECALIBRATED, SHADOW, WAITING, Slot
from trueodds.texts import quotes


class Draft:
    """A listing with the changes that a method of `PublishedModels` makes to it.

    Each role's file is written before its line in the log. If a writer dies between the two, the next change of the
    same role appends the line.
    """

    def __init__(self, before: Listing, reason: Reason) -> None:
        self._before, self._reason, self._texts = before, reason, dict[str, bytes | None]()
        self.steps: list[Step] = []
        self._now = replace(before, read=self._read)
        """Listing with all changes so far."""

    def appoint(
        self, key: Key, role: Literal["default", "shadow"] | None, *, displace: bool, default_model: bool
    ) -> None:
        """Give a newly published version its role. `default_model`: its model becomes the default model."""
        name, version = key
        answering, shadow = self._now.present(name, DEFAULT), self._now.present(name, SHADOW)
        if role == DEFAULT or (role and answering is None):
            self._take_over(key, "publish")
        elif role and version not in (answering, shadow):
            self._set(name, SHADOW if shadow is None or displace else WAITING, version)
        if default_model:
            self.set_default(name)

    def promote(self, key: Key, beside: str | None) -> None:
        """Let a version answer for its model.

        Raises:
            BundleError: `beside` is given, and another version answers by now.
        """
        self._check(key, beside)
        self._take_over(key, "promote")

    def roll_back(self, name: str) -> str:
        """Let the version answer that answered before, and return it.

        Raises:
            AuditLogError: The log knows no earlier version.
        """
        check_model(self._now, name)
        current = self._now.version_of(name, DEFAULT)
        version = previous(changes(self._now, name), current)
        if version is None:
            cure = "choose one: trueodds promote"
            raise AuditLogError(f"the log knows no version that answered for {name} before {current}; {cure}")
        check_is_published(self._now, (name, version))
        self._take_over((name, version), "rollback")
        return version

    def shadow(self, key: Key, slot: Slot, since_ms: int | None, beside: str | None) -> None:
        """Let a version be judged beside the served version.

        Raises:
            BundleError: The version answers itself, or `beside` is given and another version answers by now.
        """
        self._check(key, beside)
        name, version = key
        if self._now.version_of(name, DEFAULT) == version:
            raise BundleError(
                f"{name}/{version} is the version that answers; choose another one to be judged beside it"
            )
        self._set(name, slot, version, since_ms=since_ms)

    def withdraw(self, name: str, slot: Slot) -> None:
        """Empty a slot of a model."""
        check_model(self._now, name)
        self._set(name, slot, None)

    def set_default(self, name: str, action: Action = "default") -> str:
        """Let a model answer requests that name none. Return the version that answers for it."""
        check_model(self._now, name)
        if (version := self._now.present(name, DEFAULT)) is None:
            raise BundleError(f"no version answers for {name} in {self._now.place}; choose one: trueodds promote")
        self._name_default((name, version), action)
        return version

    def roll_back_default(self) -> str:
        """Let the previous default model be the default model again, and return its name."""
        current = self._now.default_model()
        name = previous(changes(self._now, None), current)
        if name is None:
            raise AuditLogError(
                f"the log knows no model that answered requests without a model before {current or 'now'}; choose one:"
                " trueodds default MODEL"
            )
        self.set_default(name, "rollback")
        return name

    def _check(self, key: Key, beside: str | None) -> None:
        """Check that a version is published and that the served version is still `beside`."""
        check_is_published(self._now, key)
        if beside is not None and (now := self._now.version_of(key[0], DEFAULT)) != beside:
            raise BundleError(f"{key[0]}/{beside} no longer answers, {now} does: somebody else changed it. Start again")

    def _take_over(self, key: Key, action: Action) -> None:
        """Let a version answer for its model, and take its other roles away."""
        name, version = key
        before = self._now.version_of(name, DEFAULT)
        self._write(f"{name}/{DEFAULT}", version)
        self._record(name, action, before, version)
        for role in (WAITING, SHADOW, RECALIBRATED):
            if self._now.version_of(name, role) == version:
                self._set(name, role, None, "it answers now")
        if before != version and self._now.version_of(name, RECALIBRATED) is not None:
            self._set(name, RECALIBRATED, None, f"{version} answers now; its calibrator was fitted beside {before}")
        # MODELS/default follows the version that answers for its model. Without a default, this model becomes it.
        if self._now.default_model() in (None, name):
            self._name_default(key, "default", "the first model here")

    def _set(
        self,
        name: str,
        role: Literal["shadow", "recalibrated", "waiting"],
        version: str | None,
        why: str | None = None,
        since_ms: int | None = None,
    ) -> None:
        """Give a version a role that does not answer, or empty the role.

        A waiting version takes the place of a free shadow.
        """
        before = self._now.version_of(name, role)
        self._write(f"{name}/{role}", version)
        self._record(name, role, before, version, why, since_ms)
        if role != SHADOW or (waiting := self._now.present(name, WAITING)) is None:
            return
        if version is None:
            self._set(name, SHADOW, waiting, f"it waited behind {before}")
        elif version == waiting:
            self._set(name, WAITING, None, "it is the shadow now")

    def _name_default(self, key: Key, action: Action, why: str | None = None) -> None:
        before = self._now.default_model()
        self._write(DEFAULT, "/".join(key))
        self._record(None, action, before, key[0], why)

    def _record(
        self,
        model: str | None,
        action: Action,
        before: str | None,
        after: str | None,
        why: str | None = None,
        since_ms: int | None = None,
    ) -> None:
        """Append a change to a log. If a process died before its line was written, the line is appended now.

        `why` replaces the method's own reason.
        """
        log = self._now.read(log_of(model)) or b""
        if before == after:
            before = last_version(log, action, after)
        if before != after:
            when = datetime.now(UTC).isoformat(timespec="milliseconds")
            reason = self._reason if why is None else Reason(why, self._reason.who)
            change = Change(action, before, after, reason.why, reason.who, when, since_ms)
            self._step(log_of(model), repair(log) + change.line().encode() + b"\n")

    def _write(self, name: str, line: str | None) -> None:
        self._step(name, None if line is None else f"{line}\n".encode())

    def _step(self, name: str, data: bytes | None) -> None:
        self._texts[name] = data
        self.steps.append((name, data))

    def _read(self, name: str) -> bytes | None:
        return self._texts[name] if name in self._texts else self._before.read(name)


def identify(listing: Listing) -> tuple[str, list[Step]]:
    """Return the identity of a place. It is created now if there is none."""
    if identity := listing.identity():
        return identity, []
    identity = secrets.token_hex(8)
    return identity, [(IDENTITY, f"{identity}\n".encode())]


def changes(listing: Listing, model: str | None) -> list[Change]:
    """Read the audit log of a model's versions, or of the default model.

    Raises:
        AuditLogError: A line is not a change.
    """
    name = log_of(model)
    return parse(listing.read(name) or b"", f"{listing.place}/{name}")


def since_ms(listing: Listing, name: str, slot: Slot) -> int:
    """Return the time from which on answers count for a slot's version (see `PublishedModels.since_ms`)."""
    if (version := listing.version_of(name, slot)) is None:
        return 0
    log = changes(listing, name)
    since = began_ms(log, slot, version)
    if since is None:
        since = int(listing.modified_at(f"{name}/{slot}") * 1000)
    return max(since, began_ms(log, DEFAULT, listing.version_of(name, DEFAULT)) or 0)


def check_model(listing: Listing, name: str) -> None:
    """Check that a model exists.

    Raises:
        BundleError: There is no such model.
    """
    if name not in listing.models:
        raise BundleError(f"there is no model {name!r} in {listing.place}; `trueodds versions` lists them")


def check_is_published(listing: Listing, key: Key) -> None:
    """Check that a version is published.

    Raises:
        BundleError: There is no such version.
    """
    if key not in listing:
        path, there = "/".join((listing.place, *key)), sorted(listing.models.get(key[0], ()))
        others = f"; {key[0]} has the versions {quotes(there)}: give one in full, or" if there else ";"
        raise BundleError(f"there is no folder {path}{others} publish the bundle first: trueodds publish")
