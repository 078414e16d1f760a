"""The gradient norms of training rows in the study of over-confident nets, by epoch.

    python -m benchmarks.training.gradient_norms                    # of the runs in .run/studies
    python -m benchmarks.training.gradient_norms --runs FOLDER

The norm is that of a row's loss with respect to the last layer's weights (`pipeline.training.measuring.curves`). The
study writes it at the epochs of `curves`. Kept runs do not have it, so this needs the machine that made the runs. The
result has quantiles over the training rows, for each method with a finished run of seed 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import RESULTS, conclude, options_parser
from benchmarks.training.studies import FILES
from pipeline.studies import format as study_format
from pipeline.studies.runs import FOLDER, RUN, expand
from pipeline.training.files import EPOCH_ROWS
from trueodds.files import read_json

QUANTILES = (0.05, 0.5, 0.95)
STUDY, SEED = "overfit", 0
NORM = "train_gradient_norm"
ANY = ("device", "threads")
"""Settings that may differ: they say where a run is made."""


def settings(of: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that a run must share with one of the study."""
    return {**of["data"], **{name: value for name, value in of["training"].items() if name not in ANY}}


def measured(folder: Path) -> list[dict[str, Any]]:
    """Return quantiles of the gradient norms by epoch, and the run's commit and machine, for each method in order."""
    wanted = {
        run.overrides["method"]: settings(run.params.model_dump(mode="json"))
        for run in expand(study_format.read(str(FILES / f"{STUDY}.yaml")))
        if run.overrides["seed"] == SEED
    }
    found = {}
    for path in sorted(folder.glob(f"*/{RUN}")):
        record = read_json(path)
        own = settings(record["settings"])
        method = own["method"]
        # A setting that the run's version of the code did not have yet is at its default, which is null.
        if not (path.parent / EPOCH_ROWS).is_file() or any(
            own.get(name) != value for name, value in wanted.get(method, {"method": None}).items()
        ):
            continue
        with np.load(path.parent / EPOCH_ROWS) as rows:
            epochs = rows["epochs"].tolist()
            norms = np.quantile(rows[NORM], QUANTILES, axis=1).T
        found[method] = {
            "method": method, "epochs": epochs, "quantiles": norms.round(5).tolist(),
            "commit": record["commit"], "machine": record.get("machine"),
        }  # fmt: skip
    return [found[method] for method in wanted if method in found]


def markdown(result: dict[str, Any]) -> str:
    """Return the picture's link, and a table of the medians."""
    of = result["methods"]
    head = ["method", *(f"epoch {epoch}" for epoch in of[0]["epochs"])]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for one in of:
        cells = [f"{middle:.2f} ({low:.2f} to {high:.2f})" for low, middle, high in one["quantiles"]]
        lines.append([f"`{one['method']}`", *cells])
    words = "Median of the training rows, and in brackets 5% and 95%."
    return "\n".join([words, "", *(f"| {' | '.join(line)} |" for line in lines)])


def main() -> None:
    parser = options_parser(__doc__, RESULTS / "gradient_norms.json")
    parser.add_argument("--runs", type=Path, default=FOLDER, help="folder of finished runs (default: %(default)s)")
    options = parser.parse_args()
    of = measured(options.runs)
    if not of:
        parser.error(f"{options.runs} has no finished run of {STUDY} with seed {SEED} and {EPOCH_ROWS}; run the study")
    conclude(options.out, markdown, packages=("numpy",), study=STUDY, seed=SEED, methods=of)


if __name__ == "__main__":
    main()
