"""Keys of programs that send answers and labels, for the roles predict and feedback."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from trueodds.errors import ConfigError


class Keys(NamedTuple):
    """Keys of the roles of a program that sends answers and labels."""

    predict: str | None = None
    feedback: str | None = None

    @classmethod
    def of_file(cls, path: Path | None) -> Keys:
        """Read the file of --key-file: one key for both roles, or two. No keys without a file.

        Raises:
            ConfigError: The file cannot be read, or holds something else.
        """
        if path is None:
            return cls()
        try:
            lines = path.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--key-file {path} cannot be read: {error}") from None
        if not 1 <= len(lines) <= 2 or not all(line.isascii() and line.isprintable() for line in lines):
            raise ConfigError(
                f"--key-file {path} holds {len(lines)} words; expected one key, or two: predict, feedback"
            )
        return cls(lines[0], lines[-1])
