"""`.ci/run` with stand-ins for what takes long: either test run can fail it, and it ends whatever the engine does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, environment

PROGRAMS = (
    "apt-get", "checkov", "chromium", "docker", "docker-compose", "initdb", "java", "kubectl", "promtool", "python3",
    "python3.11",
)  # fmt: skip
MAKEFILE = """
setup:
\t@:
test:
\t@test "$$TEST_UNTIL" -gt 0 || exit 9
\t@echo "tests $$DOCKER_HOST $$TRUEODDS_ENGINE" >> "$$TRACE"; exit $${STATUS:-0}
test-containers:
\t@echo "containers $$DOCKER_HOST $$TRUEODDS_ENGINE" >> "$$TRACE"; exit $${CONTAINERS:-0}
"""
ENGINE = """#!/bin/sh
[ "$1" != "$BROKEN" ] || exit 1
case $1 in
  start) mkdir -p "$ENGINE_DIR" ;;
  env) echo "export DOCKER_HOST=unix:///engine ENGINE_OVERRIDE=/engine.yaml" ;;
esac
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason=".ci/run starts an engine as root alone")
@pytest.mark.parametrize(
    ("what", "status", "engine"),
    [
        ({}, 0, "unix:///engine "),
        ({"CONTAINERS": "1"}, 2, "unix:///engine "),
        ({"STATUS": "3"}, 2, "unix:///engine "),
        ({"BROKEN": "start"}, 0, " "),
        ({"BROKEN": "images"}, 0, " script"),
        ({"BROKEN": "env"}, 0, " script"),
    ],
)
def test_it_ends_with_what_failed(tmp_path: Path, what: dict[str, str], status: int, engine: str) -> None:
    checkout, script = tmp_path / "checkout", tmp_path / "shared" / "tools" / "docker-engine.sh"
    program(checkout / ".ci" / "run", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    (checkout / "docker").mkdir()
    (checkout / "docker" / "constraints.txt").touch()
    (checkout / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    program(checkout / ".venv" / "bin" / "python", "#!/bin/sh\nexit 1\n")
    program(script, ENGINE)
    for name in PROGRAMS:
        program(tmp_path / "programs" / name, "#!/bin/sh\n")
    (tmp_path / "left").mkdir()
    variables = {name: value for name, value in environment().items() if name not in ("DOCKER_HOST", "TRUEODDS_ENGINE")}
    variables |= {"PATH": f"{tmp_path / 'programs'}:{os.environ['PATH']}", "TMPDIR": str(tmp_path / "left")}
    variables |= {"TRACE": str(tmp_path / "trace"), "TRUEODDS_DATA": "/nowhere"}
    done = subprocess.run(
        [str(checkout / ".ci" / "run")], env=variables | what, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, done
    seen = (tmp_path / "trace").read_text().replace(f"{checkout}/../shared/tools/docker-engine.sh", "script")
    assert sorted(seen.splitlines()) == [f"containers {engine}", "tests  "], "the engine is that of the containers"
    assert not list((tmp_path / "left").iterdir())
