"""Peak memory of fetching and training, for many small rows and for many photos.

    python -m benchmarks.training.photos --before 7f39044                                 # four minutes
    python -m benchmarks.training.photos --rows 1300000 --photos 20000 --out large.json  # half an hour, 15 GB of disk

It makes an .npz of images of 32 x 32 and a folder of JPEG photos of 224 x 224 (smooth colours and grain, so that they
compress like photos) in a temporary folder. It runs `python -m pipeline` on each: fetch, and one epoch of a ResNet-8 of
width 4, each in a process of its own. Then it times the augmentation of photos. `peak` is the process's VmHWM:
interpreter, libraries, the net's activations, and all pages of mapped files that were in its memory at one time.
`--before` does the same with the code of that commit. DISTINCT of the photos differ, the others are links.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.record import RESULTS, conclude, options_parser
from pipeline.data import mapped
from pipeline.training.batches import Augmentation

ROOT = Path(__file__).resolve().parents[2]
RESULT = RESULTS / "photos.json"
CLASSES = 4
DISTINCT = 500
SIDES = {"rows": 32, "photos": 224}
BATCHES = {"rows": 128, "photos": 16}
AUGMENTATIONS = {
    "flip": Augmentation(flip=True),
    "flip, crop_scale 0.08": Augmentation(flip=True, crop_scale=0.08),
    "flip, crop_scale 0.08, randaugment 2": Augmentation(flip=True, crop_scale=0.08, randaugment=2),
}
STAGE = """
import pathlib, re, runpy, sys
sys.argv[0] = "pipeline"
try:
    runpy.run_module("pipeline", run_name="__main__", alter_sys=True)
except SystemExit as end:
    if end.code:
        raise
print(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])
"""


def write_rows(folder: Path, rows: int, side: int) -> None:
    """Write an .npz of images whose brightness gives their class."""
    (folder / "datasets").mkdir(parents=True)
    images, rng = mapped.empty((rows, side, side, 3), np.uint8, folder), np.random.default_rng(0)
    labels, pages = np.arange(rows) % CLASSES, mapped.Pages(images)
    for begin in range(0, rows, 1000):
        part = labels[begin : begin + 1000]
        noise = rng.integers(0, 100, (len(part), side, side, 3), dtype=np.uint8)
        images[begin : begin + 1000] = noise + (part * 40).astype(np.uint8)[:, None, None, None]
        pages.touch(len(part))
    names = np.array([f"class{k}" for k in range(CLASSES)])
    mapped.write_npz(folder / "datasets" / "rows.npz", {"x_train": images, "y_train": labels, "class_names": names})


def write_photos(folder: Path, photos: int, side: int) -> None:
    """Write a folder of JPEG files."""
    root, rng = folder / "datasets" / "photos" / "train", np.random.default_rng(0)
    for number in range(photos):
        path = root / f"class{number % CLASSES}" / f"{number:05}.jpg"
        if number >= DISTINCT:
            os.link(path.with_name(f"{number % DISTINCT:05}.jpg"), path)
            continue
        coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float64)
        pixels = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=90)


def stages(code: Path, folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """Fetch and train one data set with the code at `code`."""
    (folder / "params.yaml").write_bytes((code / "params.yaml").read_bytes())
    training = ["net=resnet8", "width=4", "epochs=1", "device=cpu", "threads=1", f"batch_size={BATCHES[name]}"]
    fetched = run_stage(code, folder, ["fetch", f"dataset={name}"])
    run_stage(code, folder, ["plan", f"dataset={name}", *training])
    return {"fetch": fetched, "train": run_stage(code, folder, ["train", *training])}


def run_stage(code: Path, folder: Path, words: Sequence[str]) -> dict[str, Any]:
    """Run one stage with the code at `code` in `folder`, in a process of its own. Returns seconds and peak MB."""
    environment = {key: value for key, value in os.environ.items() if key != "TRUEODDS_DATA"}
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", STAGE, *words],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(code)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - started
    return {"seconds": round(seconds, 1), "peak_mb": int(done.stdout.split()[-1]) * 1024 / 1e6}


def augmentation_ms(augment: Augmentation, side: int, images: int = 64) -> float:
    """Return the processor time of one image in milliseconds, on one thread."""
    torch.set_num_threads(1)
    rows = torch.randint(0, 256, (images, side, side, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    augment(rows[:1], torch.Generator().manual_seed(0))  # torchvision is imported
    started = time.process_time()
    augment(rows, torch.Generator().manual_seed(0))
    return (time.process_time() - started) / images * 1000


def markdown(record: dict[str, Any]) -> str:
    """Return the record as tables of docs/explanation/results.md."""
    before = record["before"]
    lines = [
        f"One epoch of a ResNet-8 of width 4, in batches of {BATCHES['rows']} rows and {BATCHES['photos']} photos, one"
        " thread.",
        "",
        "| data | pixels | stage | rows/s | peak memory |" + (f" at {record['before_commit']} |" if before else ""),
        "|---|---:|---|---:|---:|" + ("---:|" if before else ""),
    ]
    for name, now in record["now"].items():
        count, side = record["count"][name], SIDES[name]
        for stage, measured in now.items():
            cells = [
                f"{count:,} {name} of {side} x {side}",
                f"{count * side**2 * 3 / 1e6:,.0f} MB",
                stage,
                f"{count / measured['seconds']:,.0f}",
                f"{measured['peak_mb']:,.0f} MB",
            ]
            if before:
                cells.append(f"{before[name][stage]['peak_mb']:,.0f} MB")
            lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"| augmentation of {SIDES['photos']} x {SIDES['photos']} | processor time of an image |",
        "|---|---:|",
    ]
    lines += [f"| {name} | {ms:.1f} ms |" for name, ms in record["augmentation_ms"].items()]
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--rows", type=int, default=200_000, help="0: none")
    parser.add_argument("--photos", type=int, default=4_000, help="0: none")
    parser.add_argument("--before", metavar="COMMIT")
    parser.add_argument("--work", type=Path, help="the folder in which the data are made, and removed again")
    options = parser.parse_args()
    count = {name: getattr(options, name) for name in SIDES if getattr(options, name)}
    if not count or min(count.values()) < 100:
        parser.error(f"--rows is {options.rows}, --photos {options.photos}; allowed are 0 and numbers from 100 up")
    now, before = {}, {}
    with tempfile.TemporaryDirectory(dir=options.work) as temporary:
        code = Path(temporary) / "code"
        if options.before:
            subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(code)], check=True)
            subprocess.run(["git", "checkout", "-q", "--detach", options.before], cwd=code, check=True)
        for name, rows in count.items():
            with tempfile.TemporaryDirectory(dir=temporary) as folder:
                (write_rows if name == "rows" else write_photos)(Path(folder), rows, SIDES[name])
                now[name] = stages(ROOT, Path(folder), name)
                if options.before:
                    before[name] = stages(code, Path(folder), name)
    conclude(
        options.out,
        markdown,
        packages=("numpy", "torch"),
        count=count,
        before_commit=options.before,
        now=now,
        before=before,
        augmentation_ms={name: augmentation_ms(augment, SIDES["photos"]) for name, augment in AUGMENTATIONS.items()},
    )


if __name__ == "__main__":
    main()
