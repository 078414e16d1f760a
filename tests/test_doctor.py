"""`trueodds doctor`: what it looks at, and that it notices what does not fit. Prefect's part: tests/flows."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest

from pipeline.cli import doctor
from tests.conftest import ROOT, environment
from tests.service.hooks import Hook
from tests.service.test_process import server
from tests.service.tiny_bundle import write_bundle
from trueodds.bundle import open_models
from trueodds.calibrators import Temperature
from trueodds.client import Client


def test_versions_are_compared_with_the_constraints(tmp_path: Path) -> None:
    assert doctor.versions(tmp_path).state == "skipped"
    (tmp_path / "docker").mkdir()
    numpy = metadata.version("numpy")
    lines = ["# made by", f"numpy=={numpy}", "nowhere-to-be-found==1", "scipy==0.1 ; python_version < '3'"]
    (tmp_path / doctor.CONSTRAINTS).write_text("\n".join(lines))
    assert str(doctor.versions(tmp_path)).startswith("ok    versions   the 1 installed packages")
    (tmp_path / doctor.CONSTRAINTS).write_text("numpy==1.0\n")
    check = doctor.versions(tmp_path)
    assert check.state == "wrong" and f"numpy {numpy} (tested 1.0)" in check.words and "make setup" in check.cure


@pytest.mark.full
def test_every_line_and_the_exit_status(tmp_path: Path) -> None:
    ours = open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle"))
    open_models(tmp_path / "others").publish(write_bundle(tmp_path / "bundle"))
    nobody = {"PREFECT_API_URL": "http://127.0.0.1:1/api", "PREFECT_HOME": str(tmp_path / "prefect")}
    with Hook() as hook, server(tmp_path, "--alarm-webhook", f"{hook.url},http://127.0.0.1:1/x") as (http, _):
        client = Client(str(http.base_url).rstrip("/"))
        words = ["doctor", "--url", client.url, "--models", str(tmp_path / "models")]
        done = subprocess.run(
            [sys.executable, "-m", "pipeline", *words],
            cwd=ROOT,
            env=environment() | nobody,
            capture_output=True,
            text=True,
            timeout=300,
        )
        lines = done.stdout.splitlines()
        assert done.returncode == 1 and done.stderr == "error: 2 of these checks are wrong\n", done
        assert f"ok    models     {tmp_path / 'models'}: tiny/{ours.name} serves calls that name no model" in lines
        assert f"ok    service    {client.url} serves tiny/{ours.name}, and its store can be written" in lines
        assert f"ok    folder     the service serves {tmp_path / 'models'}" in lines
        assert f"ok    alarm      {hook.url.removesuffix('/hook')} accepted a test" in lines
        wrong = [line for line in lines if line.startswith("WRONG")]
        assert [line.split()[1] for line in wrong] == ["prefect", "alarm"] and all("Cure: " in line for line in wrong)
        assert hook.calls[-1].body["type"] == "calibration-alarm-test"
        elsewhere = doctor.same_folder(client, open_models(tmp_path / "others"))
        nowhere = open_models(tmp_path / "nowhere")
        assert doctor.same_folder(client, nowhere).state == "wrong" and not nowhere.path.exists()
        assert elsewhere.state == "wrong" and "Give the service's own: --models, or TRUEODDS_MODELS" in str(elsewhere)
    away = [doctor.service(client, expected=expected).state for expected in (True, False)]
    assert away == ["wrong", "skipped"], "a service that nobody named need not be up"
    assert "no model is published yet. Cure: dvc repro" in str(doctor.folder(nowhere))


def test_what_is_under_judgement_or_waits_is_said(tmp_path: Path) -> None:
    models = open_models(tmp_path / "models")
    assert [str(found) for found in doctor.slots(None, models)] == [
        "ok    slots      no version is under judgement or waiting"
    ]
    bundles = [write_bundle(tmp_path / f"b{seed}", seed=seed) for seed in range(3)]
    _, net, waiting = (models.publish(bundle, "shadow").name for bundle in bundles)
    calibrator = models.publish(write_bundle(tmp_path / "calibrator", calibrator=Temperature(3.0)), None).name
    models.shadow("tiny", calibrator, slot="recalibrated")
    judged = f"judged since {datetime.now(UTC):%Y-%m-%d} "
    lines = [str(found) for found in doctor.slots(None, models)]
    assert len(lines) == 3 and lines[2] == f"ok    slots      tiny: {waiting} waits behind {net}, the shadow"
    assert lines[0].startswith(f"ok    slots      tiny: {net} is the shadow, {judged}")
    assert lines[1].startswith(f"ok    slots      tiny: {calibrator} is the recalibrated version, {judged}")
    assert lines[0].endswith(" UTC: ask the service for the evidence (--url)")
    away = Client("http://127.0.0.1:9")
    assert "unknown (no service answers at http://127.0.0.1:9" in str(next(iter(doctor.slots(away, models))))
    (models.path / "tiny" / "history.jsonl").write_text("no change\n")
    assert [found.state for found in doctor.slots(None, models)] == ["wrong"]
