"""Cost of training a head on cached features, compared with computing them from photos in every step.

    python -m benchmarks.training.finetuning           # five minutes on two cores

It makes a folder of photos like `benchmarks.training.photos`, and random weights of torchvision's ResNet-18. (Published
weights need a network; time and memory are the same, and accuracy is not measured.) It runs `python -m pipeline` on
them with recipe finetune-head, each stage in a process of its own. `first`: 50 epochs including the features; `again`:
another method, which finds the features; `every step`: one epoch with `flip`, so that the body runs on each batch.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import RESULTS, conclude, options_parser
from benchmarks.training.photos import ROOT, run_stage, write_photos
from pipeline import nets

RESULT = RESULTS / "finetuning.json"
NET, SIDE, EPOCHS = "torchvision_resnet18", 224, 50
RUNS = {
    "first": ["method=ce", f"epochs={EPOCHS}"],
    "again": ["method=fl3", f"epochs={EPOCHS}"],
    "every step": ["method=ce", "epochs=1", "flip=true"],
}


def measure(photos: int, threads: int, folder: Path) -> dict[str, Any]:
    """Return seconds and peak memory of fetching and of each of RUNS."""
    (folder / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    write_photos(folder, photos, SIDE)
    torch.manual_seed(0)
    torch.save(nets.build(NET, 3, 1000).state_dict(), folder / "start.pt")
    measured = {"fetch": run_stage(ROOT, folder, ["fetch", "dataset=photos"])}
    for name, words in RUNS.items():
        leaves = ["recipe=finetune-head", "start=start.pt", "device=cpu", f"threads={threads}", *words]
        run_stage(ROOT, folder, ["plan", "dataset=photos", *leaves])
        measured[name] = run_stage(ROOT, folder, ["train", *leaves])
    return measured


def markdown(record: dict[str, Any]) -> str:
    """Return the record as a table of docs/explanation/results.md."""
    runs, epochs = record["runs"], record["epochs"]
    names = {
        "fetch": "reading the photos",
        "first": f"computing the features, and {epochs} epochs of the head",
        "again": f"{epochs} epochs of the head with another method, stored features",
        "every step": "one epoch that computes the features in every step",
    }
    lines = [
        f"{record['photos']:,} photos of {SIDE} x {SIDE}, `{NET}`, {record['threads']} threads; with the start of the"
        " interpreter.",
        "",
        "| | seconds | peak memory |",
        "|---|---:|---:|",
    ]
    lines += [
        f"| {text} | {runs[name]['seconds']:.0f} | {runs[name]['peak_mb']:,.0f} MB |" for name, text in names.items()
    ]
    whole = epochs * runs["every step"]["seconds"] / runs["first"]["seconds"]
    lines += ["", f"{epochs} epochs that compute the features in every step would take {whole:.0f} times as long."]
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--photos", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if options.photos < 100:
        parser.error(f"--photos is {options.photos}; allowed are numbers from 100 up")
    with tempfile.TemporaryDirectory() as folder:
        runs = measure(options.photos, options.threads, Path(folder))
    conclude(
        options.out,
        markdown,
        packages=("numpy", "torch"),
        photos=options.photos,
        threads=options.threads,
        epochs=EPOCHS,
        runs=runs,
    )


if __name__ == "__main__":
    main()
