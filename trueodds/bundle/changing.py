"""A change of roles in a folder of models: its files and its line in the audit log, both or neither."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trueodds.bundle.audit_log import Action, Append, AuditLog, Reason
from trueodds.bundle.contents import ROLES
from trueodds.bundle.role_files import restoring


@contextmanager
def changing(folder: Path) -> Iterator[Append]:
    """Hold the log of a folder while its roles change; on an error nothing has changed."""
    with AuditLog(folder).writing() as append, restoring(*(folder / role for role in ROLES)):
        yield append


def record(
    folder: Path,
    append: Append,
    action: Action,
    before: str | None,
    after: str | None,
    reason: Reason,
    since_ms: int | None = None,
) -> None:
    """Append to a folder's log what is a change, or was one whose process died before its line."""
    if before == after:
        before = AuditLog(folder).recorded(action, after)
    if before != after:
        append(action, before, after, reason, since_ms)
