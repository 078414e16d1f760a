"""The key of those who only read: report, models, metrics; and how a person opens the page with it."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from service.http import hashed_keys
from tests.service.alarms import ACKNOWLEDGE
from tests.service.app_client import Client
from tests.service.tiny_bundle import pictures

READ = ("/calibration-report", "/models", "/metrics", "/predictions")
HTML = {"accept": "text/html"}
READING, ADMIN, FEEDBACK = (hashed_keys.make() for _ in range(3))


@pytest.fixture
def locked(serve: Callable[..., Client]) -> Client:
    client = serve({"read_key_hash": READING[1], "admin_key_hash": ADMIN[1], "feedback_key_hash": FEEDBACK[1]})
    client.predict(pictures(3))
    return client


def basic(text: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


@pytest.mark.parametrize("path", READ)
def test_it_opens_what_is_read(locked: Client, path: str) -> None:
    refused = locked.get(path)
    assert refused.status_code == 401 and "send the read key" in refused.json()["error"]["message"]
    assert refused.headers["www-authenticate"].startswith("Bearer")
    for key, status in ((READING, 200), (ADMIN, 200), (FEEDBACK, 403)):
        assert locked.get(path, headers={"authorization": f"Bearer {key[0]}"}).status_code == status
    for credentials, status in (
        (f"me:{READING[0]}", 200),
        (READING[0], 200),
        (f"me:{FEEDBACK[0]}", 403),
        ("me:x", 401),
    ):
        assert locked.get(path, headers=basic(credentials)).status_code == status
    for header in ("Basic ???", "Basic /w==", "Basic", "Digest x"):
        assert locked.get(path, headers={"authorization": header}).status_code == 401


def test_a_browser_asks_for_it_as_a_password(locked: Client) -> None:
    """The page that says so comes with the challenge at which browsers ask; then its form and its links work too."""
    for url in ("/calibration-report", "/calibration-report/choose?window=24h"):
        refused = locked.get(url, headers=HTML)
        assert refused.status_code == 401 and refused.headers["content-type"].startswith("text/html")
        assert refused.headers["www-authenticate"] == 'Basic realm="trueodds", charset="UTF-8"'
        assert "in a browser as the password" in refused.text
        assert locked.get(url, headers={**HTML, **basic(f"me:{READING[0]}")}).status_code in (200, 303)
    assert READING[0] not in locked.get("/calibration-report", headers={**HTML, **basic(f"me:{READING[0]}")}).text


def test_a_password_changes_nothing(locked: Client) -> None:
    """Browsers send it by themselves, whoever asks them to."""
    body = {"model": "tiny", "version": "x", "who": "Ada", "why": "seen"}
    assert locked.post(ACKNOWLEDGE, json=body, headers=basic(f"me:{ADMIN[0]}")).status_code == 401
    assert locked.post("/feedback", json={"id": "x", "index": 0}, headers=basic(f"me:{FEEDBACK[0]}")).status_code == 401
    assert locked.run(locked.http.delete("/predictions/x", headers=basic(f"me:{ADMIN[0]}"))).status_code == 401


def test_health_and_documentation_stay_open(locked: Client) -> None:
    for path in ("/health/live", "/health/ready", "/docs", "/openapi.json"):
        assert locked.get(path).status_code == 200


def test_without_it_everybody_reads(serve: Callable[..., Client]) -> None:
    client = serve({"admin_key_hash": ADMIN[1]})
    client.predict(pictures(1))
    assert [client.get(path).status_code for path in READ] == [200] * len(READ)
