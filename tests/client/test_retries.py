"""Requests that are refused or whose answers are lost: sent again, and counted once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests.client.data import images
from tests.client.relay import Lose, Refuse, Relay
from trueodds.client import AsyncClient, CallError, Client, LabelSummary
from trueodds.client.attempts import retry_after


def test_an_error_has_the_services_code_words_and_request(relay: Relay) -> None:
    with Client(relay.url) as client, pytest.raises(CallError) as error:
        client.report(predicted_class="cow")
    assert (error.value.code, error.value.status) == ("unknown_class", 404)
    assert relay.requests == [("/calibration-report", error.value.request_id)]
    assert str(error.value).endswith(f"(request {error.value.request_id})") and "has no class 'cow'" in str(error.value)


def test_a_busy_service_is_asked_again_when_it_says(relay: Relay) -> None:
    relay.plan = [Refuse(429, "1"), Refuse(503, "1")]
    began = time.monotonic()
    with Client(relay.url) as client:
        assert len(client.predict(images(2))) == 2
    assert time.monotonic() - began >= 2 and len(relay.requests) == 3
    assert len({request_id for _, request_id in relay.requests}) == 1


def test_a_lost_answer_counts_once(relay: Relay, client: Client) -> None:
    before = client.report()
    relay.plan = [Lose(), Lose()]
    with Client(relay.url) as behind:
        predictions = behind.predict(images(3, seed=4))
        assert predictions.repeated == dict.fromkeys(range(3), predictions.version)
        relay.plan = [Lose()]
        assert behind.feedback(predictions.ids, predictions.labels) == LabelSummary(already_known=3)
    after = client.report()
    assert (after.answers - before.answers, after.labelled - before.labelled) == (3, 3)
    assert [path for path, _ in relay.requests] == ["/predict"] * 3 + ["/feedback"] * 2


def test_an_awaited_lost_answer_counts_once(relay: Relay, client: Client) -> None:
    before = client.report().answers
    relay.plan = [Lose(), Refuse(502, body=b"bad gateway")]

    async def ask() -> int:
        async with AsyncClient(relay.url) as behind:
            return len(await behind.predict(images(3, seed=5)))

    assert asyncio.run(ask()) == 3
    assert client.report().answers - before == 3 and len(relay.requests) == 3


def test_tries_and_seconds_have_an_end(relay: Relay) -> None:
    relay.plan = [Refuse()] * 9
    with (
        Client(relay.url, tries=3) as client,
        pytest.raises(CallError, match=r"too much is waiting \(3 tries") as error,
    ):
        client.ready()
    assert (error.value.code, error.value.status, len(relay.requests)) == ("queue_full", 503, 3)
    relay.plan = [Refuse(retry_after="60")]
    with Client(relay.url, seconds=5) as client, pytest.raises(CallError, match=r"\(1 try in "):
        client.ready()
    with Client("http://127.0.0.1:9", tries=2) as client, pytest.raises(CallError, match="is the service up") as error:
        client.ready()
    assert (error.value.code, error.value.status) == ("no_answer", None)


@pytest.mark.parametrize(
    ("refusal", "code"),
    [(Refuse(404, body=b"<html>no such host</html>"), "http_404"), (Refuse(200, body=b"hello"), "not_json")],
)
def test_what_is_no_trueodds(relay: Relay, refusal: Refuse, code: str) -> None:
    relay.plan = [refusal, Refuse(200, body=b'{"status": "fine"}')]
    with Client(relay.url) as client:
        with pytest.raises(CallError) as error:
            client.ready()
        assert error.value.code == code
        with pytest.raises(CallError, match="answered JSON of an unexpected form") as error:
            client.ready()
        assert error.value.code == "unexpected_answer"


def test_retry_after_as_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 27 < retry_after(soon) <= 30


def test_a_change_is_sent_again_only_where_it_was_not_made(relay: Relay) -> None:
    signed: dict[str, Any] = {"who": "Ada", "why": "a test"}
    with Client(relay.url) as client:
        calls: tuple[Callable[[], object], ...] = (
            lambda: client.delete("p7"),
            lambda: client.void(import_id="none", **signed),
            lambda: client.acknowledge("tiny", "1", **signed),
            lambda: client.rearm("tiny", "1", **signed),
            lambda: client.report_no_decision("tiny", None, **signed),
        )
        for call in calls:
            for plan, code in ((Lose(), "no_answer"), (Refuse(504, body=b"gateway"), "http_504")):
                relay.plan, before = [plan], len(relay.requests)
                with pytest.raises(CallError, match="it may have been carried out") as error:
                    call()
                assert error.value.code == code and len(relay.requests) == before + 1
        relay.plan, before = [Refuse(), Refuse()], len(relay.requests)
        assert client.report_no_decision("tiny", None, **signed) == [] and len(relay.requests) == before + 3
        relay.plan, before = [Lose()], len(relay.requests)
        with pytest.raises(CallError, match="answered 404"):  # counting changes nothing
            client.void(import_id="none", dry_run=True, **signed)
        assert len(relay.requests) == before + 2
    with Client("http://127.0.0.1:9", tries=2) as away, pytest.raises(CallError, match="in 2 tries; is the service up"):
        away.delete("p7")
