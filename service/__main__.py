"""`python -m service [OPTIONS]`, which serves, or `python -m service COMMAND`: the commands of service/cli."""

import sys
from collections.abc import Sequence

from service.cli import COMMANDS
from trueodds import cli


def main(words: Sequence[str]) -> int:
    """Runs the command that the words name and returns its exit status, as `trueodds.cli.main` does."""
    return cli.main("python -m service", COMMANDS, words, default="serve")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
