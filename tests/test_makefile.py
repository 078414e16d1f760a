"""The Makefile: which Python an environment gets, and care for that of another checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT, environment


def test_an_environment_of_another_checkout_is_not_taken_without_a_word(tmp_path: Path) -> None:
    venv = tmp_path / "shared"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python3*/site-packages")
    record = packages / "trueodds-1.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: trueodds\nVersion: 1\n")
    url = {"url": "file:///elsewhere/checkout", "dir_info": {"editable": True}}
    (record / "direct_url.json").write_text(json.dumps(url))

    def setup(*more: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "setup", f"VENV={venv}", f"PYTHON={sys.executable}", *more]
        return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300)

    refused = setup()
    assert refused.returncode and "runs the code of /elsewhere/checkout" in refused.stderr
    assert "TAKE=1" in refused.stderr and "Setting up" not in refused.stdout
    assert "Setting up" in setup("--dry-run", "TAKE=1").stdout


def test_the_systems_python_comes_first_and_an_environment_keeps_its_own(tmp_path: Path) -> None:
    def candidates(*words: str) -> str:
        command = ["make", "--dry-run", "setup", f"VENV={tmp_path / 'venv'}", *words]
        return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True).stdout

    assert "for candidate in /usr/bin/python3.11 python3.11 python3.12 " in candidates()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    assert f"for candidate in {tmp_path}/venv/bin/python /usr/bin/python3.11 " in candidates()
    assert "for candidate in /opt/python; do" in candidates("PYTHON=/opt/python")
