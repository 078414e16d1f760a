"""Cost of checkpoints within an epoch: bytes and seconds of one checkpoint, and its share of the time.

    python -m benchmarks.training.checkpoints                        # half a minute

It is measured for nets of the size used for CIFAR-100, at the end of an epoch of 45,000 rows, when the checkpoint is
largest because it includes logits and labels, after one step of SGD with momentum. Times are the median of nine on this
disk. `share` is that of one checkpoint per `pipeline.training.checkpoint.EVERY` seconds, as training writes them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import RESULTS, conclude, options_parser
from pipeline.config import Training
from pipeline.training.checkpoint import EVERY, Checkpoint
from pipeline.training.resolution import plan_of
from pipeline.training.training_state import Epoch, TrainingState

RESULT = RESULTS / "checkpoints.json"
NETS = ("resnet8", "resnet20", "resnet18")
CLASSES = 100


def measure(name: str, rows: int, rounds: int, device: torch.device) -> dict[str, Any]:
    """Write one net's checkpoint again and again, and measure it."""
    plan = plan_of(Training(net=name), "cifar100", "image", held_out=False)
    state = TrainingState.initial(plan, plan.net.build(3, CLASSES).to(device))
    state.descend(state.net(torch.zeros(2, 3, 32, 32, device=device)).sum(), 2)
    epoch = Epoch(0)
    epoch.add(
        torch.zeros((), device=device),
        torch.randn(rows, CLASSES, device=device),
        torch.zeros(rows, dtype=torch.int64, device=device),
        None,
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, seconds = Checkpoint(Path(folder)), []
        for _ in range(rounds):
            started = time.perf_counter()
            checkpoint.save_middle(state, epoch)
            seconds.append(time.perf_counter() - started)
        size = (Path(folder) / "state.pt").stat().st_size
    taken = statistics.median(seconds)
    return {"net": name, "mb": size / 1e6, "seconds": taken, "share": taken / (EVERY + taken)}


def markdown(record: dict[str, Any]) -> str:
    """Return the record as a table of docs/explanation/results.md."""
    lines = [
        f"At most one in {record['every']:g} s; {record['rows']:,} rows of {CLASSES} classes, on {record['device']}.",
        "",
        "| net | checkpoint | written in | share of the time |",
        "|---|---:|---:|---:|",
    ]
    lines += [
        f"| {row['net']} | {row['mb']:.0f} MB | {row['seconds']:.2f} s | {row['share']:.2%} |" for row in record["nets"]
    ]
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--rows", type=int, default=45_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if options.rows < 1 or options.rounds < 1:
        parser.error(f"--rows is {options.rows}, --rounds {options.rounds}; allowed are whole numbers from 1 up")
    conclude(
        options.out,
        markdown,
        packages=("torch",),
        device=options.device,
        every=EVERY,
        rows=options.rows,
        nets=[measure(name, options.rows, options.rounds, torch.device(options.device)) for name in NETS],
    )


if __name__ == "__main__":
    main()
