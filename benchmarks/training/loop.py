"""The training loop compared with a plain PyTorch loop: the same net, batch, threads and rows, in turns.

    python -m benchmarks.training.loop                           # on a CPU: ResNet-8 and ResNet-20, 16 minutes
    python -m benchmarks.training.loop --device cuda  # ResNet-18, ResNet-50, WRN-26-10, DenseNet-121
    python -m benchmarks.training.loop --device cuda --methods  # eight methods beside cross entropy, ResNet-18

The plain loop is written like the public code of the focal loss paper: a DataLoader of PIL images with torchvision's
random crop, flip, ToTensor and Normalize, the summed loss clipped at 2, `loss.item()` at every step, SGD with momentum,
and error and NLL of the validation rows after every epoch. On a CPU it loads in its own process, on CUDA with four
workers. Our loop runs with everything that it measures and stores. Each turn is a process of its own. `images/s` counts
training images from the end of the first epoch to the end of the last, including validation. Memory is the process's
peak, or on a GPU the peak that torch allocated. Ratios are medians over turns, each to the plain loop's turn.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.record import RESULTS, circumstances, options_parser, write
from pipeline import nets
from pipeline.config import Training
from pipeline.data import vision
from pipeline.data.dataset import DataSet
from pipeline.training.loop import train
from pipeline.training.machine.device import device_of
from pipeline.training.resolution import plan_of
from pipeline.training.training_state import Row, TrainingState
from trueodds.texts import plural

CLASSES, SIDE, BATCH = 100, 32, 128
CPU: dict[str, Any] = {"nets": ("resnet8", "resnet20"), "rows": 5_000, "epochs": 3, "variants": ("float32",)}
CUDA: dict[str, Any] = {
    "nets": ("resnet18", "resnet50", "wrn26_10", "densenet121"), "rows": 45_000, "epochs": 3,
    "variants": ("float32", "bfloat16", "bfloat16 features", "bfloat16 graphs"),
}  # fmt: skip
METHODS = ("ce", "flsd53", "bsce_gra", "mmce", "sb_ece", "s_avuc", "mdca", "mixup", "ce_meta_sece")
VALIDATION = 5_000
MEAN, STD = [0.507, 0.487, 0.441], [0.267, 0.256, 0.276]


def images(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noise images, which take as long as photos."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, SIDE, SIDE, 3), dtype=np.uint8), rng.integers(0, CLASSES, rows)


def ours(turn: dict[str, Any]) -> list[float]:
    """Return the end of each epoch of our loop in seconds."""
    held = min(VALIDATION, turn["rows"] // 5)
    arrays = {"train": images(turn["rows"], 0), "val": images(held, 1), "test": images(held, 2)}
    card = {
        "name": "noise", "input": {"kind": "image"}, "classes": [str(k) for k in range(CLASSES)], "notes": [],
        "splits": {}, "sha256": "", "normalise": {"mean": MEAN, "std": STD},
    }  # fmt: skip
    precision, _, compiled = turn["variant"].partition(" ")
    training = Training(
        recipe="papers-350", net=turn["net"], epochs=turn["epochs"], batch_size=BATCH, method=turn["method"],
        device=turn["device"], threads=turn["threads"], precision=precision, compile=compiled or "off",
    )  # fmt: skip
    data = DataSet(arrays, card)
    ends: list[float] = []
    ended = TrainingState.end_epoch

    def end_epoch(state: TrainingState, row: Row) -> None:
        ended(state, row)
        if turn["device"] == "cuda":
            torch.cuda.synchronize()
        ends.append(time.perf_counter())

    TrainingState.end_epoch = end_epoch  # type: ignore[assignment, method-assign]
    with tempfile.TemporaryDirectory() as folder:
        train(data, plan_of(training, "noise", "image", held_out=False), Path(folder))
    return ends


def plain(turn: dict[str, Any]) -> list[float]:
    """Return the same for a loop like that of the papers' public code."""
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset

    transforms = vision.torchvision().transforms
    device = device_of(turn["device"], fixed_sizes=True)
    torch.set_num_threads(turn["threads"] or torch.get_num_threads())
    finish = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    moves = [transforms.RandomCrop(SIDE, 4), transforms.RandomHorizontalFlip()]

    class Rows(Dataset[tuple[torch.Tensor, int]]):
        def __init__(self, rows: int, seed: int, transform: Callable[[Any], torch.Tensor]) -> None:
            (self.x, self.y), self.transform = images(rows, seed), transform

        def __len__(self) -> int:
            return len(self.y)

        def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
            return self.transform(Image.fromarray(self.x[k])), int(self.y[k])

    workers = 4 if device.type == "cuda" else 0
    options: dict[str, Any] = {"batch_size": BATCH, "num_workers": workers, "pin_memory": workers > 0}
    batches = DataLoader(Rows(turn["rows"], 0, transforms.Compose([*moves, *finish])), shuffle=True, **options)
    val = DataLoader(Rows(min(VALIDATION, turn["rows"] // 5), 1, transforms.Compose(finish)), **options)
    net = nets.resolve(turn["net"]).build(3, CLASSES).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    ends = []
    for _ in range(turn["epochs"]):
        net.train()
        total = 0.0
        for x, y in batches:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y, reduction="sum")
            loss.backward()  # type: ignore[no-untyped-call]  # torch's stubs
            nn.utils.clip_grad_norm_(net.parameters(), 2)
            optimizer.step()
            total += loss.item()
        net.eval()
        wrong = nll = 0.0
        with torch.no_grad():
            for x, y in val:
                logits, y = net(x.to(device)), y.to(device)
                nll += nn.functional.cross_entropy(logits, y, reduction="sum").item()
                wrong += (logits.argmax(1) != y).sum().item()
        if device.type == "cuda":
            torch.cuda.synchronize()
        ends.append(time.perf_counter())
    return ends


def run_turn(turn: dict[str, Any]) -> dict[str, float]:
    """Return images per second and peak megabytes, measured in this process."""
    torch.manual_seed(0)
    ends = (plain if turn["loop"] == "plain" else ours)(turn)
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"images_s": turn["rows"] * (len(ends) - 1) / (ends[-1] - ends[0]), "mb": highest}
    return found | ({"device_mb": torch.cuda.max_memory_allocated() / 2**20} if turn["device"] == "cuda" else {})


def in_turns(of: list[dict[str, Any]], rounds: int) -> list[dict[str, Any]]:
    """Run each of the turns beside the first one, round by round, and return medians and ratios."""
    measured: list[list[dict[str, float]]] = [[] for _ in of]
    for _ in range(rounds):
        for turn, found in zip(of, measured, strict=True):
            command = [sys.executable, "-m", "benchmarks.training.loop", "--turn", json.dumps(turn)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{turn}\n{done.stderr[-2000:]}")
            found.append(json.loads(done.stdout.splitlines()[-1]))
            print(turn, found[-1], flush=True)
    lines = []
    for turn, found in zip(of, measured, strict=True):
        line: dict[str, Any] = {**turn, **{key: statistics.median(one[key] for one in found) for key in found[0]}}
        for key, words in (("images_s", "speed"), ("mb", "memory"), ("device_mb", "device_memory")):
            if key in found[0]:
                ratios = [one[key] / first[key] for one, first in zip(found, measured[0], strict=True)]
                line[words] = statistics.median(ratios)
        lines.append(line)
    return lines


def markdown(record: dict[str, Any]) -> str:
    """Return the record as a table of docs/explanation/results.md."""
    head = ["| net | loop | images/s | speed, plain = 1 | memory, plain = 1 |", "|---|---|---:|---:|---:|"]
    rows = []
    for one in record["lines"]:
        name = "plain PyTorch" if one["loop"] == "plain" else f"ours, {one['method']}, {one['variant']}"
        memory = one.get("device_memory", one["memory"])
        rows.append(f"| {one['net']} | {name} | {one['images_s']:,.0f} | {one['speed']:.2f} | {memory:.2f} |")
    threads = f", {plural(record['threads'], 'thread')}" if record["device"] == "cpu" else ""
    return "\n".join([f"{record['machine']}{threads}, {record['rounds']} turns each.", "", *head, *rows])


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--methods", action="store_true", help="methods beside ours of cross entropy, the first net")
    parser.add_argument("--nets", nargs="+", help="(default: those named above)")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--epochs", type=int, help="two or more; the first is not counted")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of a CPU; 0: torch's choice")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(run_turn(json.loads(options.turn))))
        return
    usual = CPU if options.device == "cpu" else CUDA
    size = {"rows": options.rows or usual["rows"], "epochs": options.epochs or usual["epochs"]}
    both = {**size, "device": options.device, "threads": options.threads}
    lines = []
    for net in options.nets or usual["nets"]:
        turn = {**both, "net": net, "method": "ce", "variant": "float32"}
        if options.methods:
            turns = [{**turn, "loop": "ours", "method": method, "variant": usual["variants"][-1]} for method in METHODS]
        else:
            turns = [{**turn, "loop": "plain"}]
            turns += [{**turn, "loop": "ours", "variant": variant} for variant in usual["variants"]]
        lines += in_turns(turns, options.rounds)
        if options.methods:
            break
    record = {
        **(made := circumstances("torch")),
        "machine": made["processor"] if options.device == "cpu" else torch.cuda.get_device_name(),
        **both,
        "rounds": options.rounds,
        "lines": lines,
    }
    name = "loop" + ("" if options.device == "cpu" else "-cuda") + ("-methods" if options.methods else "")
    write(RESULTS / f"{name}.json", record)
    print(markdown(record))


if __name__ == "__main__":
    main()
