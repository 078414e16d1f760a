"""`python -m service [OPTIONS]` serves; `python -m service COMMAND` runs a command of service/cli."""

import sys
from collections.abc import Sequence

from service.cli import COMMANDS
from trueodds import cli


def main(words: Sequence[str]) -> int:
    """Run the command and return its exit status; see `trueodds.cli.main`."""
    return cli.main("python -m service", COMMANDS, words, default="serve")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
