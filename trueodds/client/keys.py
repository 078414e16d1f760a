"""The admin key that commands and flows send, from a file or from the environment."""

from __future__ import annotations

import os
import re
from pathlib import Path

from trueodds.errors import ConfigError
from trueodds.processes.choices import ADMIN_KEY, ADMIN_KEY_FILE, ADMIN_KEY_HASH

CURE = f". Put the key into {ADMIN_KEY} or into a file: --key-file"
"""End of the message about a refused key, for users of a command."""


def admin_key(file: str | Path | None = None) -> str | None:
    """Read the admin key from `file`, from the file that TRUEODDS_ADMIN_KEY_FILE names, or from TRUEODDS_ADMIN_KEY.

    Raises:
        ConfigError: The file cannot be read or is empty, or it holds the key's hash, which is for the service.
    """
    place = file or os.environ.get(ADMIN_KEY_FILE)
    if place:
        try:
            key = Path(place).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the key file {place} cannot be read: {error}") from None
        if not key:
            raise ConfigError(f"the key file {place} is empty; it must hold the key that `trueodds key` printed")
    else:
        key = os.environ.get(ADMIN_KEY, "").strip()
    if re.fullmatch("[0-9a-fA-F]{64}|@.*|.*,.*", key):
        where = place or ADMIN_KEY
        raise ConfigError(
            f"{where} holds the key's hash; commands take the key itself (--key-file), and the service reads its hash"
            f" from {ADMIN_KEY_HASH}"
        )
    return key or None
