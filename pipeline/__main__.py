"""`python -m pipeline COMMAND`: the commands of pipeline/cli."""

import sys
from collections.abc import Sequence

from pipeline.cli import COMMANDS, STAGE_COMMANDS
from trueodds import cli


def main(words: Sequence[str]) -> int:
    """Runs the command that the words name and returns its exit status, as `trueodds.cli.main` does."""
    return cli.main("python -m pipeline", COMMANDS | STAGE_COMMANDS, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
