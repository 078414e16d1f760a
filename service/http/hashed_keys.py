"""New keys and their hashes. `trueodds key` needs nothing else, so this module imports no other package."""

from __future__ import annotations

import hashlib
import secrets


def make() -> tuple[str, str]:
    """Make a new key. Return it with its SHA-256 in hex, which is all that the service needs."""
    key = secrets.token_urlsafe(32)
    return key, hash_of(key)


def hash_of(key: str) -> str:
    """Return the SHA-256 of a key in hex."""
    return hashlib.sha256(key.encode()).hexdigest()
