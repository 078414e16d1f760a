"""Changes of roles as functions of a listing: which small files are written for them, in which order."""

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
    log_of,
    mended,
    parse,
    previous,
    recorded,
    role_of,
)
from trueodds.bundle.bundle import BundleError
from trueodds.bundle.contents import (
    DEFAULT,
    IDENTITY,
    RECALIBRATED,
    SHADOW,
    WAITING,
    Key,
    Listing,
    Role,
    Slot,
    Step,
)


class Draft:
    """A listing with the changes that a verb has made to it. `steps` are these, in the order of their writing.

    Each role's file comes before its line in the log. Where a writer dies between the two, the next change of the same
    role appends the line.
    """

    def __init__(self, before: Listing) -> None:
        self._before, self._texts = before, dict[str, bytes | None]()
        self.steps: list[Step] = []
        self.now = replace(before, read=self._read)
        """The listing with all changes so far."""

    def identify(self) -> str:
        """The identity of the place, made now if it has none."""
        if (identity := self.now.identity()) is None:
            identity = secrets.token_hex(8)
            self._write(IDENTITY, identity)
        return identity

    def appoint(self, key: Key, role: Literal["default", "shadow"], reason: Reason, *, displace: bool) -> None:
        """Give a version that was just published its role, as `PublishedModels.publish` describes."""
        name, version = key
        answering, shadow = self.now.present(name, DEFAULT), self.now.present(name, SHADOW)
        if role == DEFAULT or answering is None:
            self.take_over(key, "publish", reason)
        elif version not in (answering, shadow):
            waits = shadow is not None and not displace
            self.set(name, WAITING if waits else SHADOW, version, reason)

    def roll_back(self, name: str, reason: Reason) -> str:
        """Let the version answer that did before. Returns it.

        Raises:
            BundleError: that version is gone.
            AuditLogError: nothing is known to have answered before, or the log is damaged.
        """
        current = self.now.version_of(name, DEFAULT)
        version = previous(changes(self.now, name), current)
        if version is None:
            cure = "name it: trueodds promote"
            raise AuditLogError(f"nothing is known to have answered for {name} before {current}; {cure}")
        check_published(self.now, (name, version))
        self.take_over((name, version), "rollback", reason)
        return version

    def take_over(self, key: Key, action: Action, reason: Reason) -> None:
        """Let a version answer for its model; see `PublishedModels.promote`."""
        name, version = key
        before = self.now.version_of(name, DEFAULT)
        self._write(f"{name}/{DEFAULT}", version)
        self._record(name, action, before, version, reason)
        for role in (WAITING, SHADOW, RECALIBRATED):
            if self.now.version_of(name, role) == version:
                self.set(name, role, None, Reason("it answers now", reason.who))
        if before != version and self.now.version_of(name, RECALIBRATED) is not None:
            why = f"{version} answers now; its calibrator was fitted beside {before}"
            self.set(name, RECALIBRATED, None, Reason(why, reason.who))
        # MODELS/default follows the version that answers for its model; without a default, this model becomes it.
        if self.now.default_model() in (None, name):
            self._set_default(key, "default", Reason("the first model here", reason.who))

    def set(
        self,
        name: str,
        role: Literal["shadow", "recalibrated", "waiting"],
        version: str | None,
        reason: Reason,
        since_ms: int | None = None,
    ) -> None:
        """Give a version a role that does not answer, or empty the role; a free shadow's place goes to who waits."""
        before = self.now.version_of(name, role)
        self._write(f"{name}/{role}", version)
        self._record(name, role, before, version, reason, since_ms)
        if role != SHADOW or (waiting := self.now.present(name, WAITING)) is None:
            return
        if version is None:
            self.set(name, SHADOW, waiting, Reason(f"it waited behind {before}", reason.who))
        elif version == waiting:
            self.set(name, WAITING, None, Reason("it is the shadow now", reason.who))

    def set_default(self, name: str, action: Action, reason: Reason) -> str:
        """Let a model answer calls that name none, by the version that answers for it. Returns that version.

        Raises:
            BundleError: there is no such model, or no version answers for it.
        """
        check_model(self.now, name)
        if (version := self.now.present(name, DEFAULT)) is None:
            raise BundleError(f"no version answers for {name} in {self.now.place}; name one: trueodds promote")
        self._set_default((name, version), action, reason)
        return version

    def roll_back_default(self, reason: Reason) -> str:
        """Let the model answer calls that name none that did before. Returns its name.

        Raises:
            BundleError: that model is gone.
            AuditLogError: nothing is known to have answered before, or the log is damaged.
        """
        current = self.now.default_model()
        name = previous(changes(self.now, None), current)
        if name is None:
            raise AuditLogError(
                f"no other model is known to have answered calls that name none before {current or 'now'}; name it:"
                " trueodds default MODEL"
            )
        self.set_default(name, "rollback", reason)
        return name

    def check_beside(self, name: str, beside: str | None) -> None:
        """Raises BundleError where a version is given that no longer answers."""
        if beside is not None and (now := self.now.version_of(name, DEFAULT)) != beside:
            raise BundleError(f"{name}/{beside} no longer answers, {now} does: somebody else decided. Start again")

    def _set_default(self, key: Key, action: Action, reason: Reason) -> None:
        before = self.now.default_model()
        self._write(DEFAULT, "/".join(key))
        self._record(None, action, before, key[0], reason)

    def _record(
        self,
        model: str | None,
        action: Action,
        before: str | None,
        after: str | None,
        reason: Reason,
        since_ms: int | None = None,
    ) -> None:
        """Append to a log what is a change, or was one whose process died before its line."""
        log = self.now.read(log_of(model)) or b""
        if before == after:
            before = recorded(log, action, after)
        if before != after:
            when = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = Change(action, before, after, reason.why, reason.who, when, since_ms).line()
            self._step(log_of(model), mended(log) + line.encode() + b"\n")

    def _write(self, name: str, line: str | None) -> None:
        self._step(name, None if line is None else f"{line}\n".encode())

    def _step(self, name: str, data: bytes | None) -> None:
        self._texts[name] = data
        self.steps.append((name, data))

    def _read(self, name: str) -> bytes | None:
        return self._texts[name] if name in self._texts else self._before.read(name)


def changes(listing: Listing, model: str | None) -> list[Change]:
    """The audit log of a model's versions, or of the model that answers calls that name none.

    Raises:
        AuditLogError: a line that is no change.
    """
    name = log_of(model)
    return parse(listing.read(name) or b"", f"{listing.place}/{name}")


def since_ms(listing: Listing, name: str, slot: Slot) -> int:
    """The time from which on answers count for a slot's version; see `PublishedModels.since_ms`."""
    if (version := listing.version_of(name, slot)) is None:
        return 0
    log = changes(listing, name)
    since = _since_ms(log, slot, version)
    if since is None:
        since = int(listing.modified(f"{name}/{slot}") * 1000)
    return max(since, _since_ms(log, DEFAULT, listing.version_of(name, DEFAULT)) or 0)


def _since_ms(log: list[Change], role: Role, version: str | None) -> int | None:
    """When a version got the role that it has, in Unix milliseconds; None: the log does not say."""
    for change in reversed(log):
        if role_of(change.action) == role:
            if change.after != version:
                return None
            return change.since_ms or int(datetime.fromisoformat(change.when).timestamp() * 1000)
    return None


def check_model(listing: Listing, name: str) -> None:
    """Raises BundleError where there is no such model."""
    if name not in listing.models:
        raise BundleError(f"there is no model {name!r} in {listing.place}; trueodds versions lists them")


def check_published(listing: Listing, key: Key) -> None:
    """Raises BundleError where there is no such published version."""
    if key not in listing:
        path = "/".join((listing.place, *key))
        raise BundleError(f"there is no folder {path}; publish the bundle first: trueodds publish")
