"""The keys of callers: one for each role, of which only the SHA-256 is known here. A role without a key is open.

Keys are random (256 bits), so a plain hash suffices: there is nothing to guess, and no need to be slow.

Browsers send a password (Basic) by themselves, also where a page of another site asks them to. So it opens what is only
read, and nothing that changes anything.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Any, Literal

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from service.errors import ServiceError
from service.http.parameters import prefers_html
from service.settings import Settings

Role = Literal["predict", "feedback", "read", "admin"]


def make() -> tuple[str, str]:
    """A new key, and its SHA-256 in hex: all that the service needs."""
    key = secrets.token_urlsafe(32)
    return key, hash_of(key)


def hash_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class Keys:
    """The hashes of the keys of each role."""

    def __init__(self, settings: Settings) -> None:
        self._hashes: dict[Role, tuple[str, ...]] = {
            "predict": settings.predict_key,
            "feedback": settings.feedback_key,
            "read": settings.read_key,
            "admin": settings.admin_key,
        }

    def is_open(self, role: Role) -> bool:
        """Whether everybody may do what the role may."""
        return not self._hashes[role]

    def check(self, role: Role, key: str | None) -> None:
        """Return where `key` is one of the role's or of the admin's, or the role has none.

        Raises:
            ServiceError: 401 without a key or with an unknown one, 403 with another role's.
        """
        if self.is_open(role):
            return
        sent = hash_of(key or "")
        # Every hash is compared, in constant time: how long it takes says nothing about which one is near.
        roles = {r for r, hashes in self._hashes.items() for known in hashes if hmac.compare_digest(sent, known)}
        if roles & {role, "admin"}:
            return
        if roles:
            message = f"this key is for {' and '.join(sorted(roles))}; what you ask needs the {role} key"
            raise ServiceError(403, "wrong_key", message)
        problem = "the key is not known" if key else "a key is needed"
        error = ServiceError(401, "key_needed", f"{problem}; send the {role} key as 'Authorization: Bearer <key>'")
        error.headers["www-authenticate"] = 'Bearer realm="trueodds"'
        raise error


def check(request: Request, role: Role) -> None:
    """Check the key that a request sends, as `Keys.check` does."""
    keys: Keys = request.app.state.keys
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
    """The password of HTTP's Basic scheme, which browsers ask people for; else the name, where there is no password."""
    try:
        name, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:
        return None
    return password or name


class _Requires(HTTPBearer):
    def __init__(self, role: Role) -> None:
        super().__init__(description="a key of `trueodds key`, where the service has one set", auto_error=False)
        self._role = role

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        check(request, self._role)


def requires(role: Role) -> Any:
    """A dependency of routes: `dependencies=[requires("admin")]`."""
    return Depends(_Requires(role))


ERRORS = {"_401": "no key, or an unknown one", "_403": "another role's key"}
"""For `error_answers.documented`, of a route that needs a key."""
NEEDS_KEY: dict[str, Any] = {"security": [{"HTTPBearer": []}]}
"""For the documentation of a route that calls `check` itself: a dependency costs it 20 us."""
