"""Who answered when, and why it changed: a line a change, only ever appended to.

MODELS/<name>/history.jsonl is of a model's versions, MODELS/history.jsonl of the model that answers calls that name
none.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal, get_args

from trueodds.errors import UserError
from trueodds.texts import line_problem

HISTORY = "history.jsonl"

What = Literal["publish", "promote", "rollback", "shadow", "default"]


class HistoryError(UserError, ValueError):
    """A history that cannot be read or must not be written so, or that knows of no way back."""


class BusyError(RuntimeError):
    """Another process is at work in the folder."""


@dataclass(frozen=True)
class Change:
    """One line. `shadow` is about the shadow, the others about who answers; None: none did, or does.

    `before` and `after` are versions, in MODELS/history.jsonl models.
    """

    what: What
    before: str | None
    after: str | None
    why: str
    who: str
    when: str
    """ISO 8601, UTC."""
    since_ms: int | None = None
    """Of a shadow: answers given from then on (Unix milliseconds, the service's clock) were not known to its fit."""


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def whoever() -> str:
    """The user of this process; in a container without a name for it, its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def check_reason(why: str, who: str | None) -> str:
    """Who is to be named for a change: `who`, or this process's user.

    Raises:
        HistoryError: one of them is not a plain line.
    """
    who = who or whoever()
    for name, text in (("why", why), ("who", who)):
        if problem := line_problem(text):
            raise HistoryError(f"{name} {problem}")
    return who


def read(folder: Path) -> list[Change]:
    """The changes of a model in their order; none if nothing was ever written.

    Raises:
        HistoryError: a line that is none.
    """
    file = folder / HISTORY
    try:
        lines = file.read_bytes().decode().split("\n")  # splitlines would also split a reason at U+2028
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise HistoryError(f"{file} is not text ({error}); move it away and promote what shall answer") from None
    return [_parsed(line, f"{file}, line {number}") for number, line in enumerate(lines, 1) if line]


def _parsed(line: str, where: str) -> Change:
    try:
        tree: dict[str, Any] = json.loads(line)
        change = Change(**{"before": tree.pop("from"), "after": tree.pop("to"), **tree})
        if change.what not in get_args(What):
            raise ValueError(f"what is {change.what!r}")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HistoryError(f"{where} is no change ({error}); repair the line, or move the file away") from None
    return change


def answered_before(changes: list[Change], now_answers: str | None) -> str | None:
    """The version to roll back to, as an undo: a rollback takes back what it undid; None: there is none."""
    done: list[str] = []
    for change in changes:
        if change.what == "shadow":
            continue
        if change.what == "rollback" and change.after in done:
            del done[len(done) - done[::-1].index(change.after) :]
            continue
        done += [v for v in (change.before, change.after) if v is not None and done[-1:] != [v]]
    if done and done[-1] == now_answers:
        done.pop()
    return done[-1] if done else None


@contextmanager
def writing(folder: Path) -> Iterator[Callable[[Change], None]]:
    """Hold the history against all other writers; what it yields appends one change, on the disk when it returns."""
    with (folder / HISTORY).open("ab") as file:
        _lock(file)

        def append(change: Change) -> None:
            fields = asdict(change)
            tree = {"when": fields.pop("when"), "what": fields.pop("what")}
            tree |= {"from": fields.pop("before"), "to": fields.pop("after")}
            tree |= {key: value for key, value in fields.items() if value is not None}
            file.write(json.dumps(tree, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

        yield append


@contextmanager
def alone(folder: Path, name: str, wait: Callable[[], object] | None = None) -> Iterator[None]:
    """Hold `folder`/.<name>.lock, which the holder's death frees; `wait` is called once if another process holds it.

    Raises:
        BusyError: another process holds it, and there is no `wait`.
    """
    with (folder / f".{name}.lock").open("ab") as file:
        if not _lock(file, block=False):
            if wait is None:
                raise BusyError(f"another process holds {file.name}")
            wait()
            _lock(file)
        yield


def _lock(file: IO[bytes], *, block: bool = True) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl

    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | (0 if block else fcntl.LOCK_NB))
        return True
    return False
