"""A table of answers in several files, and a table of labels that come late, twice, early, or for nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.warehouse.tables import arrow
from trueodds.reports.table.reading import Form
from trueodds.reports.warehouse.daily import make_day, missing_days
from trueodds.reports.warehouse.partitions import PartitionedTable

DAY = 86_400
START = 1_772_323_200
"""Beginning of 2026-03-01 in Unix seconds."""
DAYS = 4


def write(path: Path, columns: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(arrow(columns), path)
    return path


def columns_of(kind: str, rows: int, seed: int) -> tuple[dict[str, Any], np.ndarray, list[str]]:
    """Return the columns of answers, the index of each true class, and the names of the classes."""
    rng = np.random.default_rng(seed)
    classes = 2 if kind == "positive" else 3
    p_NC = rng.dirichlet(np.full(classes, 0.5), rows)
    label_N = (p_NC.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    names = [f"class {k}" for k in range(classes)]
    if kind == "confidence":
        return (
            {"confidence": p_NC.max(axis=1), "predicted": np.array(names)[p_NC.argmax(axis=1)].tolist()},
            label_N,
            names,
        )
    if kind == "rounded":
        p_NC = p_NC.round(2)
    return {name: p_NC[:, k] for k, name in enumerate(names)}, label_N, names


def make(folder: Path, kind: str = "usual", rows: int = 900, seed: int = 0) -> PartitionedTable:
    """Write answers of four days, without any on the third, and their labels, and return the description."""
    rng = np.random.default_rng(100 + seed)
    columns, label_N, names = columns_of(kind, rows, seed)
    day_N = np.sort(rng.choice([0, 1, 3], rows))
    time_N = START + DAY * day_N + rng.integers(0, DAY, rows)
    time_N[:3] = START, START + DAY - 1, START + DAY  # the edges of a day
    columns |= {"id": [f"a{k}" for k in range(rows)], "time": time_N, "tag": rng.choice(["web", "app"], rows).tolist()}
    columns |= {"version": np.where(day_N < 3, "1", "2").tolist()}
    for k, part in enumerate(np.array_split(rng.permutation(rows), 4)):
        write(
            folder / "answers" / f"part-{k}.parquet",
            {name: np.array(v, object if isinstance(v, list) else None)[part] for name, v in columns.items()},
        )
    labelled = np.flatnonzero(rng.random(rows) < 0.8)
    delay = rng.choice([30, DAY, 2 * DAY], len(labelled))
    rows_of_labels = [(f"a{k}", names[label_N[k]], int(time_N[k] + d)) for k, d in zip(labelled, delay, strict=True)]
    wrong_N = (label_N + 1) % len(names)  # first, and a later label replaces it
    rows_of_labels += [(f"a{k}", names[wrong_N[k]], int(time_N[k] + 10)) for k in labelled[::9]]
    rows_of_labels.append(("nobody", names[0], START + 5))
    early = int(labelled[-1])
    rows_of_labels = [row for row in rows_of_labels if row[0] != f"a{early}"]
    rows_of_labels.append((f"a{early}", names[label_N[early]], START + 7))  # before its answer
    end = START + DAY * DAYS
    rows_of_labels = [row for row in rows_of_labels if row[2] < end]
    order = rng.permutation(len(rows_of_labels))
    for k, part in enumerate(np.array_split(order, 3)):
        keys, labels, times = zip(*(rows_of_labels[i] for i in part), strict=True)
        write(folder / "labels" / f"part-{k}.parquet", {"id": list(keys), "label": list(labels), "time": list(times)})
    return described(folder, "class 1" if kind == "positive" else None)


def described(folder: Path, positive: str | None = None) -> PartitionedTable:
    """Return the description of what `make` has written."""
    return PartitionedTable(
        answers=str(folder / "answers" / "*.parquet"),
        labels=str(folder / "labels" / "*.parquet"),
        form=Form(label="label", positive=positive),
    )


def end_ms() -> int:
    return (START + DAY * DAYS) * 1000


def made(table: PartitionedTable, folder: Path) -> list[Path]:
    """Make the sums of all days, and return their files."""
    for change in missing_days(table, folder, end_ms()):
        make_day(table, change)
    return sorted(folder.glob("*.parquet"))
