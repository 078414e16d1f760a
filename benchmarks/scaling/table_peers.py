"""One program that reads a Parquet table of answers, for `benchmarks.scaling.warehouse_growth`.

    PYTHON -m benchmarks.scaling.table_peers pandas answers.parquet

It prints, as JSON, the seconds of the processors since the start, the largest memory, and what it found. It imports
nothing of this project except for `trueodds`, so that a Python with other packages can run it.
"""

from __future__ import annotations

import json
import re
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

CLASSES = [f"c{k}" for k in range(10)]
CELLS = 3000


def pandas_sums(path: str) -> dict[str, Any]:
    """Return the accuracy after the sums by class, tag and day, written by hand."""
    import numpy as np
    import pandas as pd

    table = pd.read_parquet(path)
    given_NC = table[CLASSES].to_numpy()
    code_N = pd.Categorical(table["label"], categories=CLASSES).codes
    known_N = code_N >= 0
    top_N, top_class_N = given_NC.max(axis=1), given_NC.argmax(axis=1)
    true_N = given_NC[np.arange(len(table)), np.maximum(code_N, 0)]
    nll_N = np.where(known_N, -np.log(np.maximum(true_N, sys.float_info.min)), np.nan)
    brier_N = np.where(known_N, (given_NC**2).sum(axis=1) - 2 * true_N + 1, np.nan)
    frame = pd.DataFrame(
        {
            "class": top_class_N,
            "tag": table["tag"],
            "day": table["time"] // 86400,
            "cell": np.ceil(top_N * CELLS) - 1,
            "known": known_N,
            "right": known_N & (top_class_N == code_N),
            "confidence": np.where(known_N, top_N, np.nan),
            "nll": nll_N,
            "nll_squared": nll_N**2,
            "brier": brier_N,
            "brier_squared": brier_N**2,
        }
    )
    values = ["known", "right", "confidence"]
    scores = ["nll", "nll_squared", "brier", "brier_squared"]
    by_class = frame.groupby(["class", "cell"])[values + scores].sum()
    for key in ("tag", "day"):
        frame.groupby([key, "cell"])[values].sum()
    return {"accuracy": float(by_class["right"].sum() / by_class["known"].sum())}


def torchmetrics_ece(path: str) -> dict[str, Any]:
    """Return the accuracy and the ECE of 15 bins, in batches of 100,000 rows."""
    import numpy as np
    import pyarrow.parquet as parquet
    import torch
    from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

    torch.set_num_threads(1)
    ece = MulticlassCalibrationError(num_classes=len(CLASSES), n_bins=15)
    accuracy = MulticlassAccuracy(num_classes=len(CLASSES), average="micro")
    for batch in parquet.ParquetFile(path).iter_batches(100_000, columns=[*CLASSES, "label"]):
        labelled = batch.filter(batch.column("label").is_valid())
        label_N = torch.tensor([CLASSES.index(name) for name in labelled.column("label").to_pylist()])
        columns = [labelled.column(name).to_numpy(zero_copy_only=False) for name in CLASSES]
        probs_NC = torch.from_numpy(np.stack(columns, axis=1))
        ece.update(probs_NC, label_N)
        accuracy.update(probs_NC, label_N)
    return {"accuracy": float(accuracy.compute()), "ece": float(ece.compute())}


def evidently_report(path: str) -> dict[str, Any]:
    """Return the accuracy of the preset for classification."""
    import pandas as pd
    from evidently import DataDefinition, Dataset, MulticlassClassification, Report
    from evidently.presets import ClassificationPreset

    table = pd.read_parquet(path, columns=[*CLASSES, "label"]).dropna()
    kind = MulticlassClassification(target="label", prediction_probas=CLASSES, prediction_labels="predicted")
    table["predicted"] = table[CLASSES].idxmax(axis=1)
    dataset = Dataset.from_pandas(table, data_definition=DataDefinition(classification=[kind]))
    found = Report([ClassificationPreset()]).run(dataset, None).dict()
    values = [m["value"] for m in found["metrics"] if str(m.get("metric_name", m.get("metric_id"))).startswith("Accur")]
    return {"accuracy": float(values[0])}


def trueodds_report(path: str) -> dict[str, Any]:
    """Return the accuracy of the report by DuckDB."""
    import contextlib
    import io
    import tempfile

    from trueodds import cli

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        out = Path(folder) / "report.json"
        cli.main("trueodds", cli.COMMANDS, ["report", path, "--engine", "duckdb", "--json", str(out)])
        return {"accuracy": json.loads(out.read_text(encoding="utf-8"))["accuracy"]}


PROGRAMS = {
    "trueodds": trueodds_report,
    "pandas": pandas_sums,
    "torchmetrics": torchmetrics_ece,
    "evidently": evidently_report,
}
"""Name of a package -> its program."""


def main() -> None:
    """Run one program, and print what it took."""
    name, path = sys.argv[1:]
    found = PROGRAMS[name](path)
    memory = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    assert memory is not None
    taken = {"processor_s": round(time.process_time(), 2), "peak_mib": round(int(memory[1]) / 1024)}
    print(json.dumps({"program": name, "version": version(name), **taken, **found}))


if __name__ == "__main__":
    main()
