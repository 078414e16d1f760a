"""`python -m pipeline.flows up | down | register`; see pipeline/flows/server.py."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pipeline.flows import server
from trueodds import cli


def main(argv: list[str] | None = None) -> int:
    """Run a command in the current checkout and return its exit status, like `trueodds.cli.status_of`."""
    return cli.status_of(lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.flows",
        description=server.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["up", "down", "register"])
    command = parser.parse_args(argv).command
    home, url = Path.cwd(), os.environ.get("PREFECT_API_URL", server.URL)
    if command == "down":
        server.down(home)
    else:
        (server.up if command == "up" else server.register)(home, url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
