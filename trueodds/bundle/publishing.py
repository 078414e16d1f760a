"""Changes of the model directory (`trueodds.bundle.model_folder`): publishing, and who answers or shadows.

Each change of a role is a line of a log (`trueodds.bundle.audit_log`): MODELS/<name>/history.jsonl for a model's
versions, MODELS/history.jsonl for the model that answers calls that name none.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from trueodds.bundle import audit_log
from trueodds.bundle.bundle import CALIBRATOR, CARD, DEFAULT, MODEL, NAME, SHADOW, Bundle, BundleError
from trueodds.bundle.model_folder import IDENTITY, Role, default_model, find, find_model, identity, role

Append = Callable[[audit_log.Change], None]


def publish(
    bundle: str | Path,
    models: str | Path,
    role: Role | None = "default",
    *,
    unnamed: bool = False,
    why: str = "published",
    who: str | None = None,
) -> Path:
    """Copy a bundle to MODELS/<name>/<version>/, written aside and renamed, and give it a role for its own model.

    `default`: it answers for its model. `shadow`: it is scored beside what answers for its model; where nothing does,
    it answers. None: it can only be asked by its version. Calls that name no model go on to be answered by the model
    that answers them now, unless there is none or `unnamed` says that this one shall.

    Publishing the same content again copies nothing. Returns the published folder.

    Raises:
        BundleError: the bundle, or an already published folder of this version, is damaged.
        HistoryError: `why` or `who` is not a plain line.
    """
    loaded, models, who = Bundle.load(bundle), Path(models), audit_log.check_reason(why, who)
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
        _copy(loaded, target)
    identify(models)
    name, version = loaded.card.name, loaded.version
    if role is not None:
        with audit_log.writing(target.parent) as append:
            if role == SHADOW and (now := _answering(target.parent)) is not None:
                if now != version:
                    _shadow(target.parent, version, append, why, who, None)
            else:
                _take_over(target.parent, version, append, "publish", why, who)
    if unnamed:
        set_default(models, name, why=why, who=who)
    return target


def _copy(bundle: Bundle, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".publishing-", dir=target.parent))
    try:
        for name in (MODEL, CALIBRATOR, CARD):
            shutil.copyfile(bundle.directory / name, aside / name)
        aside.chmod(0o755)  # mkdtemp's 0700 would hide it from a service under another user
        aside.rename(target)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not target.exists():  # another publisher of the same content may have been first
            raise


def identify(models: str | Path) -> str:
    """What tells this model directory from others; made now if it has none.

    Raises:
        OSError: it has none and cannot be written.
    """
    models = Path(models)
    if (known := identity(models)) is None:
        with audit_log.writing(models):
            if (known := identity(models)) is None:
                _write(models / IDENTITY, known := secrets.token_hex(8))
    return known


def set_default(models: str | Path, name: str, *, why: str = "", who: str | None = None) -> str:
    """Let a model answer calls that name none, by the version that answers for it. Returns that version.

    Raises:
        BundleError: there is no such model, or no version answers for it.
        HistoryError: `why` or `who` is not a plain line.
    """
    return _take_default(Path(models), name, "default", why, who)


def rollback_default(models: str | Path, *, why: str = "", who: str | None = None) -> str:
    """Let the model answer calls that name none that did so before; once more: the one before that. Returns its name.

    Raises:
        BundleError: that model is gone.
        HistoryError: nothing is known to have answered before, the history is damaged, or `why` or `who` is not a
            plain line.
    """
    models = Path(models)
    now = default_model(models)
    name = audit_log.answered_before(audit_log.read(models), now)
    if name is None:
        raise audit_log.HistoryError(
            f"no other model is known to have answered calls that name none before {now or 'now'}; name it:"
            " python -m pipeline default MODEL"
        )
    _take_default(models, name, "rollback", why, who)
    return name


def promote(models: str | Path, name: str, version: str, *, why: str = "", who: str | None = None) -> None:
    """Let a published version answer for its model, and when nothing is named if its model does so now.

    If it was the shadow, there is none any more. `who` is this process's user unless it is said.

    Raises:
        BundleError: there is no such published version.
        HistoryError: `why` or `who` is not a plain line.
    """
    folder, who = find(models, name, version).parent, audit_log.check_reason(why, who)
    with audit_log.writing(folder) as append:
        _take_over(folder, version, append, "promote", why, who)


def rollback(models: str | Path, name: str, *, why: str = "", who: str | None = None) -> str:
    """Promote the version that answered before; once more: the one before that. Returns the version.

    Raises:
        BundleError: that version's folder is gone.
        HistoryError: nothing is known to have answered before, the history is damaged, or `why` or `who` is not a
            plain line.
    """
    folder, who = find_model(models, name), audit_log.check_reason(why, who)
    with audit_log.writing(folder) as append:
        now = role(models, name, DEFAULT)
        version = audit_log.answered_before(audit_log.read(folder), now)
        if version is None:
            raise audit_log.HistoryError(
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
        HistoryError: `why` or `who` is not a plain line.
    """
    folder = find_model(models, name) if version is None else find(models, name, version).parent
    who = audit_log.check_reason(why, who)
    with audit_log.writing(folder) as append:
        _shadow(folder, version, append, why, who, since_ms)


def _take_over(folder: Path, version: str, append: Append, what: audit_log.What, why: str, who: str) -> None:
    before = role(folder.parent, folder.name, DEFAULT)
    _write(folder / DEFAULT, version)
    if before != version:
        append(audit_log.Change(what, before, version, why, who, audit_log.now()))
    if role(folder.parent, folder.name, SHADOW) == version:
        _shadow(folder, None, append, "it answers now", who, None)
    _name_default(folder.parent, folder.name, version, False, "default", "the first model here", who)


def _take_default(models: Path, name: str, what: audit_log.What, why: str, who: str | None) -> str:
    folder, who = find_model(models, name), audit_log.check_reason(why, who)
    with audit_log.writing(folder):  # no version takes over meanwhile
        version = _answering(folder)
        if version is None:
            raise BundleError(f"no version answers for {name} in {models}; name one: python -m pipeline promote")
        _name_default(models, name, version, True, what, why, who)
    return version


def _name_default(models: Path, name: str, version: str, take: bool, what: audit_log.What, why: str, who: str) -> None:
    """Keep MODELS/default at the version that answers for its model; another model's only if it shall `take` over."""
    with audit_log.writing(models) as append:
        before = default_model(models)
        if before in (None, name) or take:
            _write(models / DEFAULT, f"{name}/{version}")
        if before is None or (take and before != name):
            append(audit_log.Change(what, before, name, why, who, audit_log.now()))


def _answering(folder: Path) -> str | None:
    """The version that answers for the model, if its folder is there."""
    version = role(folder.parent, folder.name, DEFAULT) or ""
    return version if re.fullmatch(NAME, version) and (folder / version).is_dir() else None


def _shadow(folder: Path, version: str | None, append: Append, why: str, who: str, since_ms: int | None) -> None:
    before = role(folder.parent, folder.name, SHADOW)
    if version is None:
        (folder / SHADOW).unlink(missing_ok=True)
    else:
        _write(folder / SHADOW, version)
    if before != version:
        append(audit_log.Change("shadow", before, version, why, who, audit_log.now(), since_ms))


def _write(path: Path, line: str) -> None:
    aside = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    aside.write_text(line + "\n", encoding="utf-8")
    aside.replace(path)
