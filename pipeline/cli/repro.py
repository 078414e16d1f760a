"""Runs `dvc repro` on this checkout, with uncommitted changes, in a workspace that leaves the checkout untouched."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from pipeline import stages
from pipeline.cli import common
from trueodds.cli import Subparsers
from trueodds.errors import UserError
from trueodds.processes import binding, output

FOLDER = Path(".run")
WORKSPACE = FOLDER / "workspace"
ARTIFACTS = FOLDER / "artifacts"
"""Link to the artifacts in the workspace, wherever the checkout lies in its repository."""


class ReproError(UserError, RuntimeError):
    """`dvc repro` failed. It has printed why."""


def add_parser(commands: Subparsers) -> None:
    commands.add_parser("repro", description=__doc__, epilog=common.examples("repro"))


def run(arguments: argparse.Namespace) -> int:
    try:
        repro(Path.cwd())
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the next run goes on from the last checkpoint") from None
    return 0


def repro(home: Path) -> None:
    """Copy the checkout's state to the workspace and run the outdated stages there with the checkout's DVC cache.

    Raises:
        WorkspaceError: Another process works in the workspace, or git failed.
        ReproError: A stage failed.
    """
    from pipeline.flows import workspace

    with workspace.open_kept_workspace(home, home / WORKSPACE, lambda words: print(words, flush=True)) as place:
        command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro"]
        process = subprocess.Popen(binding.command(command), cwd=place.folder, env=place.environment())
        try:
            status = process.wait()
        except KeyboardInterrupt:  # DVC got the Ctrl-C, too, and stops in order
            process.wait()
            raise
        if status == output.UNREAD:
            raise BrokenPipeError
        if status:
            raise ReproError(f"dvc repro in {place.folder} ended with exit status {status}; its last lines say why")
        _link(home / ARTIFACTS, place.folder / stages.ARTIFACTS)


def _link(path: Path, target: Path) -> None:
    """Make a relative link, and replace an older one."""
    words = os.path.relpath(target, path.parent)
    if not path.is_symlink() or str(path.readlink()) != words:
        path.unlink(missing_ok=True)
        path.symlink_to(words)
