"""Imports: the labels of one or several calls under one id, so that they can be voided together."""

from __future__ import annotations

import re
import secrets
from datetime import datetime
from typing import Any

from fastapi import Request

from service.errors import ServiceError
from service.http.parameters import unix_ms
from trueodds.texts import short

IMPORT_ID = "x-import-id"
"""Header that names the import of a call; also in its answer."""
PATTERN = "^[!-~]{1,128}$"
_ALLOWED = "allowed are 1 to 128 printable ASCII characters without spaces"


def of_header(request: Request) -> str | None:
    """Return the import id in the header, or None.

    Raises:
        ServiceError: 422 if it is not a valid import id, or if the header is repeated.
    """
    values = request.headers.getlist(IMPORT_ID)
    if len(values) > 1:
        raise ServiceError(
            422, "invalid_id", f"the header {IMPORT_ID} is sent {len(values)} times; a call belongs to one import"
        )
    return check_import_id(values[0], f"the header {IMPORT_ID}") if values else None


def split(tree: Any, header: str | None) -> tuple[Any, str]:
    """Split a JSON body into the rest and the import id of the call; a new id if neither body nor header has one.

    Raises:
        ServiceError: 422 if the id is not valid, or differs from the header's.
    """
    if not isinstance(tree, dict) or tree.get("import_id") is None:
        return tree, header or new()
    rest = {key: value for key, value in tree.items() if key != "import_id"}
    named = check_import_id(tree["import_id"], "import_id")
    if header not in (None, named):
        message = f"import_id is {short(named)}, but the header {IMPORT_ID} is {short(header)}; send only one of them"
        raise ServiceError(422, "invalid_id", message)
    return rest, named


def new() -> str:
    """Make an import id for a call without one."""
    return secrets.token_hex(8)


def check_import_id(value: Any, name: str) -> str:
    """Return a caller's import id after checking it.

    Raises:
        ServiceError: 422 if it is not valid. The message names its place, `name`.
    """
    if not isinstance(value, str) or not re.fullmatch(PATTERN, value):
        raise ServiceError(422, "invalid_id", f"{name} is {short(value)}; {_ALLOWED}")
    return value


def check_selection(import_id: str | None, since: datetime | None, until: datetime | None) -> None:
    """Raise ServiceError 422 for an invalid import id, or a time that ends before it begins."""
    if import_id is not None:
        check_import_id(import_id, "import_id")
    if since and until and unix_ms(since) >= unix_ms(until):
        words = f"since {since.isoformat()} is not before until {until.isoformat()}; exchange them"
        raise ServiceError(422, "invalid_body", words)
