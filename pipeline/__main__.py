"""`python -m pipeline COMMAND`: runs the commands in pipeline/cli."""

import sys
from collections.abc import Sequence

from pipeline.cli import COMMANDS, STAGE_COMMANDS
from trueodds import cli


def main(words: Sequence[str]) -> int:
    """Run the command that the words name and return its exit status, like `trueodds.cli.main`."""
    return cli.main("python -m pipeline", COMMANDS | STAGE_COMMANDS, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
