"""Audit logs of roles: each line is a change, with its time, its reason and its author. A log only grows.

MODELS/<name>/history.jsonl is of a model's versions, MODELS/history.jsonl of the model that answers calls that name
none. Nothing here reads or writes a file: a log is its bytes.
"""

from __future__ import annotations

import getpass
import json
import os
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self, get_args

from trueodds.bundle.contents import DEFAULT, ROLES, Role
from trueodds.errors import UserError
from trueodds.texts import line_problem

FILE = "history.jsonl"

Action = Literal["publish", "promote", "rollback", "shadow", "recalibrated", "waiting", "default"]


def role_of(action: Action) -> Role:
    """Return the role that an action gives or takes: `default`, unless the action is called as its role is."""
    return action if action in ROLES else DEFAULT


class AuditLogError(UserError, ValueError):
    """A log that cannot be read, a line that must not be written, or a way back that the log does not know."""


@dataclass(frozen=True)
class Reason:
    """Why something is changed, and who changes it.

    Raises:
        AuditLogError: one of them is not a plain line.
    """

    why: str
    who: str

    def __post_init__(self) -> None:
        for name, text in (("why", self.why), ("who", self.who)):
            if problem := line_problem(text):
                raise AuditLogError(f"{name} {problem}")

    @classmethod
    def of(cls, why: str, who: str | None) -> Self:
        """`who` is the user of this process where it is None or empty."""
        return cls(why, who or user())


@dataclass(frozen=True)
class Change:
    """One line. `shadow`, `recalibrated` and `waiting` are about these roles, the others about who answers.

    None: none did, or does.

    `before` and `after` are versions, in MODELS/history.jsonl models.
    """

    action: Action
    before: str | None
    after: str | None
    why: str
    who: str
    when: str
    """ISO 8601, UTC."""
    since_ms: int | None = None
    """Time from which answers were not known to the fit of a version to be judged (Unix milliseconds, the service's
    clock)."""

    @classmethod
    def parse(cls, line: str) -> Self:
        """Parse the change of a line.

        Raises:
            ValueError, TypeError, KeyError, AttributeError: the line is no change.
        """
        tree: dict[str, Any] = json.loads(line)
        change = cls(**{"action": tree.pop("what"), "before": tree.pop("from"), "after": tree.pop("to"), **tree})
        if change.action not in get_args(Action):
            raise ValueError(f"what is {change.action!r}")
        return change

    def line(self) -> str:
        """Write the change as a line, without its end."""
        tree = {"when": self.when, "what": self.action, "from": self.before, "to": self.after}
        tree |= {"why": self.why, "who": self.who}
        since = {} if self.since_ms is None else {"since_ms": self.since_ms}
        return json.dumps({**tree, **since}, ensure_ascii=False)


def log_of(model: str | None) -> str:
    """Name the log of a model's versions, or of the model that answers calls without a model."""
    return FILE if model is None else f"{model}/{FILE}"


def mended(log: bytes) -> bytes:
    """End the last line of a log, or remove it if its writer died within it, so that lines can be appended."""
    end = log.rfind(b"\n") + 1
    if end == len(log):
        return log
    return log + b"\n" if _is_change(log[end:]) else log[:end]


def recorded(log: bytes, action: Action, unknown: str | None) -> str | None:
    """Return the version with the role of an action, by the last line about it; `unknown` if the log is damaged."""
    try:
        changes = parse(log, FILE)
    except AuditLogError:
        return unknown
    of_role = [change.after for change in changes if role_of(change.action) == role_of(action)]
    return of_role[-1] if of_role else None


def _is_change(line: bytes) -> bool:
    try:
        Change.parse(line.decode())
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    return True


def parse(log: bytes, place: str) -> list[Change]:
    """Parse all changes of a log in their order. `place` names it in errors.

    A last line without an end is being written, or was when its writer died.

    Raises:
        AuditLogError: a line that is no change.
    """
    try:
        lines = mended(log).decode().split("\n")  # splitlines would also split a reason at U+2028
    except UnicodeDecodeError as error:
        cure = "move it away and promote what shall answer"
        raise AuditLogError(f"{place} is not text ({error}); {cure}") from None
    return [_parsed(line, f"{place}, line {number}") for number, line in enumerate(lines, 1) if line]


def _parsed(line: str, place: str) -> Change:
    try:
        return Change.parse(line)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        cure = "repair the line, or move the file away"
        raise AuditLogError(f"{place} is no change ({error}); {cure}") from None


def previous(changes: list[Change], current: str | None) -> str | None:
    """Return the version that answered before `current`. A rollback takes back what it undid. None: it is not known."""
    stack: list[str] = []
    for change in changes:
        if role_of(change.action) != DEFAULT:
            continue
        if change.action == "rollback" and change.after in stack:
            del stack[len(stack) - stack[::-1].index(change.after) :]
            continue
        stack += [v for v in (change.before, change.after) if v is not None and stack[-1:] != [v]]
    if stack and stack[-1] == current:
        stack.pop()
    return stack[-1] if stack else None


def began_ms(changes: list[Change], role: Role, version: str | None) -> int | None:
    """Return when a version got the role that it has (Unix milliseconds). None: the log does not say."""
    for change in reversed(changes):
        if role_of(change.action) == role:
            if change.after != version:
                return None
            return change.since_ms or int(datetime.fromisoformat(change.when).timestamp() * 1000)
    return None


def user() -> str:
    """Return the user of this process; in a container without a name for it, its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
