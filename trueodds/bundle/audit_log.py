"""Audit logs of roles. Each line is a change with its time, reason and author. A log only grows.

MODELS/<name>/history.jsonl is about a model's versions. MODELS/history.jsonl is about the default model, which answers
requests that name none. This module does no I/O: a log is a byte string.
"""

from __future__ import annotations

import getpass
import json
import os
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self, get_args

from trueodds.errors import UserError
from trueodds.processes.choices import DEFAULT, ROLES, Role
from trueodds.texts import line_problem

FILE = "history.jsonl"

Action = Literal["publish", "promote", "rollback", "shadow", "recalibrated", "waiting", "default"]
"""Kinds of changes."""


def role_of(action: Action) -> Role:
    """Return the role that an action is about: the role of its name, else `default`."""
    return action if action in ROLES else DEFAULT


class AuditLogError(UserError, ValueError):
    """The log is damaged, a line is not allowed, or the log does not know an earlier version to return to."""


@dataclass(frozen=True)
class Reason:
    """Reason and author of a change.

    Raises:
        AuditLogError: One of them is not a single line of text.
    """

    why: str
    who: str

    def __post_init__(self) -> None:
        for name, text in (("why", self.why), ("who", self.who)):
            if problem := line_problem(text):
                raise AuditLogError(f"{name} {problem}")

    @classmethod
    def of(cls, why: str, who: str | None) -> Self:
        """Return the reason with its author; the default author is the user of this process."""
        return cls(why, who or user())


@dataclass(frozen=True)
class Change:
    """A line of the log.

    The actions `shadow`, `recalibrated` and `waiting` are about these roles, all others about the default.

    `before` and `after` are versions; in MODELS/history.jsonl they are models. None means no version.
    """

    action: Action
    before: str | None
    after: str | None
    why: str
    who: str
    when: str
    """Time in ISO 8601, UTC."""
    since_ms: int | None = None
    """Time from which on answers were unknown to the fit of the judged version (Unix ms, the service's clock)."""

    @classmethod
    def parse(cls, line: str) -> Self:
        """Parse a line.

        Raises:
            ValueError, TypeError, KeyError, AttributeError: The line is not a change.
        """
        tree: dict[str, Any] = json.loads(line)
        change = cls(**{"action": tree.pop("what"), "before": tree.pop("from"), "after": tree.pop("to"), **tree})
        if change.action not in get_args(Action):
            raise ValueError(f"what is {change.action!r}")
        return change

    def line(self) -> str:
        """Return the change as a line, without a line break."""
        tree = {"when": self.when, "what": self.action, "from": self.before, "to": self.after}
        tree |= {"why": self.why, "who": self.who}
        since = {} if self.since_ms is None else {"since_ms": self.since_ms}
        return json.dumps({**tree, **since}, ensure_ascii=False)


def log_of(model: str | None) -> str:
    """Return the name of a model's log, or of the log of the default model."""
    return FILE if model is None else f"{model}/{FILE}"


def repair(log: bytes) -> bytes:
    """End the last line of a log, or remove it if its writer died while writing it. Then lines can be appended."""
    end = log.rfind(b"\n") + 1
    if end == len(log):
        return log
    return log + b"\n" if _is_change(log[end:]) else log[:end]


def last_version(log: bytes, action: Action, unknown: str | None) -> str | None:
    """Return the version that the last line about an action's role gives to it; `unknown` if the log is damaged."""
    try:
        changes = parse(log, FILE)
    except AuditLogError:
        return unknown
    of_role = [change.after for change in changes if role_of(change.action) == role_of(action)]
    return of_role[-1] if of_role else None


def _is_change(line: bytes) -> bool:
    """Return whether a line is a change."""
    try:
        Change.parse(line.decode())
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    return True


def parse(log: bytes, place: str) -> list[Change]:
    """Parse all changes of a log, in their order. `place` names the log in errors.

    A last line without a line break is still being written, or its writer died.

    Raises:
        AuditLogError: A line is not a change.
    """
    try:
        lines = repair(log).decode().split("\n")  # splitlines would also split a reason at U+2028
    except UnicodeDecodeError as error:
        cure = "move the file away and promote the version that should answer"
        raise AuditLogError(f"{place} is not text ({error}); {cure}") from None
    return [_parse_line(line, f"{place}, line {number}") for number, line in enumerate(lines, 1) if line]


def _parse_line(line: str, place: str) -> Change:
    """Parse a line. `place` names it in errors."""
    try:
        return Change.parse(line)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        cure = "repair the line, or move the file away"
        raise AuditLogError(f"{place} is not a change ({error}); {cure}") from None


def previous(changes: list[Change], current: str | None) -> str | None:
    """Return the version that answered before `current`, or None if it is not known.

    A rollback undoes an earlier change.
    """
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
    """Return when a version got its current role (Unix milliseconds), or None if the log does not say."""
    for change in reversed(changes):
        if role_of(change.action) == role:
            if change.after != version:
                return None
            return change.since_ms or int(datetime.fromisoformat(change.when).timestamp() * 1000)
    return None


def user() -> str:
    """Return the name of this process's user, or its number if it has no name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
