"""A real server process: `python -m service`, over real sockets, killed and started again."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from service.telemetry import worker_files
from tests.service.hooks import until
from tests.service.tiny_bundle import pictures, write_bundle
from trueodds.bundle import open_models

ROOT = Path(__file__).parents[2]


@contextmanager
def server(folder: Path, *options: str) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """A server on a free port with its store in `folder`; ends by SIGTERM if it has not ended before."""
    url_file = folder / "url"
    url_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "service", "--port", "0", "--models", str(folder / "models")]
    command += ["--store", str(folder / "store.sqlite"), "--url-file", str(url_file), "--threads", "1", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 300  # five processes of tests share two cores
        while not url_file.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert url_file.exists(), process.communicate(timeout=10)
        with httpx.Client(base_url=url_file.read_text().strip(), timeout=60) as client:
            yield client, process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle"))
    return tmp_path


def predict(client: httpx.Client, instances: Any) -> list[dict[str, Any]]:
    answer = client.post("/predict", json={"instances": instances})
    assert answer.status_code == 200, answer.text
    predictions: list[dict[str, Any]] = answer.json()["predictions"]
    return predictions


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_says_where_it_is_and_ends_in_order(folder: Path, number: signal.Signals) -> None:
    with server(folder) as (client, process):
        assert client.get("/health/ready").status_code == 200
        predict(client, pictures(2))
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
        assert out.splitlines()[0] == f"TrueOdds is serving on {str(client.base_url).rstrip('/')}"
        assert (process.returncode, err) == (0, "")
    assert not (folder / "store.sqlite-wal").exists()


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="a pipe without a reader is another error there")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ends_in_order_where_nobody_reads_the_address(folder: Path, workers: str) -> None:
    """`trueodds serve | head -0`. No `--url-file`: whoever starts it so could not know where it is."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "service", "--port", "0", "--models", str(folder / "models"), "--threads", "1"]
    command += ["--store", str(folder / "store.sqlite"), "--workers", workers]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
    assert not (folder / "store.sqlite-wal").exists()


@pytest.mark.full
def test_a_restart_keeps_the_report(folder: Path) -> None:
    with server(folder) as (client, _):
        rows = [{"id": p["id"], "index": 1} for p in predict(client, pictures(20))]
        client.post("/feedback", json={"labels": rows})
        until(lambda: client.get("/calibration-report").json()["alarm"]["nulls"][0]["labels"] == 20)
        before = client.get("/calibration-report").json()
    with server(folder) as (client, _):
        assert client.get("/calibration-report").json() == before


@pytest.mark.full
def test_ready_after_a_bundle_is_published(tmp_path: Path) -> None:
    with server(tmp_path) as (client, _):
        assert client.get("/health/ready").status_code == 503
        open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle"))
        until(lambda: client.get("/health/ready").status_code != 503)
        assert len(predict(client, pictures(1))) == 1


@pytest.mark.full
def test_refusals_reach_clients_that_are_still_sending_or_never_do(folder: Path) -> None:
    """urllib closes the connection after an answer, and does not look for one before everything is sent."""
    with server(folder, "--max-body-bytes", "2000000", "--body-seconds", "1") as (client, _):
        for kind, status in (("text/x", 415), ("application/json", 413)):
            request = urllib.request.Request(f"{client.base_url}/predict", b" " * 7_000_000, {"content-type": kind})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=60)
            assert refused.value.code == status
        assert b"2,000,000 bytes" in refused.value.read()
        head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        with socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=10) as slow:
            slow.sendall(head)
            answer = slow.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 408") and b"did not arrive within 1 s" in answer
        with socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=10) as gone:
            gone.sendall(head)
        until(lambda: 'status="499"' in client.get("/metrics").text)
        large = client.post("/predict", content=b" " * 2_000_001, headers={"content-type": "application/json"})
        assert (large.status_code, client.get("/health/live").status_code) == (413, 200)


@pytest.mark.full
def test_several_workers_share_the_port_the_store_and_the_counts(folder: Path) -> None:
    with server(folder, "--workers", "2") as (client, process):
        workers = psutil.Process(process.pid).children(recursive=True)
        for k in range(30):  # new connections: the kernel spreads them
            with httpx.Client(base_url=client.base_url, timeout=60) as mine:
                predictions = predict(mine, pictures(2, seed=k))
                assert mine.post("/feedback", json={"id": predictions[0]["id"], "index": 1}).status_code == 200
        texts = {line for _ in range(4) for line in httpx.get(f"{client.base_url}/metrics").text.splitlines()}
        version = client.get("/calibration-report").json()["version"]
        key = f'{{model="tiny",version="{version}"}}'
        assert f"trueodds_predictions_total{key} 60.0" in texts
        assert f"trueodds_answers{key} 60.0" in texts
        assert 'trueodds_labels_total{outcome="stored"} 30.0' in texts
        resident = re.findall(r'process_resident_memory_bytes{pid="(\d+)"} (\S+)', "\n".join(texts))
        serving = [worker.pid for worker in workers if "resource_tracker" not in " ".join(worker.cmdline())]
        assert {int(pid) for pid, _ in resident} == {process.pid, *serving} and len(serving) == 2
        assert all(float(size) > 10_000_000 for _, size in resident), "whichever worker was asked, it says it of each"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")
    # The tracker that multiprocessing starts beside the workers ends a moment after the process it watches.
    assert len(workers) >= 2 and psutil.wait_procs(workers, timeout=300)[1] == []


@pytest.mark.full
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_loses_no_request_that_has_come(folder: Path, workers: int) -> None:
    """They stand still meanwhile, so that all waits with the system: to be accepted, and to be read."""
    with server(folder, "--workers", str(workers)) as (client, process):
        address = client.base_url.host, client.base_url.port or 0
        request = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n"
        parent = psutil.Process(process.pid)
        children = [child for child in parent.children() if "resource_tracker" not in " ".join(child.cmdline())]
        kept = [socket.create_connection(address, timeout=60) for _ in range(8)]
        for connection in kept:
            connection.sendall(request)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        for one in children or [parent]:
            one.suspend()
        new = [socket.create_connection(address, timeout=60) for _ in range(50)]
        for connection in kept + new:
            connection.sendall(request)
        process.send_signal(signal.SIGTERM)
        time.sleep(1)  # the supervisor looks for signals every half second
        for one in children or [parent]:
            one.resume()
        answers = []
        for connection in kept + new:
            with connection, connection.makefile("rb") as file:
                answers.append(file.read())
        assert all(answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"}") for answer in answers)


@pytest.mark.full
def test_workers_end_when_their_parent_is_killed(folder: Path) -> None:
    with server(folder, "--workers", "2") as (_, process):
        workers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert len(workers) >= 2 and psutil.wait_procs(workers, timeout=300)[1] == []


def test_folders_of_metrics_that_killed_services_left_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "from service.telemetry.worker_files import *\n"
    code += "with shared_folder() as folder: print(folder, flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        used = Path(other.stdout.readline().strip())
        (used / "counter_1.db").touch()
        with worker_files.shared_folder() as own:
            assert {*tmp_path.iterdir()} == {used, own}
        worker = worker_files.hold(used)
        other.kill()
        other.wait()
        worker_files.remove_abandoned_folders()
        assert [*tmp_path.iterdir()] == [used]
    os.close(worker)
    with worker_files.shared_folder() as own:
        assert [*tmp_path.iterdir()] == [own]
    assert not [*tmp_path.iterdir()]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--port", "70000"], "port = '70000'"),
        (["--url-file", "/nowhere/url"], "the folder /nowhere does not exist"),
        (["--host", "203.0.113.1"], "cannot listen on 203.0.113.1:0"),
        (["--store", "/proc/none/x.sqlite"], "the store /proc/none/x.sqlite cannot be opened"),
    ],
)
def test_clear_words_when_it_cannot_start(folder: Path, options: list[str], words: str) -> None:
    command = [sys.executable, "-m", "service", "--port", "0", "--models", str(folder / "models")]
    command += ["--store", str(folder / "store.sqlite"), *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode != 0
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
