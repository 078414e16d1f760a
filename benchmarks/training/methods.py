"""Cost of each training method compared with cross entropy on the same net: step time and peak memory.

    python -m benchmarks.training.methods                      # every preset, and each part that no preset has: minutes
    python -m benchmarks.training.methods --only cpc sb_ece --rounds 3 --threads 1

One interleaved run: a round takes the methods in a new order, and each one's step is timed beside a step of cross
entropy, so that a machine that slows down slows both. `step` is the median over rounds of the ratio of the two times.
On a shared machine its noise exceeds the loss itself. `loss` therefore times the loss alone, forward and backward from
the logits, and `share` is its excess over cross entropy's, as a share of cross entropy's step. `memory` is the ratio of
the peaks that torch's allocator held during a step. Interleaved penalties take their own step after each, separate ones
a backward pass, AugMix three views of each image, and parts that look ahead a pass of set-aside rows
(`benchmarks.training.lookahead`). The goal does not apply to them.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.record import RESULTS, Run, options_parser
from pipeline import methods, nets
from pipeline.methods.batch import ForwardPass
from pipeline.methods.gradients import backward
from pipeline.methods.looking_ahead import Descent
from pipeline.methods.method import Method
from pipeline.training.batches import ImageNormaliser

RESULT = RESULTS / "training.json"
GOAL = 1.03
DESCENT = Descent(rate=1e-4, is_sum=True, clip=2.0)
SIZE, CHANNELS = 32, 3
REPEATS = 10  # of the loss alone, per round


class Bench:
    """One net, one batch, and steps of any method on them."""

    def __init__(self, net: str, batch: int, classes: int, device: str) -> None:
        torch.manual_seed(0)
        self.device, self.classes = torch.device(device), classes
        self.net = nets.build(net, CHANNELS, classes).to(self.device)
        self.net = self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs
        self.pixels = torch.randint(0, 256, (batch, SIZE, SIZE, CHANNELS), dtype=torch.uint8, device=self.device)
        self.normalise = ImageNormaliser.of({"mean": [0.5] * CHANNELS, "std": [0.3] * CHANNELS}, self.device)
        self.labels = torch.randint(0, classes, (batch,), device=self.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 1e-4, momentum=0.9)
        self.generator = torch.Generator().manual_seed(0)

    def step(self, method: Method) -> None:
        """Do a training step on a batch, as the training loop does."""
        images, targets = self._batch(method)
        batch = ForwardPass.of(self.net, images, targets, self.labels, progress=0.5)
        for meta in method.meta.due(1):
            meta.learn(method, self.net, batch, (self.normalise(self.pixels), self.labels), DESCENT)
        self.descend(method.objective(batch), method.apart(batch.logits, self.labels, progress=0.5))
        for term in method.due(1, 0.5):
            self.descend(term.weight * term.value(self.net(self.normalise(self.pixels)), self.labels))

    def loss(self, method: Method) -> Callable[[], None]:
        """Return a function for the loss alone, from features that need a gradient, ready to be timed."""
        with torch.no_grad():
            images, targets = self._batch(method)
            batch = ForwardPass.of(self.net, images, targets, self.labels, progress=0.5).apart()

        def once() -> None:
            torch.autograd.grad(method.objective(batch), batch.logits)

        return once

    def seconds(self, work: Callable[[], None]) -> float:
        self._wait()
        begin = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - begin

    def peak(self, step: Callable[[], None]) -> int:
        """Return the peak bytes of one step above those before it."""
        step()
        if self.device.type == "cuda":
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            step()
            return torch.cuda.max_memory_allocated() - before
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
            step()
        held = highest = 0
        events = trace.profiler.kineto_results.events()
        for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
            held += event.nbytes()
            highest = max(highest, held)
        return highest

    def _batch(self, method: Method) -> tuple[Tensor, Tensor]:
        pixels = self.pixels if method.views is None else method.views(self.pixels, self.generator)
        return method.batch(self.normalise(pixels), self.labels, self.classes, self.generator)

    def descend(self, loss: Tensor, apart: Sequence[tuple[float, Tensor]] = ()) -> None:
        """Compute the gradient and take a step of the optimizer."""
        self.optimizer.zero_grad(set_to_none=True)
        backward(loss, apart, self.net)
        self.optimizer.step()

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def specs() -> dict[str, str]:
    """Return specs by name: every preset, and every part that no preset has; penalties and labels on cross entropy."""
    used = {name for preset in methods.PRESETS.values() for name in preset.parts.split("+")}
    rest = {
        name: name if part.role == "primary" else f"ce+mmce+{name}" if part.weighs else f"ce+{name}"
        for name, part in methods.PARTS.items()
        if name not in used
    }
    return {"ce": "ce", **rest, **{name: name for name in methods.PRESETS}}


def measure(bench: Bench, names: dict[str, str], rounds: int, seed: int) -> list[dict[str, Any]]:
    """Return one row per method, in the table's order."""
    built = {name: methods.build(spec, bench.net) for name, spec in names.items()}
    ce = methods.build("ce")
    peaks = {name: bench.peak(lambda method=method: bench.step(method)) for name, method in built.items()}  # type: ignore[misc]  # warms up too
    base = bench.peak(lambda: bench.step(ce))
    ratios: dict[str, list[float]] = {name: [] for name in names}
    losses: dict[str, list[float]] = {name: [] for name in names}
    ce_steps: list[float] = []
    ce_losses: list[float] = []
    order, rng = list(names), random.Random(seed)
    for done in range(rounds):
        rng.shuffle(order)
        for name in order:
            ce_steps.append(bench.seconds(lambda: bench.step(ce)))
            ratios[name].append(bench.seconds(lambda method=built[name]: bench.step(method)) / ce_steps[-1])  # type: ignore[misc]
            for method, found in ((ce, ce_losses), (built[name], losses[name])):
                once = bench.loss(method)
                once()
                found.append(min(bench.seconds(once) for _ in range(REPEATS)))
        print(f"round {done + 1}/{rounds}", file=sys.stderr, flush=True)
    step, least = statistics.median(ce_steps), statistics.median(ce_losses)
    return [
        {
            "method": name,
            "spec": spec,
            "step": statistics.median(ratios[name]),
            "loss_ms": 1e3 * statistics.median(losses[name]),
            "share": 1 + (statistics.median(losses[name]) - least) / step,
            "memory": peaks[name] / base,
        }
        for name, spec in names.items()
    ]


def markdown(record: dict[str, Any]) -> str:
    """Return the record as a table, the most expensive first."""
    setting = record["setting"]
    lines = [
        f"{setting['net']}, batch {setting['batch']}, {setting['classes']} classes, {setting['device']},"
        f" {record['ce_step_ms']:.1f} ms for a step of cross entropy; goal {GOAL}.",
        "",
        "| method | step, measured | step, by the loss alone | loss, ms | peak memory |",
        "|---|---:|---:|---:|---:|",
    ]
    rows = sorted(record["methods"], key=lambda row: -row["share"])
    lines += [
        f"| {row['method']} | {row['step']:.3f} | {row['share']:.3f} | {row['loss_ms']:.2f} | {row['memory']:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--net", default="resnet8")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="*", default=[], help="names; default all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    known = specs()
    if options.rounds < 1 or options.batch < 2 or set(options.only) - set(known):
        parser.error(
            f"--rounds is {options.rounds}, --batch {options.batch}, --only {options.only}; allowed are rounds >= 1,"
            f" batches >= 2 and names of {', '.join(known)}"
        )
    torch.set_num_threads(options.threads)
    run = Run()
    bench = Bench(options.net, options.batch, options.classes, options.device)
    chosen = {name: spec for name, spec in known.items() if name in options.only or not options.only}
    rows = measure(bench, chosen, options.rounds, options.seed)
    ce = methods.build("ce")
    run.finish(
        options.out,
        markdown,
        packages=("torch",),
        **({} if options.device == "cpu" else {"processor": torch.cuda.get_device_name()}),
        setting={key: getattr(options, key) for key in ("net", "batch", "classes", "rounds", "threads", "device")},
        ce_step_ms=1e3 * statistics.median(bench.seconds(lambda: bench.step(ce)) for _ in range(5)),
        methods=rows,
    )


if __name__ == "__main__":
    main()
