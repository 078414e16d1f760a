"""Requests and labels per second of the service, compared with mosec, LitServe, BentoML and onnxruntime alone.

    python -m venv .peers && .peers/bin/pip install mosec litserve bentoml onnxruntime pillow orjson uvloop httptools
    apt-get install wrk
    python -m benchmarks.serving.comparison --peers .peers/bin/python     # some thirty minutes
    python -m benchmarks.serving.comparison --peers .peers/bin/python --quick

All servers get the same untrained ONNX nets (32 x 32 x 3, 100 classes) and the same bodies, from wrk on the same cores.
A short trial at 32 connections finds the best options of each peer for each net; ours runs with its defaults. Then
there are rounds. In each one every server is started, warmed up and loaded, in a new order; results are medians over
the rounds. Every server's answer is first compared with ours. Ours always stores every prediction durably before it
answers; the others store nothing. onnxruntime alone gets as many images per call as there are connections, without
HTTP, JSON or PNG. One worker is measured again in short turns against onnxruntime alone, LitServe, mosec and two
workers of ours (benchmarks.serving.turns).
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import random
import statistics
import subprocess
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import untrained
from benchmarks.record import RESULTS, Run, circumstances, options_parser, write
from benchmarks.serving import load, servers
from benchmarks.serving import turns as serving_turns
from benchmarks.serving.comparison_report import AIMED_AT, goals, markdown, rate
from benchmarks.serving.servers import OURS, RAW, TWO_WORKERS, VARIANTS, Running, Variant

RESULT = RESULTS / "serving.json"
NETS = ("resnet8", "resnet20", "resnet18")
SLOWEST = NETS[-1]
CONNECTIONS, CLASSES = (1, 8, 32), 100
LABELS = 20_000
PACKAGES = ("litserve", "bentoml", "mosec", "onnxruntime", "uvicorn", "fastapi", "numpy", "pillow")
run = Run()


def bodies(folder: Path) -> dict[str, Path]:
    """Return one image as a base64 PNG (`png`) and as nested lists (`pixels`), in the JSON that all servers take."""
    image = np.random.default_rng(0).integers(0, 256, (untrained.SIZE, untrained.SIZE, untrained.CHANNELS), np.uint8)
    encoded = io.BytesIO()
    Image.fromarray(image).save(encoded, "png")
    instances = {"png": {"b64": base64.b64encode(encoded.getvalue()).decode()}, "pixels": image.tolist()}
    for name, instance in instances.items():
        text = json.dumps({"instances": [instance]}, separators=(",", ":"))
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.json" for name in instances}


def probabilities(answer: bytes) -> list[float]:
    """Return the probabilities of the one image in any server's answer."""
    tree = json.loads(answer)
    found: list[float] = (tree["predictions"] if isinstance(tree, dict) else tree)[0]["probabilities"]
    return found


class Bench:
    """The run's nets, bodies and options, and its measurements so far."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.peers: Path | None = options.peers
        self.seconds, self.rounds, self.quick = options.seconds, options.rounds, options.quick
        self.folder, self.bodies = folder, bodies(folder)
        self.nets = ("resnet8",) if options.quick else NETS
        self.models: dict[str, Path] = {}
        self.trials: list[dict[str, Any]] = []
        self.cells: dict[tuple[str, str, str, int], list[load.Load]] = {}
        self.memory: dict[tuple[str, str], list[load.Memory]] = {}
        self.turns: list[dict[str, Any]] = []

    def export(self) -> None:
        for net in self.nets:
            run.say(f"exporting {net}")
            self.models[net] = untrained.publish(
                net, self.folder / net, classes=CLASSES, temperature=servers.TEMPERATURE
            )

    def running(self, variant: Variant, net: str) -> Any:
        return servers.running(variant, self.models[net], self.peers, self.folder, self.bodies["png"])

    def best(self, net: str) -> list[Variant]:
        """Return each server's options with the most successful answers per second. All answers must equal ours."""
        with self.running(OURS, net) as ours:
            expected = self._answers(ours)
        chosen = []
        for server, variants in VARIANTS.items():
            if not self.peers and server != OURS.server:
                continue
            rates = {}
            for k, variant in enumerate(variants):
                try:
                    with self.running(variant, net) as found:
                        self._agree(self._answers(found), expected, variant)
                        load.wrk(found.url("png"), self.bodies["png"], 32, 1)
                        trial = load.wrk(found.url("png"), self.bodies["png"], 32, min(2, self.seconds))
                except load.LoadError as error:
                    run.say(f"{net:9} trial    {variant.name}: left out: {error}")
                    self.trials.append({"net": net, "variant": variant.name, "error": str(error)[:500]})
                    continue
                run.say(f"{net:9} trial    {variant.name:44} {trial.rps:7.0f} rps, {trial.failed} failed")
                self.trials.append({"net": net, "variant": variant.name, **asdict(trial)})
                rates[k] = rate(asdict(trial))
            if not rates:
                raise load.LoadError(f"no variant of {server} answers; {self.folder}/{server}.log says why")
            chosen.append(variants[max(rates, key=lambda k: rates[k])])
        return chosen

    def _answers(self, found: Running) -> list[list[float]]:
        return [probabilities(load.post(found.url(n), path.read_bytes())) for n, path in self.bodies.items()]

    def _agree(self, found: list[list[float]], expected: list[list[float]], variant: Variant) -> None:
        off = float(np.abs(np.array(found) - np.array(expected)).max())
        if off > 1e-5:
            raise load.LoadError(f"{variant.name}'s probabilities differ from ours by {off:.2g}")

    def round(self, net: str, variants: list[Variant], order: random.Random) -> None:
        todo: list[Variant | None] = [*variants, *([None] if self.peers else [])]
        order.shuffle(todo)
        for variant in todo:
            if variant is None:
                self._raw(net)
                continue
            try:
                self._load(net, variant)
            except load.LoadError as error:  # the other rounds still count, and the result tells of this one
                run.say(f"{net:9} {variant.server}: {error}")
                self.trials.append({"net": net, "variant": variant.name, "error": str(error)[:500]})

    def _load(self, net: str, variant: Variant) -> None:
        with self.running(variant, net) as found:
            load.wrk(found.url("png"), self.bodies["png"], 8, 1)  # warm
            for body, connections in [("png", c) for c in CONNECTIONS] + [("pixels", 32)]:
                measured = load.wrk(found.url(body), self.bodies[body], connections, self.seconds)
                self._keep(net, variant.server, body, connections, measured)
            self.memory.setdefault((net, variant.server), []).append(found.memory())

    def _raw(self, net: str) -> None:
        """Measure onnxruntime with and without spinning threads, its default. The better one counts."""
        assert self.peers
        for batch in CONNECTIONS:
            both = [
                servers.raw(self.peers, self.models[net], batch, self.seconds / 2, spinning=s) for s in (False, True)
            ]
            self._keep(net, RAW, "none", batch, max(both, key=lambda measured: measured.rps))

    def in_turns(self, net: str, variants: list[Variant]) -> None:
        """Measure ours against each server that a goal names.

        The slowest net, for which HTTP costs least, is also measured against onnxruntime alone.
        """
        peers, model, turns = self.peers, self.models[net], serving_turns.QUICK if self.quick else serving_turns.TURNS
        assert peers
        by_server, body = {v.server: v for v in (*variants, TWO_WORKERS)}, self.bodies["png"]
        with self.running(by_server[OURS.server], net) as ours:
            if net == SLOWEST:
                alone = serving_turns.beside_raw(
                    ours,
                    lambda spinning: servers.raw(peers, model, 32, self.seconds, spinning=spinning),
                    body,
                    self.seconds,
                    turns,
                )
                self._tell(net, alone)
            for peer in [one for one in serving_turns.CONNECTIONS if (net, one) in AIMED_AT]:
                with self.running(by_server[peer], net) as theirs:
                    self._tell(net, serving_turns.beside_peer(ours, theirs, body, self.seconds, turns))

    def _tell(self, net: str, found: dict[str, Any]) -> None:
        self.turns.append({"net": net, **found})
        each = ", ".join(f"{ratio:.3f} at {n}" for n, ratio in found.get("ratios", {}).items())
        run.say(
            f"{net:9} in turns: {found['ratio']:.3f} of {found['beside']}{f' ({each} connections)' if each else ''}"
        )

    def _keep(self, net: str, server: str, body: str, connections: int, measured: load.Load) -> None:
        self.cells.setdefault((net, server, body, connections), []).append(measured)
        times = f"p50 {measured.p50_ms:6.1f} ms, p99 {measured.p99_ms:6.1f} ms"
        failed = f", {measured.failed} FAILED" if measured.failed else ""
        run.say(f"{net:9} {server:18} {body:6} {connections:3} connections {measured.rps:8.0f} rps, {times}{failed}")

    def labels(self) -> list[dict[str, Any]]:
        """Return labels per second through /feedback, in calls of two sizes, one at a time; durable when answered."""
        count, image = (LABELS // 10 if self.quick else LABELS), json.loads(self.bodies["pixels"].read_bytes())
        body, found = json.dumps({"instances": image["instances"] * 250}).encode(), []
        with self.running(OURS, "resnet8") as ours:
            for size in (1_000, 10_000):
                size = min(size, count)
                answers = (json.loads(load.post(ours.url("png"), body)) for _ in range(count // 250))
                ids = [p["id"] for answer in answers for p in answer["predictions"]]
                rows = [{"id": id_, "index": k % CLASSES} for k, id_ in enumerate(ids)]
                calls = [json.dumps({"labels": rows[k : k + size]}).encode() for k in range(0, count, size)]
                begin = time.perf_counter()
                stored = sum(json.loads(load.post(f"{ours.base}/feedback", call))["stored"] for call in calls)
                seconds = time.perf_counter() - begin
                if stored != count:
                    raise load.LoadError(f"{stored} of {count} labels were stored")
                found.append({"labels_per_call": size, "labels": count, "labels_per_second": count / seconds})
                run.say(f"labels, {size:,} a call: {count / seconds:,.0f} a second")
        return found

    def result(self) -> dict[str, Any]:
        cells = []
        for (net, server, body, connections), loads in self.cells.items():
            middle = {k: statistics.median(getattr(m, k) for m in loads) for k in ("rps", "p50_ms", "p99_ms")}
            spread = {"rps_lowest": min(m.rps for m in loads), "rps_highest": max(m.rps for m in loads)}
            counts = {"requests": sum(m.requests for m in loads), "failed": sum(m.failed for m in loads)}
            key = {"net": net, "server": server, "body": body, "connections": connections}
            cells.append({**key, **middle, **spread, **counts, "max_ms": max(m.max_ms for m in loads)})
        memory = [
            {"net": net, "server": server, **asdict(max(found, key=lambda m: m.pss_mb))}
            for (net, server), found in self.memory.items()
        ]
        return {"cells": cells, "memory": memory, "turns": self.turns, "trials": self.trials}


def peer_versions(peers: Path | None, packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Return the versions in the peers' environment."""
    if not peers:
        return {}
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {packages}}}))"
    try:
        found: dict[str, str] = json.loads(subprocess.check_output([str(peers), "-c", code], text=True))
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"--peers {peers}: {error}. It needs {', '.join(packages)}; see --help") from None
    return found


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--peers", type=Path, help="python of an environment with the peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--quick", action="store_true", help="one net, one round, one second: does it work?")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    if options.peers:
        options.peers = Path(os.path.abspath(options.peers))  # noqa: PTH100  # resolve() would leave the environment
    versions, order = peer_versions(options.peers), random.Random(0)
    if not options.peers:
        run.say("no --peers: only ours is measured; see --help")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        bench.export()
        for net in bench.nets:
            chosen = bench.best(net)
            for _ in range(options.rounds):
                bench.round(net, chosen, order)
            if options.peers:
                bench.in_turns(net, chosen)
        labels = bench.labels()
    result: dict[str, Any] = {
        **circumstances("onnxruntime", "uvicorn", "fastapi", "orjson", "uvloop"),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[2], 2),
        "peers": versions,
        "seconds": run.seconds,
        "rounds": options.rounds,
        **bench.result(),
        "labels": labels,
    }
    result["goals"] = goals(result)
    write(options.out, result)
    print(markdown(result))
    for goal in result["goals"]:
        run.say(f"goal {'reached' if goal['reached'] else 'MISSED'}: {goal}")


if __name__ == "__main__":
    main()
