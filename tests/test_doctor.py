"""`python -m pipeline doctor`: what it looks at, and that it notices what does not fit. Prefect's part: tests/flows."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

from pipeline import doctor, publishing
from tests.conftest import ROOT, environment
from tests.service.hooks import Hook
from tests.service.test_process import server
from tests.service.tiny_bundle import write_bundle


def test_versions_are_compared_with_the_constraints(tmp_path: Path) -> None:
    assert doctor.versions(tmp_path).state == "skipped"
    (tmp_path / "docker").mkdir()
    numpy = metadata.version("numpy")
    lines = ["# made by", f"numpy=={numpy}", "nowhere-to-be-found==1", "scipy==0.1 ; python_version < '3'"]
    (tmp_path / doctor.CONSTRAINTS).write_text("\n".join(lines))
    assert str(doctor.versions(tmp_path)).startswith("ok    versions   the 1 installed packages")
    (tmp_path / doctor.CONSTRAINTS).write_text("numpy==1.0\n")
    found = doctor.versions(tmp_path)
    assert found.state == "wrong" and f"numpy {numpy} (tested 1.0)" in found.words and "make setup" in found.cure


def test_every_line_and_the_exit_status(tmp_path: Path) -> None:
    ours = publishing.publish(write_bundle(tmp_path / "bundle"), tmp_path / "models")
    publishing.publish(write_bundle(tmp_path / "bundle"), tmp_path / "others")
    nobody = {"PREFECT_API_URL": "http://127.0.0.1:1/api", "PREFECT_HOME": str(tmp_path / "prefect")}

    def typed(service: str, models: str) -> tuple[int, list[str]]:
        done = subprocess.run(
            [sys.executable, "-m", "pipeline", "doctor", "--service", service, "--models", str(tmp_path / models)],
            cwd=ROOT,
            env=environment() | nobody,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, (done.stdout + done.stderr).splitlines()

    with Hook() as hook, server(tmp_path, "--alarm-webhook", f"{hook.url},http://127.0.0.1:1/x") as (client, _):
        status, lines = typed(str(client.base_url), "models")
        assert status == 1 and lines[-1] == "error: 2 of these are wrong"
        assert f"ok    models     {tmp_path / 'models'}: tiny/{ours.name} answers calls that name no model" in lines
        assert f"ok    service    {client.base_url} answers with tiny/{ours.name}, and its store" in "\n".join(lines)
        assert f"ok    folder     the service serves {tmp_path / 'models'}" in lines
        assert f"ok    alarm      {hook.url.removesuffix('/hook')} has taken a test" in lines
        wrong = [line for line in lines if line.startswith("WRONG")]
        assert [line.split()[1] for line in wrong] == ["prefect", "alarm"] and all("Cure: " in line for line in wrong)
        assert hook.calls[-1].body["type"] == "calibration-alarm-test"
        status, lines = typed(str(client.base_url), "others")
        assert status == 1 and any(line.startswith("WRONG folder") and "TRUEODDS_MODELS" in line for line in lines)
    status, lines = typed(str(client.base_url), "nowhere")
    assert [line.split()[1] for line in lines if line.startswith("WRONG")] == ["models", "service", "prefect"]
    assert any("no model yet. Cure: dvc repro" in line for line in lines)
