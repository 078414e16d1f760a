"""What fetching and training hold in memory at their peak, for many small rows and for many photos.

    python -m benchmarks.photos --before 7f39044                        # three minutes
    python -m benchmarks.photos --rows 1300000 --photos 20000           # half an hour, 20 GB of disk

makes an .npz of images of 32 x 32 and a folder of JPEG photos of 224 x 224 in a temporary folder, and runs
`python -m pipeline` on each: fetch, and one epoch of a ResNet-8 of width 4, each in a process of its own. `peak` is the
process's VmHWM: interpreter, libraries, the net's activations, and all pages of mapped files that were in its memory at
one time. `--before` does the same with the code of that commit. Of photos, DISTINCT differ and the others are links.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.fetching import CLASSES, ROOT, photograph, run_stage
from benchmarks.interval_coverage import processor
from pipeline.data import mapped

RESULT = ROOT / "benchmarks" / "results" / "photos.json"
DISTINCT = 500
SIDES = {"rows": 32, "photos": 224}
BATCHES = {"rows": 128, "photos": 16}


def write_rows(folder: Path, rows: int, side: int) -> None:
    """An .npz of images whose brightness tells their class."""
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
    """A folder of JPEG files."""
    distinct = min(DISTINCT, photos)
    photograph(folder, distinct, side)
    root = folder / "datasets" / "photos" / "train"
    for number in range(distinct, photos):
        label = f"class{number % CLASSES}"
        os.link(root / label / f"{number % distinct:05}.jpg", root / label / f"{number:05}.jpg")


def stages(code: Path, folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """Fetch and train of one data set by the code at `code`."""
    training = ["net=resnet8", "width=4", "epochs=1", "device=cpu", f"batch_size={BATCHES[name]}"]
    fetched = run_stage(code, folder, ["fetch", f"dataset={name}"])
    run_stage(code, folder, ["plan", f"dataset={name}", *training])
    return {"fetch": fetched, "train": run_stage(code, folder, ["train", *training])}


def markdown(record: dict[str, Any]) -> str:
    """The record as a table of docs/results.md."""
    lines = [
        f"One epoch of a ResNet-8 of width 4, in batches of {BATCHES['rows']} rows and {BATCHES['photos']} photos.",
        "",
        "| data | pixels | stage | rows/s | peak memory" + (" | before |" if record["before"] else " |"),
        "|---|---:|---|---:|---:|" + ("---:|" if record["before"] else ""),
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
            if record["before"]:
                cells.append(f"{record['before'][name][stage]['peak_mb']:,.0f} MB")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="0: none")
    parser.add_argument("--photos", type=int, default=4_000, help="0: none")
    parser.add_argument("--before", metavar="COMMIT")
    parser.add_argument("--work", type=Path, help="the folder on whose disk the data are made and removed again")
    parser.add_argument("--out", type=Path, default=RESULT)
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
    record = {
        "command": shlex.join(["python", "-m", "benchmarks.photos", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__},
        "processor": processor(),
        "count": count,
        "before_commit": options.before,
        "now": now,
        "before": before,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(markdown(record))
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
