"""The alarm from label to webhook and back, in process, with real HTTP servers at the receiving end."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from service.__main__ import main
from service.alarm import ALARM, webhooks
from service.alarm import watch as watching
from service.alarm.watch import Watch
from service.alarm.webhooks import WebhookError, send
from service.app import create_app
from service.http import hashed_keys
from service.settings import Settings, Webhook, read_webhooks
from service.store import Store, StoreError, open_store
from service.store.rows import Label
from service.telemetry.metrics import Telemetry
from tests.service.alarms import ACKNOWLEDGE, alarm, all_wrong, fire
from tests.service.app_client import Client
from tests.service.hooks import Hook, until
from tests.service.store.conftest import address as address
from tests.service.store.rows import batch, version
from tests.service.tiny_bundle import pictures
from trueodds.bundle.contents import shadow_of


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watching, "FIRST_PAUSE_MS", 40)


def test_an_alarm_is_told_once_and_seen_everywhere(serve: Callable[..., Client], hook: Hook) -> None:
    limits = {"alarm_webhook": f"{hook.url}?a=1, {hook.url}/two", "alarm_url": "https://odds.example.org/"}
    client = serve(limits)
    assert alarm(client)["reading"] == "No alarm: no labels have arrived yet."
    version = fire(client)
    until(lambda: len(hook.calls) == 2)
    assert sorted(call.path for call in hook.calls) == ["/hook/two", "/hook?a=1"]
    body, report = hook.calls[0].body, client.report()
    ece = report["alarm"]["nulls"][0]
    assert hook.calls[0].headers["idempotency-key"] == body["id"] == hook.calls[1].body["id"]
    assert (body["type"], body["model"], body["version"], body["null"]) == ("calibration-alarm", "tiny", version, "ece")
    assert (body["fired_after"], body["threshold"], body["tolerance"]) == (ece["fired_after"], 20.0, 0.02)
    assert (body["ece"], body["reading"]) == (report["ece"], report["alarm"]["reading"])
    assert body["log_e"] >= math.log(20) and body["fired_at"][:19] == ece["fired_at"][:19]
    assert body["report_url"] == f"https://odds.example.org/calibration-report?model=tiny&version={version}"
    all_wrong(client, 120, seed=1)
    until(lambda: alarm(client)["nulls"][0]["labels"] == 200)
    advice = client.report()["advice"]
    assert (advice["helps"], advice["labels"]) == ("yes", 200)
    assert "--url https://odds.example.org --model tiny" in advice["command"]
    text = client.get("/metrics").text
    for line in (
        f'trueodds_calibration_alarm{{model="tiny",version="{version}"}} 2.0',
        f'trueodds_calibration_log_evalue{{model="tiny",null="point",version="{version}"}}',
        f'trueodds_calibration_ece_lower{{model="tiny",version="{version}"}} {client.report()["ece_lower"]!r}',
        f'trueodds_calibration_ece_upper{{model="tiny",version="{version}"}} {client.report()["ece_upper"]!r}',
        f'trueodds_label_age_seconds{{model="tiny",version="{version}"}} ',
        f'trueodds_label_coverage{{model="tiny",version="{version}"}} 1.0',
    ):
        assert line in text
    assert len(hook.calls) == 2


def test_corrections_change_sums_and_not_evidence(client: Client) -> None:
    predictions = client.predict(pictures(80))
    gauge = f'trueodds_calibration_ece{{model="tiny",version="{client.report()["version"]}"}} '
    client.label([{"id": p["id"], "index": (p["index"] + 1) % 4} for p in predictions])
    until(lambda: alarm(client)["state"] == "fired")
    before, wrong = alarm(client), client.report()["ece"]
    assert f"{gauge}{wrong!r}" in client.get("/metrics").text
    client.label([{"id": p["id"], "index": p["index"], "correct": True} for p in predictions])
    after = client.report()
    assert (after["accuracy"], after["labelled"]) == (1, 80)
    assert f"{gauge}{after['ece']!r}" in client.get("/metrics").text  # though it may keep the interval
    client.run(asyncio.sleep(0.1))
    corrected = alarm(client)
    assert corrected.pop("reading").removeprefix(before.pop("reading")).startswith(" Some labels were corrected")
    assert corrected == before


def test_a_webhook_is_tried_until_it_takes_the_news(serve: Callable[..., Client], hook: Hook) -> None:
    hook.answers, hook.seconds = [500, 500, *[302] * 100], 0.05
    client = serve({"alarm_webhook": hook.url})
    fire(client)
    until(lambda: "A webhook has not accepted the message yet" in alarm(client)["reading"])
    until(lambda: len(hook.calls) >= 3)
    hook.answers.clear()
    until(lambda: "webhook" not in alarm(client)["reading"])
    pauses = np.diff([call.began for call in hook.calls])
    assert (pauses[:3] > [0.04, 0.08, 0.16]).all()
    assert {call.headers["idempotency-key"] for call in hook.calls} == {hook.calls[0].body["id"]}


def test_an_alarm_that_is_open_at_the_start_is_told(settings: Settings, hook: Hook) -> None:
    """The webhook was set, or the service came back, after the alarm; once acknowledged, a new webhook is not told."""
    with Client(create_app(settings)) as client:
        name = fire(client)
    with Client(create_app(settings.model_copy(update={"alarm_webhook": read_webhooks(hook.url)}))) as client:
        until(lambda: hook.calls)
        body = {"model": "tiny", "version": name, "who": "Ada", "why": "seen"}
        assert client.post(ACKNOWLEDGE, json=body).status_code == 200
    with Client(
        create_app(settings.model_copy(update={"alarm_webhook": read_webhooks(f"{hook.url},{hook.url}/new")}))
    ) as client:
        client.run(asyncio.sleep(0.3))
    assert [call.path for call in hook.calls] == ["/hook"]


def test_a_prefect_deployment_is_run(serve: Callable[..., Client], hook: Hook) -> None:
    """As Prefect's API has it: the deployment by its name, then a run with parameters and an idempotency key."""
    hook.reply = {"id": "11111111-2222-3333-4444-555555555555"}
    base = hook.url.removesuffix("/hook")
    version = fire(serve({"alarm_webhook": f"prefect+{base}/api/deployments/name/recalibrate/live"}))
    until(lambda: len(hook.calls) == 2)
    get, post = hook.calls
    assert (get.method, get.path) == ("GET", "/api/deployments/name/recalibrate/live")
    assert (post.method, post.path) == ("POST", f"/api/deployments/{hook.reply['id']}/create_flow_run")
    assert post.body["parameters"] == {"model": "tiny", "version": version, "reason": post.body["parameters"]["reason"]}
    assert post.body["parameters"]["reason"].startswith("ALARM: the calibration error")
    assert len(post.body["idempotency_key"]) == 32


def test_a_busy_prefect_gets_the_news_in_the_next_tries(serve: Callable[..., Client], hook: Hook) -> None:
    """503: its database is busy for the moment. However often it is asked, one key makes one run."""
    hook.reply, hook.answers = {"id": "11111111-2222-3333-4444-555555555555"}, [503, 200, 503]
    base = hook.url.removesuffix("/hook")
    client = serve({"alarm_webhook": f"prefect+{base}/api/deployments/name/recalibrate/live"})
    fire(client)
    until(lambda: len(hook.calls) == 5)
    until(lambda: "webhook" not in alarm(client)["reading"])
    assert [call.method for call in hook.calls] == ["GET", "GET", "POST", "GET", "POST"]
    first, second = (call.body for call in hook.calls if call.method == "POST")
    assert first == second and len(first["idempotency_key"]) == 32


def test_the_way_of_an_alarm_can_be_tried(serve: Callable[..., Client], hook: Hook) -> None:
    hook.reply = {"id": "11111111-2222-3333-4444-555555555555"}
    base, key = hook.url.removesuffix("/hook"), hashed_keys.make()
    hooks = f"prefect+{base}/api/deployments/name/recalibrate/live,{hook.url},http://127.0.0.1:1/token"
    client = serve({"alarm_webhook": hooks, "admin_key_hash": key[1]})
    assert client.post("/admin/alarm/test").status_code == 401
    tries = client.post("/admin/alarm/test", headers={"authorization": f"Bearer {key[0]}"}).json()["webhooks"]
    assert [(one["taken"], one["flow_run"]) for one in tries] == [(True, hook.reply["id"]), (True, None), (False, None)]
    assert "cannot be reached" in tries[2]["problem"] and "token" not in str(tries)
    run, plain = (next(c for c in hook.calls if c.path.endswith(end)) for end in ("/create_flow_run", "/hook"))
    assert run.body["parameters"]["dry_run"] is True, "nothing is recalibrated"
    assert plain.body["type"] == "calibration-alarm-test"
    authorized = {"authorization": f"Bearer {key[0]}"}
    assert client.get("/calibration-report", headers=authorized).json()["alarm"]["state"] == "quiet"
    text, counted = client.get("/metrics", headers=authorized).text, "trueodds_webhook_deliveries_total"
    assert f'{counted}{{outcome="delivered",webhook="{base}"}} 2.0' in text
    assert f'{counted}{{outcome="failed",webhook="{base}"}} 0.0' in text, "counted from 0 on, for alert rules"
    assert f'{counted}{{outcome="failed",webhook="http://127.0.0.1:1"}} 1.0' in text and "token" not in text
    last = re.findall(r'trueodds_webhook_last_delivery_timestamp_seconds{webhook="(.+)"} (\S+)', text)
    assert [name for name, _ in last] == [base] and abs(time.time() - float(last[0][1])) < 60


def test_a_recalibration_without_a_decision_is_counted_and_told(serve: Callable[..., Client], hook: Hook) -> None:
    base, key = hook.url.removesuffix("/hook"), hashed_keys.make()
    hooks = f"prefect+{base}/api/deployments/name/recalibrate/live,{hook.url}"
    client = serve({"alarm_webhook": hooks, "admin_key_hash": key[1]})
    body = {"model": "tiny", "version": None, "who": "flow run red-fox", "why": "alarm 7 Failed: no such folder"}
    assert client.post("/admin/recalibration/undecided", json=body).status_code == 401
    authorized = {"authorization": f"Bearer {key[0]}"}
    counted = "trueodds_recalibrations_undecided_total"
    assert f"{counted} 0.0" in client.get("/metrics", headers=authorized).text
    told = client.post("/admin/recalibration/undecided", json=body, headers=authorized).json()["webhooks"]
    assert [one["taken"] for one in told] == [True]
    (call,) = hook.calls
    assert call.path == "/hook", "it starts no other recalibration"
    assert call.body["type"] == "recalibration-undecided" and call.body["model"] == "tiny"
    assert call.body["reading"].endswith("without a decision (flow run red-fox): alarm 7 Failed: no such folder")
    assert f"{counted} 1.0" in client.get("/metrics", headers=authorized).text


def test_what_is_wrong_with_a_webhook_is_said_without_its_secrets(hook: Hook) -> None:
    hook.reply, hook.answers = {"no": "id"}, [200, 403]
    base = hook.url.removesuffix("/hook").replace("http://", "http://user:word@")
    (prefect,) = read_webhooks(f"prefect+{base}/api/deployments/name/recalibrate/live")
    (plain,) = read_webhooks(f"{base}/token")
    for one, words in ((prefect, "does not answer like a Prefect server"), (plain, "answered 403 to POST"),
                       (Webhook("http://127.0.0.1:1/token", False), "cannot be reached")):  # fmt: skip
        with pytest.raises(WebhookError, match=words) as error:
            asyncio.run(send(one, {"type": "", "id": "x", "model": "m", "version": "v", "reading": "r"}))
        assert "token" not in str(error.value) and "word@" not in str(error.value)
    assert hook.calls[0].headers["authorization"].startswith("Basic ")
    assert prefect.key != plain.key and len(prefect.key) == 16


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("alarm_webhook", "https://x/ok,ftp://x/secret", "webhook 2 is not a URL"),
        ("alarm_webhook", "http://x:port/secret", "webhook 1 is not a URL"),
        ("alarm_webhook", "prefect+https://x/api/secret", "webhook 1 names no deployment"),
        ("alarm_url", "odds.example.org", "expected an address such as"),
        ("alarm_tolerance", 0.5, "less than 0.5"),
        ("alarm_alpha", 0, "greater than 0"),
        ("alarm_run_length", 19, "greater than or equal to 20"),
    ],
)
def test_bad_settings(setting: str, value: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words) as error:
        Settings(**{setting: value})
    assert "secret" not in error.value.errors()[0]["msg"]


def test_a_webhook_that_is_refused_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--alarm-webhook", "ftp://x/secret"]) == 2
    output = capsys.readouterr().err
    assert "alarm_webhook: " in output and "webhook 1 is not a URL" in output and "secret" not in output


def test_two_workers_never_call_at_once_and_a_dead_ones_claim_ends(
    address: str,
    hook: Hook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four watches on one store; they die while one calls, and one of four others calls again once its claim has ended.

    Claims last longer than the test on any machine, and end because the watches' clock is put forward.
    """
    forward_ms = 0
    monkeypatch.setattr(watching, "_now", lambda: time.time_ns() // 1_000_000 + forward_ms)
    monkeypatch.setattr(webhooks, "SEND_SECONDS", 100.0)
    monkeypatch.setattr(watching, "CLAIM_MS", 100_000)
    hook.gate.clear()

    async def main() -> None:
        nonlocal forward_ms
        stores = [await open_store(address) for _ in range(4)]
        chosen = Settings(alarm_webhook=hook.url)
        tasks = [asyncio.create_task(Watch(store, chosen, Telemetry()).keep_watching()) for store in stores]
        await answered_wrong(stores[0], "m")
        while not hook.calls:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        state = await stores[0].read_state("m", "v1", ALARM)
        (delivery,) = state["deliveries"].values()
        assert delivery["claimed_by"] and not delivery["delivered_ms"]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # all die, in the middle of a call
        hook.gate.set()
        tasks = [asyncio.create_task(Watch(store, chosen, Telemetry()).keep_watching()) for store in stores]
        await asyncio.sleep(0.3)
        assert len(hook.calls) == 1
        forward_ms = 100_000 + watching.SKEW_MS
        while not delivery["delivered_ms"]:
            await asyncio.sleep(0.05)
            (delivery,) = (await stores[0].read_state("m", "v1", ALARM))["deliveries"].values()
        await asyncio.sleep(0.3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for store in stores:
            await store.close()

    asyncio.run(asyncio.wait_for(main(), 300))
    first, second = hook.calls
    assert second.body["id"] == first.body["id"]


async def while_one_calls(folder: Path, hook: Hook) -> tuple[Store, Watch]:
    """A store with a watch whose call waits for the hook's answer, and another watch on this store."""
    store = await open_store(str(folder / "store.sqlite"))
    first, second = (Watch(store, Settings(alarm_webhook=hook.url), Telemetry()) for _ in range(2))
    await answered_wrong(store, "m")
    await first.poll()
    while not hook.calls:
        await asyncio.sleep(0.01)
    return store, second


@pytest.mark.parametrize("apart_ms", [-10_000, 10_000])
def test_a_claim_holds_where_clocks_disagree(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch, apart_ms: int
) -> None:
    """A second watch, on a replica whose clock is behind or ahead, does not call while the first does."""
    hook.gate.clear()

    async def main() -> None:
        store, second = await while_one_calls(tmp_path, hook)
        with monkeypatch.context() as other:
            other.setattr(watching, "_now", lambda: time.time_ns() // 1_000_000 + apart_ms)
            await second.poll()
            await asyncio.sleep(0.2)
        hook.gate.set()
        while '"delivered_ms": null' in json.dumps(await store.read_state("m", "v1", ALARM)):
            await asyncio.sleep(0.01)
        await store.close()

    asyncio.run(asyncio.wait_for(main(), 300))
    assert len(hook.calls) == 1


def test_a_call_that_another_worker_repeats_is_said(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first one's claim has ended, by the clock of the second, before the first has recorded its call."""
    hook.gate.clear()

    async def main() -> None:
        store, second = await while_one_calls(tmp_path, hook)
        with monkeypatch.context() as other:
            late_ms = watching.CLAIM_MS + watching.SKEW_MS
            other.setattr(watching, "_now", lambda: time.time_ns() // 1_000_000 + late_ms)
            await second.poll()
            while len(hook.calls) < 2:
                await asyncio.sleep(0.01)
        hook.gate.set()
        while "it may be repeated" not in caplog.text:
            await asyncio.sleep(0.01)
        while '"delivered_ms": null' in json.dumps(await store.read_state("m", "v1", ALARM)):
            await asyncio.sleep(0.01)
        await store.close()

    asyncio.run(asyncio.wait_for(main(), 300))
    one, other = hook.calls
    assert one.body["id"] == other.body["id"] and caplog.text.count("it may be repeated") == 1


def test_a_call_is_recorded_once_the_store_is_back(tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store fails twice after the webhook has answered: the call is recorded, and not repeated."""
    monkeypatch.setattr(watching, "RECORD_MS", 10)
    failures = 2

    async def main() -> None:
        store = await open_store(str(tmp_path / "store.sqlite"))
        await answered_wrong(store, "m")
        update = store.update_state

        async def failing(*arguments: Any, **options: Any) -> Any:
            nonlocal failures
            if hook.calls and failures:
                failures -= 1
                raise StoreError("the store is overloaded; try again later")
            return await update(*arguments, **options)

        monkeypatch.setattr(store, "update_state", failing)
        watch = Watch(store, Settings(alarm_webhook=hook.url), Telemetry())
        await watch.poll()
        while not hook.calls or '"delivered_ms": null' in json.dumps(await store.read_state("m", "v1", ALARM)):
            await asyncio.sleep(0.01)
        await watch.poll()
        await store.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert failures == 0 and len(hook.calls) == 1


def test_a_call_ends_with_its_claim(tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the way to the call took: from then on another worker may call."""
    monkeypatch.setattr(watching, "CLAIM_MS", 200)
    hook.gate.clear()

    async def main() -> None:
        store = await open_store(str(tmp_path / "store.sqlite"))
        await answered_wrong(store, "m")
        watch = Watch(store, Settings(alarm_webhook=hook.url), Telemetry())
        while "did not accept the message within 0.2 s" not in json.dumps(await store.read_state("m", "v1", ALARM)):
            await watch.poll()
            await asyncio.sleep(0.01)
        hook.gate.set()
        monkeypatch.setattr(watching, "CLAIM_MS", 100_000)
        while '"delivered_ms": null' in json.dumps(await store.read_state("m", "v1", ALARM)):
            await watch.poll()
            await asyncio.sleep(0.01)
        await store.close()

    asyncio.run(asyncio.wait_for(main(), 300))


def test_all_workers_keep_the_pause_after_a_failure(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "FIRST_PAUSE_MS", 500)
    hook.answers = [500]

    async def main() -> None:
        store = await open_store(str(tmp_path / "store.sqlite"))
        await answered_wrong(store, "m")
        first, second = (Watch(store, Settings(alarm_webhook=hook.url), Telemetry()) for _ in range(2))
        await first.poll()
        while '"problem": "http' not in json.dumps(await store.read_state("m", "v1", ALARM)):
            await asyncio.sleep(0.01)
        while len(hook.calls) < 2:  # the second has just been started
            await second.poll()
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        await store.close()

    asyncio.run(asyncio.wait_for(main(), 300))
    assert hook.calls[1].began - hook.calls[0].ended >= 0.45


async def answered_wrong(store: Any, model: str, count: int = 100, *, shadow: bool = False) -> None:
    """Predictions of a model, and of a shadow, with labels that all say they were wrong."""
    of = version(model=model)
    await store.put_version(of)
    answers = batch(count, of, seed=len(model))
    await store.put_predictions(answers)
    if shadow:
        await store.put_version(version("v2", shadow_of(model)))
        await store.put_predictions(replace(answers, model=shadow_of(model), version="v2"))
    wrong = [int(k + 1) % 3 for k in answers.index_N]
    await store.put_labels([Label(i, k) for i, k in zip(answers.ids, wrong, strict=True)])


async def test_a_shadow_gets_evidence_and_pages_nobody(tmp_path: Path, hook: Hook) -> None:
    store = await open_store(str(tmp_path / "store.sqlite"))
    await answered_wrong(store, "m", shadow=True)
    assert await store.read_progress(ALARM) == [("m", "v1", 100, 0), ("m~shadow", "v2", 100, 0)]
    watch = Watch(store, Settings(alarm_webhook=hook.url), Telemetry())
    await watch.poll()
    assert await store.read_progress(ALARM) == [("m", "v1", 100, 100), ("m~shadow", "v2", 100, 100)]
    while not hook.calls:
        await asyncio.sleep(0.02)
        await watch.poll()
    await asyncio.sleep(0.2)
    state = await store.read_state(shadow_of("m"), "v2", ALARM)
    assert state["nulls"]["ece"]["fired"] and not state["deliveries"]
    await store.close()
    assert [call.body["model"] for call in hook.calls] == ["m"]


async def test_trouble_is_logged_once_and_the_watch_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    store = await open_store(str(tmp_path / "store.sqlite"))
    await answered_wrong(store, "m")
    await answered_wrong(store, "well")
    await store.update_state("m", "v1", ALARM, lambda tree, block: {"form": 7})
    await store.put_labels([Label((await store.read_labels("m", "v1")).ids[0], 0, correct=True)])
    more = batch(1, version(model="m"), seed=9)
    await store.put_predictions(more)
    await store.put_labels([Label(more.ids[0], 0)])
    watch = Watch(store, Settings(), Telemetry())
    for _ in range(3):
        await watch.poll()
    assert caplog.text.count("damaged or of another release") == 1
    assert (await store.read_state("m", "v1", ALARM)) == {"form": 7}
    assert (await store.read_state("well", "v1", ALARM))["labels"] == 100
    caplog.clear()
    read = Store.read_progress

    async def fails(*_: object) -> Any:
        raise StoreError("the store cannot be read: disk I/O error")

    monkeypatch.setattr(Store, "read_progress", fails)
    for _ in range(3):
        await watch.poll()
    assert caplog.text.count("disk I/O error") == 1
    monkeypatch.setattr(Store, "read_progress", read)
    await watch.poll()
    assert caplog.text.count("damaged or of another release") == 1  # it is said again after other trouble
    await store.close()
