"""Processor time of one answer, by process and by layer: our service beside mosec that stores as ours does.

    python -m venv .peers && .peers/bin/pip install mosec onnxruntime pillow orjson py-spy
    apt-get install wrk
    python -m benchmarks.serving.layers --peers .peers/bin/python --seconds 3

All servers of a net are up, and those that are not measured are stopped. In turns, each is loaded by 32 connections
with a PNG in JSON. The kernel counts the processor time of processes and threads. Then py-spy samples threads of the
Python processes that run or wait for the disk. Each sample belongs to the layer of its innermost known frame. mosec's
front is in Rust, so samples do not show it.

Requests per second are relative, and mean something only on cores without other work. Processor time also grows on
busy cores, because their caches are shared, but for all servers alike.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks import untrained
from benchmarks.record import RESULTS, circumstances, options_parser, write
from benchmarks.serving import load, servers
from benchmarks.serving.comparison import CLASSES, bodies
from benchmarks.serving.servers import OURS, PEERS, TEMPERATURE, TWO_WORKERS, Running, Variant
from trueodds.processes import privacy

RESULT = RESULTS / "serving_layers.json"
STORED = Variant("mosec, stored", {"BATCH": "16", "WAIT_MS": "1", "WORKERS": "2"})
CONNECTIONS = 32
FEWER = (1, 8)
"""Other numbers of connections, which are measured without layers."""
LAYERS = (
    ("net", ("onnxruntime/", "service/models/engine", "common.py:probabilities", "common.py:logits")),
    ("PNG", ("PIL/", "pyspng", "simplejpeg", "service/infer/", "trueodds/inputs/", "common.py:image", "common.py:row")),
    ("store", ("service/store/", "sqlite3", "service/predict/stor", "mosec_stored_server.py:forward")),
    ("batching", ("service/models/",)),
    ("HTTP and JSON of the service", ("service/", "fastapi/", "starlette/", "pydantic", "trueodds/")),
    ("event loop in C and sockets", ("asyncio/",)),
    ("HTTP of uvicorn", ("uvicorn/", "httptools")),
    ("mosec's worker", ("mosec/", "mosec_server.py", "common.py:answer")),
)
"""Layer -> signs of its frames, as `file:function`, from py-spy. The innermost frame with a sign decides."""
OTHER = "other threads"


THREAD = re.compile(r"thread \((\d+)\)")
KINDS = {
    "main_us": "main threads of Python",
    "other_us": "other threads of Python",
    "front_us": "front in Rust",
}
"""Microseconds of an answer by kind of thread, and the words for people."""


def layer_of(frames: list[str]) -> str:
    """Return the layer of a stack, whose last frame is the innermost one."""
    for frame in reversed(frames):
        name, _, place = frame.partition(" (")
        text = f"{place.rpartition(':')[0]}:{name.rpartition('.')[2]}"
        for layer, signs in LAYERS:
            if any(sign in text for sign in signs):
                return layer
    return OTHER


def shares(folded: str) -> dict[str, dict[str, float]]:
    """Return the share of each layer in the samples of each thread, by the thread's number.

    Args:
        folded: Samples as py-spy prints them, one line each: `thread (number): name;frame;...;frame count`.
    """
    counts: dict[str, Counter[str]] = {}
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if number := THREAD.search(thread):
            counts.setdefault(number[1], Counter())[layer_of(frames)] += int(count)
    return {
        thread: {layer: count / sum(of_thread.values()) for layer, count in of_thread.most_common()}
        for thread, of_thread in counts.items()
    }


def layer_times(threads: dict[str, float], of_threads: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return microseconds of an answer by layer: the kernel's time of each thread, divided as its samples are."""
    times: dict[str, float] = {}
    for thread, spent in threads.items():
        for layer, share in of_threads.get(thread, {OTHER: 1.0}).items():
            times[layer] = times.get(layer, 0.0) + spent * share
    return times


@contextlib.contextmanager
def stored_mosec(variant: Variant, model: Path, peers: Path, scratch: Path, body: Path) -> Iterator[Running]:
    """Start mosec with a store. It ends with the block."""
    port, log = servers._free_port(), scratch / "mosec-stored.log"
    environment = {
        **privacy.SWITCHES,
        "MODEL": str(model / "model.onnx"),
        "TEMPERATURE": str(TEMPERATURE),
        "STORE": str(scratch / "mosec.sqlite"),
        **variant.options,
    }
    command = [str(peers), "mosec_stored_server.py", "--address", "127.0.0.1", "--port", str(port)]
    with load.process_group([*command, "--log-level", "error", *servers.PATIENT], environment, PEERS, log) as process:
        found = Running(f"http://127.0.0.1:{port}", process.pid, variant.server)
        load.until_answered(found.url(body.stem), body.read_bytes(), process, log)
        yield found


def processes_of(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def seconds_of(pid: int) -> dict[tuple[str, str], float]:
    """Return seconds of the processors so far, by kind (see KINDS) and number of each thread."""
    found: dict[tuple[str, str], float] = {}
    for one in processes_of(pid):
        for times in one.threads():
            kind = "front_us" if not _is_python(one) else "main_us" if times.id == one.pid else "other_us"
            found[kind, str(times.id)] = times.user_time + times.system_time
    return found


def turn(server: Running, body: Path, seconds: float, connections: int = CONNECTIONS) -> dict[str, Any]:
    """Load a server, and return requests per second and microseconds of the processors for an answer."""
    before = seconds_of(server.pid)
    found = load.wrk(server.url(body.stem), body, connections, seconds)
    after = seconds_of(server.pid)
    if gone := before.keys() - after.keys():
        raise load.LoadError(f"{len(gone)} threads of {server.server} ended within a turn")
    if found.failed or not found.requests:
        raise load.LoadError(f"{server.server} failed {found.failed} of {found.requests} requests")
    spent = {key: 1e6 * (end - before.get(key, 0.0)) / found.requests for key, end in after.items()}
    kinds = {kind: sum(us for (of, _), us in spent.items() if of == kind) for kind in KINDS}
    threads = {thread: us for (kind, thread), us in spent.items() if kind != "front_us"}
    return {"rps": found.rps, "p99_ms": found.p99_ms, "all_us": sum(spent.values()), **kinds, "threads": threads}


@contextlib.contextmanager
def alone(server: Running, running: list[Running]) -> Iterator[None]:
    """Give the other servers no processor time during the block."""
    with contextlib.ExitStack() as stack:
        for other in running:
            if other is not server:
                stack.enter_context(load.stopped(other.pid))
        yield


def few_turns(
    running: list[Running], body: Path, options: argparse.Namespace, connections: int
) -> dict[str, dict[str, float]]:
    """Load the servers in turns. Return the medians of each server's processor time of an answer, and of its p99."""
    turns: dict[str, list[dict[str, Any]]] = {server.server: [] for server in running}
    for _ in range(options.turns):
        for server in running:
            with alone(server, running):
                turns[server.server].append(turn(server, body, options.seconds, connections))
    keys = "all_us", "p99_ms"
    return {
        name: {key: round(statistics.median(one[key] for one in own), 2) for key in keys} for name, own in turns.items()
    }


def samples(server: Running, body: Path, spy: Path, seconds: float, scratch: Path) -> dict[str, dict[str, float]]:
    """Return the shares of layers in samples of a loaded server's Python processes; see `shares`."""
    pids = [one.pid for one in processes_of(server.pid) if _is_python(one)]
    out = [scratch / f"stacks-{pid}.txt" for pid in pids]
    whole = str(max(1, round(seconds)))
    spies = [
        subprocess.Popen(
            [
                str(spy),
                "record",
                "--pid",
                str(pid),
                "-f",
                "raw",
                "-o",
                str(path),
                "-r",
                "100",
                "-d",
                whole,
                "--nonblocking",
                "--threads",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for pid, path in zip(pids, out, strict=True)
    ]
    load.wrk(server.url(body.stem), body, CONNECTIONS, seconds + 1)
    for one in spies:
        one.wait(60)
    texts = [path.read_text(encoding="utf-8") for path in out if path.exists()]
    if not any(texts):
        raise load.LoadError(f"py-spy has no samples of {server.server}; it needs the right to trace processes")
    return shares("\n".join(text.strip() for text in texts if text.strip()))


def _is_python(process: psutil.Process) -> bool:
    return "python" in Path(process.exe()).name


def batch_size(server: Running) -> float:
    """Return the mean number of answers in a batch of ours so far, over all workers; NaN for another server."""
    if server.server not in (OURS.server, TWO_WORKERS.server):
        return math.nan
    with urllib.request.urlopen(f"{server.base}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    total, count = (
        sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"trueodds_batch_images_{part}{{"))
        for part in ("sum", "count")
    )
    return total / count


def measure(net: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure the servers of a net in turns, and then their layers."""
    folder.mkdir()
    model = untrained.publish(net, folder / net, classes=CLASSES, temperature=TEMPERATURE)
    body = bodies(folder)["png"]
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(servers.running(variant, model, None, folder, body)) for variant in (OURS, TWO_WORKERS)
        ]
        running.append(stack.enter_context(stored_mosec(STORED, model, options.peers, folder, body)))
        turns: dict[str, list[dict[str, Any]]] = {server.server: [] for server in running}
        shares_of: dict[str, dict[str, dict[str, float]]] = {}
        for k in range(options.turns + 2):
            for server in running:
                with alone(server, running):
                    if k == options.turns + 1:
                        spy = options.peers.parent / "py-spy"
                        shares_of[server.server] = samples(server, body, spy, options.seconds, folder)
                        continue
                    found = turn(server, body, options.seconds)
                    if k:  # the first turn warms up
                        turns[server.server].append(found)
        batches = {server.server: round(batch_size(server), 1) for server in running}
        fewer = {connections: few_turns(running, body, options, connections) for connections in FEWER}
    medians = {
        name: {key: round(statistics.median(one[key] for one in own), 2) for key in own[0] if key != "threads"}
        for name, own in turns.items()
    }
    times = {}
    for name, own in turns.items():
        of_turns = [layer_times(one.pop("threads"), shares_of[name]) for one in own]
        every = dict.fromkeys(layer for one in of_turns for layer in one)
        times[name] = {layer: round(statistics.median(one.get(layer, 0.0) for one in of_turns), 2) for layer in every}
    known = {name: size for name, size in batches.items() if not math.isnan(size)}
    return {"medians": medians, "fewer": fewer, "layers": times, "batch_sizes": known, "turns": turns}


FRONT = ("HTTP and JSON of the service", "HTTP of uvicorn", "event loop in C and sockets")
"""Layers that a front in another language would take over."""


def markdown(result: dict[str, Any]) -> str:
    """Return a table for each net with a column for each server, and what a front in Rust would have to bring."""
    return "\n\n".join([*(_of_net(net, found) for net, found in result["nets"].items()), _loads(result)])


def _of_net(net: str, found: dict[str, Any]) -> str:
    medians, layers, sizes = found["medians"], found["layers"], found["batch_sizes"]
    names = list(medians)
    rows = [
        [net, *names],
        ["---", *("---:" for _ in names)],
        ["processor time of an answer", *(f"{medians[name]['all_us']:.0f} µs" for name in names)],
    ]
    for kind, words in KINDS.items():
        rows.append([f"- {words}", *(f"{medians[name][kind]:.0f} µs" for name in names)])
    for layer in sorted({layer for own in layers.values() for layer in own}):
        times = (layers[name].get(layer) for name in names)
        rows.append([f"by samples: {layer}", *("" if us is None else f"{us:.0f} µs" for us in times)])
    rows.append(["slowest hundredth (p99)", *(f"{medians[name]['p99_ms']:.0f} ms" for name in names)])
    rows.append(["answers in a batch", *(f"{sizes[name]:.1f}" if name in sizes else "" for name in names)])
    table = "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)
    conclusion = _conclusion(medians[OURS.server], medians[names[-1]], layers[OURS.server])
    return f"{table}\n\n{conclusion} {_with_fewer(found['fewer'], names[-1])}"


def _with_fewer(fewer: dict[str, dict[str, dict[str, float]]], peer: str) -> str:
    """Return the ratios of the servers with fewer connections."""
    parts = []
    for connections, of_servers in fewer.items():
        ours, theirs = of_servers[OURS.server], of_servers[peer]
        ratio, times = theirs["all_us"] / ours["all_us"], f"p99 {ours['p99_ms']:.0f} and {theirs['p99_ms']:.0f} ms"
        parts.append(f"{ratio:.2f} times with {connections} ({times})")
    return f"With fewer connections it gives {' and '.join(parts)}."


def _conclusion(ours: dict[str, float], peer: dict[str, float], times: dict[str, float]) -> str:
    """Return the ratio of the servers, and what a front in Rust would have to bring for it to be 1."""
    gap = ours["all_us"] - peer["all_us"]
    ratio = f"For the same processor time, ours gives {peer['all_us'] / ours['all_us']:.2f} times mosec's answers."
    if gap <= 0:
        return ratio
    front = sum(times.get(layer, 0.0) for layer in FRONT)
    brings = (
        f"A front in Rust would have to do them in {front - gap:.0f} µs."
        if front > gap
        else "A front in Rust would not suffice, even if it took no time."
    )
    return (
        f"{ratio} An answer of ours takes {gap:.0f} µs more. HTTP, JSON and sockets take about {front:.0f} µs of it in"
        f" Python and uvloop, and mosec's front in Rust takes {peer['front_us']:.0f} µs. {brings}"
    )


def _loads(result: dict[str, Any]) -> str:
    """Return how busy the machine was."""
    return f"The system's load was {result['load_at_the_end']:g} on {result['cores']} cores."


def main() -> None:
    """Measure, print the table, and write the result."""
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--peers", type=Path, required=True, help="Python of the environment with mosec and py-spy")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of one load (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=5, help="turns (default: %(default)s)")
    parser.add_argument("--nets", nargs="+", default=["resnet8", "resnet20"], help="nets (default: both)")
    options = parser.parse_args()
    options.peers = options.peers.absolute()
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        nets = {net: measure(net, options, Path(folder) / net) for net in options.nets}
    result = {**circumstances("onnxruntime", "uvicorn", "fastapi"), "nets": nets, "seconds": round(time.time() - start)}
    result["cores"] = len(os.sched_getaffinity(0))
    result["load_at_the_end"] = round(os.getloadavg()[0], 1)
    print(markdown(result))
    write(options.out, result)


if __name__ == "__main__":
    main()
