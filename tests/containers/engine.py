"""A Docker engine for these tests: the one of DOCKER_HOST, or one that the script named by TRUEODDS_ENGINE starts.

The script's sub-commands: `images` (start, and make the base images), `env` (shell `export`s: DOCKER_HOST, PATH, and
maybe ENGINE_OVERRIDE, a Compose file for builds on that engine), `stop --purge`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.conftest import ROOT

SCRIPT = "TRUEODDS_ENGINE"
Environment = dict[str, str]


def missing() -> str:
    """Why there is no engine here; empty if there is one."""
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        return f"DOCKER_HOST = {host} is another machine: the stack's ports would be open on that one only"
    if host or os.environ.get(SCRIPT):
        return ""
    return f"no Docker engine: set DOCKER_HOST (unix:///var/run/docker.sock), or {SCRIPT} to a script that starts one"


@contextmanager
def running() -> Iterator[Environment]:
    """The environment in which `docker` reaches the engine; what was started here is ended and removed."""
    script = os.environ.get(SCRIPT)
    if os.environ.get("DOCKER_HOST") or not script:
        yield dict(os.environ)
        return
    try:
        subprocess.run([script, "images"], cwd=ROOT, check=True, timeout=1800)
        # env -0: values may hold anything but NUL.
        text = subprocess.run(
            ["bash", "-c", 'eval "$("$0" env)" && exec env -0', script],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
        ).stdout
        yield dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
    finally:
        subprocess.run([script, "stop", "--purge"], cwd=ROOT, check=True, timeout=1800)
