"""Where the time of an answer goes: processor time by thread and by layer, under load.

    apt-get install wrk
    python -m benchmarks.serving_layers              # a minute; writes benchmarks/results/serving_layers.json
    python -m benchmarks.serving_layers --quick      # one second each: does it work?
    python -m benchmarks.serving_layers --table

One process serves an untrained net, PNG in JSON as benchmarks.serving sends it; wrk beside it keeps so many connections
busy. Threads: what the kernel counted of each, by answer. Layers: the same functions called alone, with warm caches,
the least of many medians; HTTP is a server that answers as many bytes without looking at any. "the rest" is what a
thread took beyond its layers: routing, request objects, waking up, and caches that others have emptied.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from starlette.types import Receive, Scope, Send

from benchmarks import load, servers, serving, untrained
from benchmarks.interval_coverage import processor
from benchmarks.metrics import commit, installed
from service.app import create_app
from service.http import json_body, server
from service.models.calls import PredictionCall, PredictionResult
from service.models.model import Model
from service.predict.options import Options
from service.predict.route import encode
from service.settings import Settings
from trueodds.inputs import Limits

RESULT = Path(__file__).parent / "results" / "serving_layers.json"
NETS, CONNECTIONS = ("resnet8", "resnet20"), (1, 8, 32)
REPEATS, CALLS = 30, 50
TICKS = os.sysconf("SC_CLK_TCK")


def threads() -> dict[str, float]:
    """Seconds of processor time that the kernel counts, by the name of the thread; workers of a pool together."""
    seconds: dict[str, float] = {}
    for thread in threading.enumerate():
        with contextlib.suppress(OSError):  # it has ended since
            fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
            seconds[thread.name] = seconds.get(thread.name, 0.0) + (int(fields[11]) + int(fields[12])) / TICKS
    return seconds


class Server(server.Server):
    """A server on a thread of this process."""

    def __init__(self, app: Any) -> None:
        super().__init__(
            server.Config(
                app,
                port=0,
                ws="none",
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                timeout_graceful_shutdown=2,
            )
        )

    @contextlib.contextmanager
    def on_thread(self) -> Iterator[str]:
        thread = threading.Thread(target=self.run, name="event loop")
        thread.start()
        try:
            while not self.started:
                if not thread.is_alive():
                    raise load.LoadError("the server has not started")
                time.sleep(0.01)
            yield f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/predict"
        finally:
            self.should_exit = True
            thread.join()


def canned(answer: bytes) -> Any:
    """An application that reads the body and answers always the same."""
    headers = [(b"content-length", str(len(answer)).encode()), (b"content-type", json_body.JSON.encode())]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app


def under_load(url: str, body: Path, connections: int, seconds: float) -> tuple[load.Load, dict[str, float]]:
    """Answers per second, and microseconds of each thread by answer."""
    load.wrk(url, body, connections, 1)
    before = threads()
    measured = load.wrk(url, body, connections, seconds)
    after = threads()
    spent = {name: 1e6 * (taken - before.get(name, 0.0)) / measured.requests for name, taken in after.items()}
    return measured, {name: round(us, 1) for name, us in spent.items() if us >= 1}


def alone(call: Callable[[], object], per: int = 1) -> float:
    """Microseconds of processor time, by answer where a call is of several."""
    times = []
    for _ in range(REPEATS):
        began = time.thread_time()
        for _ in range(CALLS):
            call()
        times.append((time.thread_time() - began) / CALLS)
    return round(1e6 * min(times) / per, 1)


def layers(model: Model, body: bytes, batch: int) -> dict[str, dict[str, float]]:
    """By thread and layer."""
    kind, limits = model.bundle.card.input, Limits(256, 10**7)
    tree = json_body.parse(body, 10**6)
    inputs = kind.from_json(tree["instances"], limits)
    many = kind.join([inputs] * batch)
    scores = model.score(inputs)
    result = PredictionResult(
        ids=["0" * 32],
        logits_NC=scores.logits_NC,
        probabilities_NC=scores.probabilities_NC,
        index_N=scores.index_N,
        version=model.version,
        tags=[None],
        propensities=[None],
        repeated={},
    )
    call = PredictionCall(inputs, "r")
    engine: Any = type(
        "Answering", (), {"version": model.version, "audit_share": 0.0, "input": kind, "card": model.bundle.card}
    )
    logits = alone(lambda: model.logits(many), batch)
    return {
        "event loop": {
            "JSON in": alone(lambda: json_body.parse(body, 10**6)),
            "base64 and PNG": alone(lambda: kind.from_json(tree["instances"], limits)),
            "JSON out": alone(lambda: encode(result, Options(), engine, call)),
        },
        "model": {
            "onnxruntime": logits,
            "calibrator and confidence": round(alone(lambda: model.score(many), batch) - logits, 1),
        },
    }


def batch_size(url: str) -> tuple[float, float]:
    """Images and batches so far."""
    text = httpx.get(f"{url.removesuffix('/predict')}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("trueodds_batch_images_")]
    found = {line.split("{")[0]: float(line.rpartition(" ")[2]) for line in lines}
    return found["trueodds_batch_images_sum"], found["trueodds_batch_images_count"]


def measure(net: str, folder: Path, seconds: float) -> list[dict[str, Any]]:
    """A row for each number of connections."""
    body = serving.bodies(folder)["png"]
    published = untrained.publish(net, folder / net, classes=serving.CLASSES, temperature=servers.TEMPERATURE)
    app = create_app(Settings(models=published.parents[1], store=str(folder / f"{net}.sqlite")))
    model, rows = Model.load(published, 1), []
    with Server(app).on_thread() as url:
        answer = load.post(url, body.read_bytes())
        loaded = []
        for connections in CONNECTIONS:
            before = batch_size(url)
            found = under_load(url, body, connections, seconds)
            images, batches = (b - a for a, b in zip(before, batch_size(url), strict=True))
            loaded.append((connections, *found, images / batches))
    with Server(canned(answer)).on_thread() as url:
        http = {connections: under_load(url, body, connections, seconds)[1] for connections in CONNECTIONS}
    for connections, measured, spent, batch in loaded:
        parts = layers(model, body.read_bytes(), round(batch))
        parts["event loop"] = {"HTTP": http[connections]["event loop"], **parts["event loop"]}
        for thread, known in parts.items():
            known["the rest"] = round(spent.get(thread, 0.0) - sum(known.values()), 1)
        rows.append(
            {
                "net": net,
                "connections": connections,
                "rps": round(measured.rps),
                "batch": round(batch, 1),
                "threads": spent,
                "layers": parts,
            }
        )
        print(f"{net}, {connections}: {measured.rps:.0f}/s, {spent}", file=sys.stderr)
    return rows


def markdown(result: dict[str, Any]) -> str:
    """Microseconds of an answer by thread and layer."""
    rows = result["rows"]
    heads = [f"{row['net']}, {row['connections']}" for row in rows]
    lines = [f"| thread: layer | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]

    def line(name: str, values: list[Any]) -> None:
        lines.append(f"| {name} | {' | '.join(str(value) for value in values)} |")

    line("answers a second", [f"{row['rps']:,}" for row in rows])
    line("images in a batch", [row["batch"] for row in rows])
    for thread in dict.fromkeys(name for row in rows for name in row["threads"]):
        line(f"**{thread}**", [f"**{row['threads'].get(thread, 0):.0f}**" for row in rows])
        for layer in rows[0]["layers"].get(thread, ()):
            line(f"{thread}: {layer}", [f"{row['layers'][thread][layer]:.0f}" for row in rows])
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the committed result as a table; measure nothing")
    parser.add_argument("--quick", action="store_true", help="one net, one second each: does it work?")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    if options.table:
        print(markdown(json.loads(options.out.read_text(encoding="utf-8"))))
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for net in NETS[:1] if options.quick else NETS:
            rows += measure(net, Path(folder), 1.0 if options.quick else 5.0)
    result = {
        "command": shlex.join(["python", "-m", "benchmarks.serving_layers", *sys.argv[1:]]),
        "commit": commit(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {
            "python": platform.python_version(),
            **{name: installed(name) for name in ("onnxruntime", "uvicorn", "orjson", "uvloop", "pyspng-seunglab")},
        },
        "rows": rows,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(markdown(result))
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
