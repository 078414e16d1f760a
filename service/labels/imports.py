"""Imports: the labels of one call, or of several that name the same one, so that they can be voided together."""

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
"""The header that names the import of a call, and of its answer."""
PATTERN = "^[!-~]{1,128}$"
_ALLOWED = "allowed are 1 to 128 letters, digits and signs of ASCII without blanks"


def of_header(request: Request) -> str | None:
    """The import that the header names.

    Raises:
        ServiceError: 422 for what is no id of an import, or several.
    """
    values = request.headers.getlist(IMPORT_ID)
    if len(values) > 1:
        raise ServiceError(422, "invalid_id", f"there are {len(values)} headers {IMPORT_ID}; a call is of one import")
    return checked(values[0], f"the header {IMPORT_ID}") if values else None


def split(tree: Any, header: str | None) -> tuple[Any, str]:
    """A JSON body without its `import_id`, and the import of the call: a new one where neither names one.

    Raises:
        ServiceError: 422 for what is no id of an import, or another than the header's.
    """
    if not isinstance(tree, dict) or tree.get("import_id") is None:
        return tree, header or new()
    rest = {key: value for key, value in tree.items() if key != "import_id"}
    named = checked(tree["import_id"], "import_id")
    if header not in (None, named):
        message = f"import_id is {short(named)} and the header {IMPORT_ID} {short(header)}; send one of both"
        raise ServiceError(422, "invalid_id", message)
    return rest, named


def new() -> str:
    """The id of an import that its caller has not named."""
    return secrets.token_hex(8)


def checked(value: Any, name: str) -> str:
    """The id of an import that a caller names.

    Raises:
        ServiceError: 422 for what is none; `name` says where it stands.
    """
    if not isinstance(value, str) or not re.fullmatch(PATTERN, value):
        raise ServiceError(422, "invalid_id", f"{name} is {short(value)}; {_ALLOWED}")
    return value


def check_selection(import_id: str | None, since: datetime | None, until: datetime | None) -> None:
    """Raise ServiceError 422 for what is no id of an import, and for a time that ends before it begins."""
    if import_id is not None:
        checked(import_id, "import_id")
    if since and until and unix_ms(since) >= unix_ms(until):
        words = f"since {since.isoformat()} is not before until {until.isoformat()}; exchange them"
        raise ServiceError(422, "invalid_body", words)
