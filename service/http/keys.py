"""Keys of callers: each role may have some, of which the service knows only the SHA-256. A role without keys is open.

Keys are random (256 bits) and cannot be guessed, so a plain, fast hash is sufficient.

Browsers send a password (Basic) automatically, even if a page of another site makes the request. So a password gives
access only to routes that read, never to routes that change something.
"""

from __future__ import annotations

import base64
import hmac
from typing import Any, Literal

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from service.errors import ServiceError
from service.http.hashed_keys import hash_of
from service.http.parameters import prefers_html
from service.settings import Settings

Role = Literal["predict", "feedback", "read", "admin"]


class ApiKeys:
    """Key hashes of each role."""

    def __init__(self, settings: Settings) -> None:
        self._hashes: dict[Role, tuple[str, ...]] = {
            "predict": settings.predict_key_hash,
            "feedback": settings.feedback_key_hash,
            "read": settings.read_key_hash,
            "admin": settings.admin_key_hash,
        }

    def is_open(self, role: Role) -> bool:
        """Return whether the role needs no key."""
        return not self._hashes[role]

    def check(self, role: Role, key: str | None) -> None:
        """Accept `key` if it is one of the role's or of the admin's keys, or if the role has none.

        Raises:
            ServiceError: 401 without a key or with an unknown key; 403 with a key of another role.
        """
        if self.is_open(role):
            return
        sent = hash_of(key or "")
        # All hashes are compared, in constant time, so that the duration does not show which hash is close.
        roles = {r for r, hashes in self._hashes.items() for known in hashes if hmac.compare_digest(sent, known)}
        if roles & {role, "admin"}:
            return
        if roles:
            message = f"this key is for {' and '.join(sorted(roles))}; this request needs the {role} key"
            raise ServiceError(403, "wrong_key", message)
        problem = "the key is unknown" if key else "a key is needed"
        error = ServiceError(401, "key_needed", f"{problem}; send the {role} key as 'Authorization: Bearer <key>'")
        error.headers["www-authenticate"] = 'Bearer realm="trueodds"'
        raise error


def check(request: Request, role: Role) -> None:
    """Check the key of a request; see `ApiKeys.check`."""
    keys: ApiKeys = request.scope["app"].state.keys
    if keys.is_open(role):
        return
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    key = sent.strip() if scheme.lower() == "bearer" else None
    if role == "read" and scheme.lower() == "basic":
        key = _password(sent.strip())
    try:
        keys.check(role, key)
    except ServiceError as error:
        if role == "read" and error.status == 401 and prefers_html(request.headers.get("accept", "")):
            error.headers["www-authenticate"] = 'Basic realm="trueodds", charset="UTF-8"'
            error.message = f"{error.message}, or in a browser as the password, with any name"
        raise


def _password(credentials: str) -> str | None:
    """Return the password of HTTP's Basic scheme; the name if the password is empty."""
    try:
        name, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:
        return None
    return password or name


class _Requires(HTTPBearer):
    def __init__(self, role: Role) -> None:
        super().__init__(description="A key made by `trueodds key`, if the service requires one.", auto_error=False)
        self._role = role

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        check(request, self._role)


def requires(role: Role) -> Any:
    """Return a dependency for routes: `dependencies=[requires("admin")]`."""
    return Depends(_Requires(role))


ERRORS = {"_401": "no key, or an unknown key", "_403": "a key of another role"}
"""Error descriptions for `error_answers.document_errors`, for a route that requires a key."""
NEEDS_KEY: dict[str, Any] = {"security": [{"HTTPBearer": []}]}
"""OpenAPI entry of a route that calls `check` itself, because a dependency costs 20 us."""
