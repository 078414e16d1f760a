"""The model directory: which bundles are published, and which of them is used for what.

Published bundles lie in MODELS/<name>/<version>/. Small files say who does what: MODELS/default (<name>/<version>)
answers when nothing is named, MODELS/<name>/default (<version>) when only the model is, and MODELS/<name>/shadow
(<version>) is scored on the same inputs without being answered. Each change of the last two is a line of
MODELS/<name>/history.jsonl (`pipeline.history`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from pipeline import history
from pipeline.bundle import CALIBRATOR, CARD, DEFAULT, MODEL, NAME, SHADOW, Bundle, BundleError

Append = Callable[[history.Change], None]


def publish(bundle: str | Path, models: str | Path, *, default: bool = True) -> Path:
    """Copy a bundle to MODELS/<name>/<version>/, written aside and renamed; `default`: MODELS/default and
    MODELS/<name>/default name it.

    Publishing the same content again changes nothing. Returns the published folder.

    Raises:
        BundleError: the bundle, or an already published folder of this version, is damaged.
        HistoryError: the name of this process's user is not a plain line.
    """
    loaded, models, who = Bundle.load(bundle), Path(models), history.check_reason("", None)
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
            _answer(target.parent, loaded.version, append, "publish", "published", who)
        _write(models / DEFAULT, f"{loaded.card.name}/{loaded.version}")
    return target


def promote(models: str | Path, name: str, version: str, *, why: str = "", who: str | None = None) -> None:
    """Let a published version answer for its model, and when nothing is named if its model does so now.

    If it was the shadow, there is none any more. `who` is this process's user unless it is said.

    Raises:
        BundleError: there is no such published version.
        HistoryError: `why` or `who` is not a plain line.
    """
    folder, who = find(models, name, version).parent, history.check_reason(why, who)
    with history.writing(folder) as append:
        _take_over(folder, version, append, "promote", why, who)


def rollback(models: str | Path, name: str, *, why: str = "", who: str | None = None) -> str:
    """Promote the version that answered before; once more: the one before that. Returns the version.

    Raises:
        BundleError: that version's folder is gone.
        HistoryError: nothing is known to have answered before, the history is damaged, or `why` or `who` is not a
            plain line.
    """
    folder, who = find_model(models, name), history.check_reason(why, who)
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
        HistoryError: `why` or `who` is not a plain line.
    """
    folder = find_model(models, name) if version is None else find(models, name, version).parent
    who = history.check_reason(why, who)
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


def _take_over(folder: Path, version: str, append: Append, what: history.What, why: str, who: str) -> None:
    models, name = folder.parent, folder.name
    _answer(folder, version, append, what, why, who)
    if role(models, name, SHADOW) == version:
        _shadow(folder, None, append, "it answers now", who, None)
    with contextlib.suppress(BundleError):
        if find_default(models).parent.name != name:
            return
    _write(models / DEFAULT, f"{name}/{version}")


def _answer(folder: Path, version: str, append: Append, what: history.What, why: str, who: str) -> None:
    before = role(folder.parent, folder.name, DEFAULT)
    _write(folder / DEFAULT, version)
    if before != version:
        append(history.Change(what, before, version, why, who, history.now()))


def _shadow(folder: Path, version: str | None, append: Append, why: str, who: str, since_ms: int | None) -> None:
    before = role(folder.parent, folder.name, SHADOW)
    if version is None:
        (folder / SHADOW).unlink(missing_ok=True)
    else:
        _write(folder / SHADOW, version)
    if before != version:
        append(history.Change("shadow", before, version, why, who, history.now(), since_ms))


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
