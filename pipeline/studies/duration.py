"""The duration of runs: a run's work, the time of all its attempts, and an estimate from runs of similar work."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from pipeline import stages
from pipeline.config import Params
from pipeline.studies.runs import quiet
from trueodds.files import read_json, write_json

RANGE = 30.0
"""Largest ratio of two runs' work for which a time is scaled. Beyond it, other costs than the net's dominate."""
KNOWN: dict[str, tuple[int, tuple[int, ...]]] = {
    "digits": (897, (1, 8, 8)),
    "cifar10": (45_000, (3, 32, 32)),
    "cifar100": (45_000, (3, 32, 32)),
    "tiny-imagenet-200": (90_000, (3, 64, 64)),
    "breast_cancer": (379, (30,)),
    "wine": (118, (13,)),
    "20news-bydate": (10_182, (100, 1000)),
    "20_newsgroups": (15_098, (100, 1000)),
    "sst-binary": (6_920, (100, 19)),
    "sst-fine": (8_544, (100, 19)),
}
"""Default number of training rows and sizes of a row, for data sets that may not be downloaded yet."""


@dataclass(frozen=True)
class Work:
    """The quantities that a run's time depends on: rows x epochs x FLOPs per row, kind of rows, method, device.

    `epochs` counts those of all members of an ensemble, and `flops` both passes of sharpness-aware steps. `whole` is
    True without `train_size`.
    """

    kind: str
    device: str
    method: str
    dataset: str
    whole: bool
    rows: int
    sizes: tuple[int, ...]
    epochs: int
    flops: int

    @property
    def total(self) -> float:
        """Return the floating-point operations of the forward passes over all epochs."""
        return float(self.rows) * self.epochs * self.flops


def work_of(params: Params, data: tuple[int, tuple[int, ...]] | None) -> Work | None:
    """Return the work of a run; None if it is unknown, or if the run trains no net.

    Args:
        params: The parameters of the run.
        data: Training rows and sizes of a row, for a data set that is not in KNOWN.
    """
    from pipeline.nets import restore
    from pipeline.nets.sizes import device_name

    with quiet():
        plan = stages.make_plan(params)
    known = KNOWN.get(params.data.dataset, data)
    if known is None or "net" not in plan:
        return None
    rows, sizes = known
    if (side := params.data.image_size) is not None:
        sizes = (3, side, side)
    shape, recipe = restore(plan["net"]), plan["recipe"]
    passes = 2 if recipe["sam"] else 1
    return Work(
        kind=shape.kind,
        device=device_name(params.training.device),
        method=params.training.method,
        dataset=params.data.dataset,
        whole=params.data.train_size is None,
        rows=params.data.train_size or rows,
        sizes=tuple(sizes),
        epochs=recipe["epochs"] * recipe["members"],
        flops=passes * _flops(json.dumps(plan["net"]), tuple(sizes)),
    )


def of_record(record: dict[str, Any]) -> Work | None:
    """Return the work in a run's record."""
    return None if record.get("work") is None else Work(**{**record["work"], "sizes": tuple(record["work"]["sizes"])})


def to_record(params: Params, card: dict[str, Any]) -> dict[str, Any] | None:
    """Return the work of a run as JSON; `card` is the fetched data set's."""
    image = [card["input"].get(name) for name in ("channels", "height", "width")]
    features, rows = card["input"].get("features"), card["splits"]["train"]
    sizes = (*image,) if all(image) else (len(features),) if features else None
    work = work_of(params, sizes and (rows, sizes))
    return None if work is None else asdict(replace(work, rows=rows))


def seconds_of(params: Params, records: Sequence[dict[str, Any]]) -> float | None:
    """Estimate the seconds of a run from the measured runs with the most similar work, scaled by work.

    They have the same kind of rows and device; among equally similar ones the same method is preferred. Returns None if
    no run is within a factor of RANGE, or if the work is unknown.
    """
    measured = [(work, record["seconds"]) for record in records if (work := of_record(record)) and record["seconds"]]
    if not measured:
        return None
    has_size = params.data.train_size is not None  # then any run of the data set shows the sizes of its rows
    of_data = [
        (work.rows, work.sizes)
        for work, _ in measured
        if work.dataset == params.data.dataset and (work.whole or has_size)
    ]
    wanted = work_of(params, of_data[0] if of_data else None)
    if wanted is None:
        return None
    near: dict[tuple[float, bool], list[float]] = {}
    for work, seconds in measured:
        if (work.kind, work.device) == (wanted.kind, wanted.device):
            ratio = wanted.total / work.total
            if 1 / RANGE <= ratio <= RANGE:
                rank = (round(abs(math.log(ratio)), 6), work.method != wanted.method)
                near.setdefault(rank, []).append(seconds * ratio)
    return median(near[min(near)]) if near else None


class Attempts:
    """The time that all attempts of a run took, stored in a file beside its log, so that a killed attempt counts.

    A killed attempt is taken to end at its last line in the log.
    """

    def __init__(self, path: Path, log: Path) -> None:
        self._path = path
        kept: dict[str, float] = read_json(path) if path.is_file() else {"spent": 0.0}
        self._spent = kept["spent"]
        if (started := kept.get("started")) is not None and log.is_file():
            self._spent += max(0.0, log.stat().st_mtime - started)
        self._started = time.time()
        write_json(path, {"spent": self._spent, "started": self._started})

    def seconds(self) -> float:
        """Return the seconds of all attempts until now."""
        return self._spent + time.time() - self._started

    def stop(self) -> None:
        """End the attempt of a run that is not finished."""
        write_json(self._path, {"spent": self.seconds()})


@cache
def _flops(net: str, sizes: tuple[int, ...]) -> int:
    from pipeline.nets import restore
    from pipeline.nets.sizes import size

    return size(restore(json.loads(net)), sizes).flops
