"""Changing the folder of published models: publications, and who answers or shadows."""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from trueodds.bundle import locks
from trueodds.bundle.audit_log import Action, Append, AuditLog, AuditLogError, Reason, previous
from trueodds.bundle.bundle import Bundle, BundleError
from trueodds.bundle.card import NAME
from trueodds.bundle.changing import changing, record
from trueodds.bundle.contents import DEFAULT, IDENTITY, RECALIBRATED, SHADOW, WAITING, Role, identity_of
from trueodds.bundle.copying import copy_bundle, loaded
from trueodds.bundle.published import PublishedModels
from trueodds.bundle.role_files import write_line
from trueodds.bundle.shadows import Slot


@dataclass(frozen=True)
class ModelFolder(PublishedModels):
    """The folder of published models, with the verbs that change it. It is made by the first `publish`.

    All verbs take `why` and `who` for the audit log, plain lines; `who` is this process's user unless it is said.
    Several processes may use one folder at once.
    """

    NOTICE_SECONDS: ClassVar[float] = 5.0
    """In which a service must have noticed what is changed here."""

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
        """Copy a bundle to MODELS/<name>/<version>/, written aside and renamed, and give it a role for its own model.

        `default`: it answers for its model. `shadow`: it is scored beside what answers for its model; where nothing
        does, it answers; where another net is the shadow, it waits until that place is free, in place of what waited
        before, unless it is to `displace` the shadow. None: it can only be asked by its version. Calls that name no
        model go on to be answered by the model that answers them now, unless there is none or `unnamed` says that this
        one shall.

        Publishing the same content again copies nothing. Returns the published folder. Where it fails, or is killed,
        roles and logs are as before, or as after; a copy that is whole may stay, without a role: publish again.

        Raises:
            BundleError: the bundle, or an already published folder of this version, is damaged.
            AuditLogError: `why` or `who` is not a plain line.
        """
        Reason.of(why, who)
        source = loaded(bundle)
        name, version = source.card.name, source.version
        target = self.path / name / version
        if target.exists():
            try:
                Bundle.load(target)
            except BundleError as error:
                raise BundleError(f"{error}. Remove {target} and publish again") from None
        else:
            copy_bundle(source, target)
        self.appoint(name, version, role, displace=displace, unnamed=unnamed, why=why, who=who)
        return target

    def appoint(
        self,
        name: str,
        version: str,
        role: Literal["default", "shadow"] | None,
        *,
        displace: bool = False,
        unnamed: bool = False,
        why: str = "",
        who: str | None = None,
    ) -> None:
        """Give a version that was just published its role, as `publish` describes.

        Raises:
            AuditLogError: `why` or `who` is not a plain line.
        """
        reason = Reason.of(why, who)
        self.identify()
        if role is not None:
            with changing(self.path / name) as append:
                answering = self._there(name, DEFAULT)
                if role == DEFAULT or answering is None:
                    self._take_over(name, version, "publish", reason, append)
                elif answering != version and self._there(name, SHADOW) != version:
                    waits = self._there(name, SHADOW) is not None and not displace
                    self._set(name, WAITING if waits else SHADOW, version, reason, append)
        if unnamed:
            self.set_default(name, why=why, who=who)

    def promote(
        self, name: str, version: str, *, why: str = "", who: str | None = None, beside: str | None = None
    ) -> None:
        """Let a published version answer for its model, and when nothing is named if its model does so now.

        If it was the shadow or waited, it is no more; a shadow's place goes to the version that waits. A calibrator
        that is judged beside another version than this one is withdrawn: its fit was for that.

        Raises:
            BundleError: there is no such published version, or `beside` is given and no longer answers.
            AuditLogError: `why` or `who` is not a plain line.
        """
        folder, reason = self.version_folder(name, version).parent, Reason.of(why, who)
        with changing(folder) as append:
            self._check_beside(name, beside)
            self._take_over(name, version, "promote", reason, append)

    def roll_back(self, name: str, *, why: str = "", who: str | None = None) -> str:
        """Promote the version that answered before; once more: the one before that. Returns the version.

        Raises:
            BundleError: that version's folder is gone.
            AuditLogError: nothing is known to have answered before, the log is damaged, or `why` or `who` is not a
                plain line.
        """
        log, reason = AuditLog(self._model(name)), Reason.of(why, who)
        with changing(log.folder) as append:
            current = self.version_of(name, DEFAULT)
            version = previous(log.changes(), current)
            if version is None:
                cure = "name it: trueodds promote"
                raise AuditLogError(f"nothing is known to have answered for {name} before {current}; {cure}")
            self.version_folder(name, version)
            self._take_over(name, version, "rollback", reason, append)
        return version

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
            BundleError: there is no such published version, it is the one that answers, or `beside` is given and no
                longer answers.
            AuditLogError: `why` or `who` is not a plain line.
        """
        folder, reason = self.version_folder(name, version).parent, Reason.of(why, who)
        with changing(folder) as append:
            self._check_beside(name, beside)
            if self.version_of(name, DEFAULT) == version:
                raise BundleError(f"{name}/{version} answers; allowed is another version, to be judged beside it")
            self._set(name, slot, version, reason, append, since_ms)

    def withdraw(self, name: str, slot: Slot = SHADOW, *, why: str = "", who: str | None = None) -> None:
        """Let no version be in a slot of a model; a net that waits for that of the shadow gets it.

        Raises:
            BundleError: there is no such model.
            AuditLogError: `why` or `who` is not a plain line.
        """
        folder, reason = self._model(name), Reason.of(why, who)
        with changing(folder) as append:
            self._set(name, slot, None, reason, append)

    def set_default(self, name: str, *, why: str = "", who: str | None = None) -> str:
        """Let a model answer calls that name none, by the version that answers for it. Returns that version.

        Raises:
            BundleError: there is no such model, or no version answers for it.
            AuditLogError: `why` or `who` is not a plain line.
        """
        return self._set_default(name, "default", Reason.of(why, who))

    def roll_back_default(self, *, why: str = "", who: str | None = None) -> str:
        """Let the model answer calls that name none that did so before; once more: the one before that.

        Returns its name.

        Raises:
            BundleError: that model is gone.
            AuditLogError: nothing is known to have answered before, the log is damaged, or `why` or `who` is not a
                plain line.
        """
        current = self.default_model()
        name = previous(self.changes(), current)
        if name is None:
            raise AuditLogError(
                f"no other model is known to have answered calls that name none before {current or 'now'}; name it:"
                " trueodds default MODEL"
            )
        self._set_default(name, "rollback", Reason.of(why, who))
        return name

    def check_writable(self) -> None:
        """Raises OSError where nothing can be published here."""
        with tempfile.TemporaryFile(dir=self.path):
            pass

    def identify(self) -> str:
        """The identity that tells this folder from others; made now if it has none.

        Raises:
            OSError: it has none and cannot be written.
        """
        if (identity := identity_of(self.path)) is None:
            with AuditLog(self.path).writing():
                if (identity := identity_of(self.path)) is None:
                    write_line(self.path / IDENTITY, identity := secrets.token_hex(8))
        return identity

    def lock(self, name: str, purpose: str, wait: Callable[[], object] | None = None) -> AbstractContextManager[None]:
        """Hold a model against others with the same purpose; see `trueodds.bundle.locks.lock`.

        Raises:
            BundleError: there is no such model.
            BusyError: another process holds it, and there is no `wait`.
        """
        return locks.lock(self._model(name) / f".{purpose}.lock", wait)

    def _there(self, name: str, role: Role) -> str | None:
        """The version that has a role for the model, if its folder is there."""
        version = self.version_of(name, role) or ""
        return version if re.fullmatch(NAME, version) and (self.path / name / version).is_dir() else None

    def _check_beside(self, name: str, beside: str | None) -> None:
        if beside is not None and (now := self.version_of(name, DEFAULT)) != beside:
            raise BundleError(f"{name}/{beside} no longer answers, {now} does: somebody else decided. Start again")

    def _take_over(self, name: str, version: str, action: Action, reason: Reason, append: Append) -> None:
        before = self.version_of(name, DEFAULT)
        write_line(self.path / name / DEFAULT, version)
        record(self.path / name, append, action, before, version, reason)
        for role in (WAITING, SHADOW, RECALIBRATED):
            if self.version_of(name, role) == version:
                self._set(name, role, None, Reason("it answers now", reason.who), append)
        if before != version and self.version_of(name, RECALIBRATED) is not None:
            why = f"{version} answers now; its calibrator was fitted beside {before}"
            self._set(name, RECALIBRATED, None, Reason(why, reason.who), append)
        self._keep_default(name, version, Reason("the first model here", reason.who))

    def _set(
        self,
        name: str,
        role: Literal["shadow", "recalibrated", "waiting"],
        version: str | None,
        reason: Reason,
        append: Append,
        since_ms: int | None = None,
    ) -> None:
        before, file = self.version_of(name, role), self.path / name / role
        if version is None:
            file.unlink(missing_ok=True)
        else:
            write_line(file, version)
        record(self.path / name, append, role, before, version, reason, since_ms)
        if role != SHADOW or (waiting := self._there(name, WAITING)) is None:
            return
        if version is None:
            self._set(name, SHADOW, waiting, Reason(f"it waited behind {before}", reason.who), append)
        elif version == waiting:
            self._set(name, WAITING, None, Reason("it is the shadow now", reason.who), append)

    def _keep_default(self, name: str, version: str, reason: Reason) -> None:
        """Let MODELS/default follow the version that answers for its model; without a default, `name` becomes it."""
        with changing(self.path) as append:
            before = self.default_model()
            if before in (None, name):
                write_line(self.path / DEFAULT, f"{name}/{version}")
                record(self.path, append, "default", before, name, reason)

    def _set_default(self, name: str, action: Action, reason: Reason) -> str:
        with AuditLog(self._model(name)).writing():  # no version takes over meanwhile
            version = self._there(name, DEFAULT)
            if version is None:
                raise BundleError(f"no version answers for {name} in {self.path}; name one: trueodds promote")
            with changing(self.path) as append:
                before = self.default_model()
                write_line(self.path / DEFAULT, f"{name}/{version}")
                record(self.path, append, action, before, name, reason)
        return version
