"""What the fetch stage holds in memory at its peak, for an image folder, now and at an earlier commit.

    python -m benchmarks.fetching --before 680d393          # two minutes

makes JPEG photos in a temporary folder (smooth colours and grain, so that they compress as photos do), runs
`python -m pipeline fetch` on them in a process of its own, and writes benchmarks/results/fetching.json. `peak` is the
process's VmHWM, interpreter and libraries included; `libraries` is that of a fetch of eight photos. `--before` does the
same with the code of that commit; the arrays.npz must be equal to the byte.
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
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.interval_coverage import processor
from trueodds.files import sha256

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "fetching.json"
CLASSES = 4
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


def photograph(folder: Path, photos: int, side: int) -> int:
    """Write the photos; returns their bytes."""
    rng, written = np.random.default_rng(0), 0
    for number in range(photos):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float64)
        pixels = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
        path = folder / "datasets" / "photos" / "train" / f"class{number % CLASSES}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=90)
        written += path.stat().st_size
    return written


def fetch(code: Path, folder: Path) -> dict[str, Any]:
    """One fetch by the code at `code` of the photos in `folder`: seconds, MB at the peak, hash of what it wrote."""
    measured = run_stage(code, folder, ["fetch", "dataset=photos"])
    arrays = folder / "artifacts" / "data" / "arrays.npz"
    measured["sha256"] = sha256(arrays)
    arrays.unlink()
    return measured


def run_stage(code: Path, folder: Path, words: Sequence[str]) -> dict[str, Any]:
    """One stage by the code at `code` in `folder`, in a process of its own: seconds, and MB at the peak."""
    (folder / "params.yaml").write_bytes((code / "params.yaml").read_bytes())
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


def markdown(record: dict[str, Any]) -> str:
    """The record as a table of docs/results.md."""
    setting, now = record["setting"], record["now"]
    rows = [("this code", now)]
    if before := record["before"]:
        rows.append((f"at {setting['before']}", before))
    lines = [
        f"{setting['photos']:,} photos of {setting['side']} x {setting['side']}, {setting['pixels_mb']:,.0f} MB of"
        f" pixels; {record['libraries_mb']:.0f} MB of the peak are interpreter and libraries.",
        "",
        "| fetch | peak memory |",
        "|---|---:|",
        *(f"| {name} | {row['peak_mb']:,.0f} MB |" for name, row in rows),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--before", metavar="COMMIT")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    if options.photos < 2 * CLASSES or options.side < 8:
        parser.error(
            f"--photos is {options.photos}, --side {options.side}; allowed are photos >= {2 * CLASSES}, side >= 8"
        )
    with tempfile.TemporaryDirectory() as temporary:
        few, many, code = (Path(temporary) / name for name in ("few", "many", "code"))
        photograph(few, 2 * CLASSES, options.side)
        jpeg_bytes = photograph(many, options.photos, options.side)
        libraries, now, before = fetch(ROOT, few), fetch(ROOT, many), None
        if options.before:
            subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(code)], check=True)
            subprocess.run(["git", "checkout", "-q", "--detach", options.before], cwd=code, check=True)
            before = fetch(code, many)
            if before["sha256"] != now["sha256"]:
                raise SystemExit(f"{options.before} and this code make different arrays.npz of the same photos")
    record = {
        "command": shlex.join(["python", "-m", "benchmarks.fetching", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "processor": processor(),
        "setting": {
            "photos": options.photos,
            "side": options.side,
            "jpeg_mb": jpeg_bytes / 1e6,
            "pixels_mb": options.photos * options.side**2 * 3 / 1e6,
            "before": options.before,
        },
        "libraries_mb": libraries["peak_mb"],
        "now": now,
        "before": before,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(markdown(record))
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
