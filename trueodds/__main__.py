"""The console script `trueodds`. Its commands are those that installed packages register under `trueodds.commands`."""

from __future__ import annotations

import sys

from trueodds import cli
from trueodds.cli.registered import HOME, registered_commands


def main() -> int:
    """Run the command that `sys.argv` names and return its exit status (see `trueodds.cli.main`)."""
    words = sys.argv[1:]
    commands, clashes = registered_commands()
    if not commands and not clashes:
        print(f"error: {HOME} is not installed, so no command is registered: pip install -e {HOME}", file=sys.stderr)
        return 1
    known = bool(words) and words[0] in commands
    if clashes and not known:
        print(*clashes, sep="\n", file=sys.stderr)
        if words and not words[0].startswith("-"):
            return 1
    return cli.main("trueodds", commands, words)


if __name__ == "__main__":
    sys.exit(main())
