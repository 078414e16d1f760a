"""Studies of small nets on 20 classes of CIFAR-100, by `trueodds study`: the papers' questions at a size of two cores.

    python -m benchmarks.studies                      # all, in four hours; begun ones go on
    python -m benchmarks.studies --only survey        # one of them
    python -m benchmarks.studies --table              # of those whose runs are all done

A study whose runs are not all done here keeps what an earlier call wrote of it. Code that changes numbers gives runs
new keys, and then none is done.

The files lie in benchmarks/study_files/. The data set is made of cifar100 (TRUEODDS_DATA, or the download): its first
20 classes, 10,000 training and 2,000 test images, as datasets/cifar100-20.npz. Differences of error, NLL, Brier score
and squared calibration error are tested on the same test rows and seeds, and corrected for their number.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.interval_coverage import processor
from pipeline import data
from pipeline.config import Data
from pipeline.studies import format as study_format
from pipeline.studies import measuring, reporting, running
from pipeline.studies.format import StudyError
from pipeline.studies.runs import Place
from trueodds.files import read_json

FILES = Path(__file__).parent / "study_files"
RESULT = Path(__file__).parent / "results" / "studies.json"
ORDER = ("gamma-net", "bsce-gra", "soft-calibration", "survey", "shift", "time")
CLASSES = 20
DATA = Path("datasets") / "cifar100-20.npz"
OUT = Path("studies")


def prepare() -> None:
    """The data set, unless it is there."""
    if DATA.is_file():
        return
    whole_set = data.load(Data(dataset="cifar100"))
    arrays: dict[str, Any] = {}
    for part, splits in (("train", ("train", "val")), ("test", ("test",))):
        images, labels = (np.concatenate([whole_set.arrays[split][k] for split in splits]) for k in (0, 1))
        kept = labels < CLASSES
        arrays |= {f"x_{part}": images[kept], f"y_{part}": labels[kept]}
    DATA.parent.mkdir(exist_ok=True)
    np.savez(DATA, class_names=np.array(whole_set.card["classes"][:CLASSES]), **arrays)


def _none(_home: Path, _places: Sequence[Place]) -> dict[str, str]:
    """In place of running: what is done is done."""
    return {}


def found(name: str, run: bool) -> dict[str, Any] | None:
    """What a study says; None where not all of its runs are done."""
    path = FILES / f"{name}.yaml"
    study = study_format.read(str(path))
    try:
        done = running.carry_out(study, Path("params.yaml"), Path.cwd(), print, None if run else _none)
    except StudyError:
        if run:
            raise
        return None
    if not all(place.is_done for place in done.places):
        return None
    table = measuring.rows_of(done.places, study.calibrators)
    print(reporting.report(study, done, OUT / name))
    findings = reporting.findings(study, done, table, measuring.shifted_rows_of(done.places, study.calibrators))
    records = [place.record() for place in done.places]
    return {
        "title": study.title, "about": study.about, **vars(findings), "differs": study.differs,
        "minutes": round(sum(record["seconds"] for record in records) / 60),
        "commits": sorted({record["commit"][:7] for record in records}),
    }  # fmt: skip


def markdown(record: dict[str, Any]) -> str:
    """For docs/results.md."""
    parts = []
    for one in record["studies"].values():
        parts += [f"**{one['title']}.** {one['about']} {one['runs']}, {one['minutes']} minutes.", *one["differs"], ""]
        parts += [*reporting.markdown(one["cells"]), "", one["summary"]]
        parts += [f"- {line}" for line in one["compared"] if "than the baseline's (p " in line]
        parts += ["", *one["chosen"], ""]
        for cells in one["shifted"]:
            parts += [*reporting.markdown(cells), ""]
    return "\n".join(parts).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=ORDER)
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    prepare()
    names = [options.only] if options.only else ORDER
    if not options.table:
        for name in names:
            found(name, run=True)
    print(markdown(keep({name: said for name in ORDER if (said := found(name, run=False)) is not None})))


def keep(studies: dict[str, Any]) -> dict[str, Any]:
    """Write the studies that are done into RESULT, beside the earlier ones there, and return the whole record."""
    earlier = read_json(RESULT) if RESULT.is_file() else {"studies": {}}
    if not studies:
        return earlier
    both = {**earlier["studies"], **studies}
    record = {
        "command": shlex.join(["python", "-m", "benchmarks.studies", *sys.argv[1:]]),
        "versions": {"python": platform.python_version()},
        "processor": processor(),
        "studies": {name: both[name] for name in ORDER if name in both},
    }
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


if __name__ == "__main__":
    main()
