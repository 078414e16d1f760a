"""The page's form acknowledges a real alarm, and its windows slide, in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.hooks import until
from tests.service.test_process import predict, server
from tests.service.tiny_bundle import pictures, write_bundle
from tools import chromium
from tools.chromium import Chromium
from trueodds.bundle import open_models

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(chromium.find() is None, reason="no Chromium on the PATH (CHROMIUM names another)"),
]


@pytest.fixture
def alarmed(tmp_path: Path) -> Iterator[httpx.Client]:
    """A service whose model was sure and wrong a hundred times."""
    open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle"))
    with server(tmp_path) as (client, _):
        answers = [answer for k in range(5) for answer in predict(client, pictures(40, seed=k))]
        rows = [{"id": p["id"], "index": (p["index"] + 1) % 4} for p in answers]
        assert client.post("/feedback", json={"labels": rows}).status_code == 200
        until(lambda: client.get("/calibration-report").json()["alarm"]["state"] == "fired")
        yield client


@pytest.mark.parametrize("script", [True, False])
def test_somebody_acknowledges(tab: Chromium, alarmed: httpx.Client, script: bool) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=not script)
    tab.open(f"{str(alarmed.base_url).rstrip('/')}/calibration-report?format=html")
    assert tab.run("document.querySelector('#now-title').textContent") == "Alarm"
    tab.run(
        "document.querySelector('#who').value = 'Ada'; document.querySelector('#why').value = 'dirty <lens> & dust'"
    )
    tab.run("document.querySelector('form.answer button').click()")
    tab.wait_for("document.querySelector('#now-title')?.textContent === 'Alarm, acknowledged'")
    words = tab.run("document.querySelector('.quote').textContent")
    assert "Ada" in words and words.count("dirty <lens> & dust") == 1
    assert tab.run("document.querySelector('form.answer').getAttribute('action')") == "/admin/alarm/rearm"
    known = alarmed.get("/calibration-report").json()["alarm"]["nulls"][0]["acknowledged"]
    assert (known["who"], known["why"]) == ("Ada", "dirty <lens> & dust")


def test_a_sliding_window_stays_chosen(tab: Chromium, alarmed: httpx.Client) -> None:
    base = str(alarmed.base_url).rstrip("/")
    tab.open(f"{base}/calibration-report/choose?window=24h&bins=30&by=class&format=html")
    assert tab.run("document.querySelector('[name=window]').value") == "24h"
    assert tab.run("document.body.dataset.again").startswith("/calibration-report/choose?bins=30&by=class&window=24h")
    tab.run("document.dispatchEvent(new Event('visibilitychange'))")
    tab.wait_for("document.querySelector('#pulse').textContent.includes('Refreshes')")
    assert tab.run(
        "document.querySelector('#trend-chart') !== null && document.querySelector('#class-slices-table') !== null"
    )
    tab.open(f"{base}/calibration-report/choose?window=last&last=50&by=class&tag=x&format=html")
    assert "the 50 newest labels" in tab.run("document.querySelector('#choice summary').textContent")
    assert tab.run("document.documentElement.scrollWidth") == 1200
