"""Cost of a meta step: looking ahead through the last layer, through all layers, and by double backward.

    python -m benchmarks.training.lookahead                      # resnet8 and resnet18: minutes
    python -m benchmarks.training.lookahead --nets resnet8 --rounds 3 --threads 1

One interleaved run: a round takes the ways in a new order, and each one's step is timed beside a step of cross entropy,
so that a machine that slows down slows both. `step` is the median over rounds of the ratio of the two times, for
gamma_net. `memory` is the ratio of the peaks that torch's allocator held during a step. `double backward` is the same
gradient as `all`, by differentiating the gradient. `all, every: 4` is one step with a meta step and three without,
divided by four.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch.func import functional_call

from benchmarks.record import RESULTS, Run, options_parser
from benchmarks.training.methods import DESCENT, Bench
from pipeline import methods
from pipeline.methods import penalties
from pipeline.methods.batch import ForwardPass
from pipeline.methods.meta.lookahead import separate_buffers
from pipeline.methods.meta.outer import OuterLoss
from pipeline.methods.method import Method

RESULT = RESULTS / "lookahead.json"
GOALS = {"head": 1.6, "all": 4.8, "all, every: 4": 2.1}
EVERY = 4


def double_backward(bench: Bench, method: Method) -> None:
    """Return a step with the meta gradient by double backward, which the forward-mode pass replaces."""
    net, outer = bench.net, OuterLoss("sece", 0.5, penalties.sece)
    inputs, labels = bench.normalise(bench.pixels), bench.labels
    theta = dict(net.named_parameters())
    phi = list(method.meta.part.parameters())  # type: ignore[attr-defined]
    batch = ForwardPass.of(net, inputs, labels, labels, progress=0.5)
    g = torch.autograd.grad(len(labels) * method.objective(batch), list(theta.values()), create_graph=True)
    scale = (DESCENT.clip / (torch.nn.utils.get_total_norm(g) + 1e-6)).clamp_max(1.0)
    ahead = {name: p - DESCENT.rate * scale * part for (name, p), part in zip(theta.items(), g, strict=True)}
    with separate_buffers(net):
        torch.autograd.grad(outer(functional_call(net, ahead, (inputs,)), labels), phi, retain_graph=True)
    bench.descend(method.objective(batch))


def ways(bench: Bench) -> dict[str, Callable[[], None]]:
    """Return the training steps by name. `every: 4` is four of them."""
    head, whole = (methods.build("flg_sece", bench.net, lookahead=name) for name in ("head", "all"))
    plain = methods.build("fl1")

    def every() -> None:
        bench.step(whole)
        for _ in range(EVERY - 1):
            bench.step(plain)

    return {
        "head": lambda: bench.step(head),
        "all": lambda: bench.step(whole),
        "all, every: 4": every,
        "double backward": lambda: double_backward(bench, whole),
    }


def measure(bench: Bench, rounds: int, seed: int) -> list[dict[str, Any]]:
    """Return one row per way."""
    ce = methods.build("ce")
    steps = ways(bench)
    base = bench.peak(lambda: bench.step(ce))
    peaks = {name: bench.peak(step) / base for name, step in steps.items()}  # warms up too
    ratios: dict[str, list[float]] = {name: [] for name in steps}
    order, rng = list(steps), random.Random(seed)
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            alone = bench.seconds(lambda: bench.step(ce))
            parts = EVERY if name.endswith(f"every: {EVERY}") else 1
            ratios[name].append(bench.seconds(steps[name]) / parts / alone)
    return [{"way": name, "step": statistics.median(ratios[name]), "memory": peaks[name]} for name in steps]


def markdown(record: dict[str, Any]) -> str:
    """Return a row for each net and way."""
    lines = ["| net | look-ahead | step, by one of cross entropy | goal | peak memory |", "|---|---|---:|---:|---:|"]
    for net in record["nets"]:
        for row in net["ways"]:
            goal = f"{GOALS[row['way']]}" if row["way"] in GOALS else ""
            lines.append(f"| {net['net']} | {row['way']} | {row['step']:.2f} | {goal} | {row['memory']:.2f} |")
    setting = record["setting"]
    lines += ["", f"Batch {setting['batch']}, {setting['classes']} classes, {record['processor']}."]
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--nets", nargs="+", default=["resnet8", "resnet18"])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run = Run()
    nets = []
    for net in options.nets:
        rows = measure(Bench(net, options.batch, options.classes, options.device), options.rounds, options.seed)
        nets.append({"net": net, "ways": rows})
        run.say(json.dumps(nets[-1]))
    run.finish(
        options.out,
        markdown,
        packages=("torch",),
        **({} if options.device == "cpu" else {"processor": torch.cuda.get_device_name()}),
        setting={key: getattr(options, key) for key in ("batch", "classes", "rounds", "threads", "device")},
        nets=nets,
    )


if __name__ == "__main__":
    main()
