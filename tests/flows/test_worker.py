"""Prefect's worker as it is mended here, without a server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import anyio
import httpx
import psutil
import pytest
from prefect.workers.process import ProcessWorker

from pipeline.flows import server, worker


def test_a_retry_that_comes_before_the_death_is_dealt_with_does_not_end_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProcessWorker, "_submit_scheduled_flow_runs", ProcessWorker._submit_scheduled_flow_runs)
    worker.leave_held()  # monkeypatch puts back what was there
    retried: Any = SimpleNamespace(flow_run=SimpleNamespace(id=uuid4()))

    async def hand_over() -> list[Any]:
        process_worker = ProcessWorker(work_pool_name=server.POOL, limit=1)
        process_worker._limiter = anyio.CapacityLimiter(1)
        process_worker._limiter.acquire_on_behalf_of_nowait(retried.flow_run.id)
        return await process_worker._submit_scheduled_flow_runs([retried])

    assert asyncio.run(hand_over()) == []


def test_a_worker_that_hangs_with_a_flow_that_has_ended_is_idle(capsys: pytest.CaptureFixture[str]) -> None:
    script = "import subprocess, time; kept = subprocess.Popen(['true']); time.sleep(60)"  # reaps none
    with psutil.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL) as process:
        begin = time.monotonic()
        while [child.status() for child in process.children()] != [psutil.STATUS_ZOMBIE]:
            assert time.monotonic() - begin < 60
            time.sleep(0.02)
        server._stop_idle(process, "a test")
    assert "worker: restarting, because a test" in capsys.readouterr().out


def test_what_has_ended_and_nobody_reaps_is_not_waited_for() -> None:
    script = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    with psutil.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        orphan, begin = psutil.Process(int(parent.stdout.readline())), time.monotonic()
        server._end(orphan)
        assert time.monotonic() - begin < 10 and orphan.status() == psutil.STATUS_ZOMBIE
        parent.kill()


def test_where_the_server_is_too_busy_to_say_what_it_has_all_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / server.STATE).mkdir()
    (tmp_path / server.STATE / server.REGISTERED).write_text('{"code": "", "server": {}}')
    busy = httpx.MockTransport(lambda request: httpx.Response(503))
    monkeypatch.setattr(httpx, "Client", partial(httpx.Client, transport=busy))
    assert not server._is_registered(tmp_path, "http://busy.example/api")


def test_what_has_ended_does_not_live_and_can_be_ended_again() -> None:
    with psutil.Popen(["true"]) as process:
        pass
    assert not server.lives(process)
    server._end(process)


def test_a_worker_that_ends_while_it_is_looked_at_is_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psutil.Popen(["true"]) as process:
        pass
    started = list[str]()
    monkeypatch.setattr(server, "_alive", lambda record: process)
    monkeypatch.setattr(server, "healthy", lambda url: True)
    monkeypatch.setattr(server, "_is_registered", lambda home, url: True)
    monkeypatch.setattr(server, "_start", lambda home, name, *_, **__: started.append(name))
    server.up(tmp_path, "http://127.0.0.1:1/api")
    assert started == ["worker"]
