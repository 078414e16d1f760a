"""Search for the smallest setting in which cross entropy is over-confident.

    python -m benchmarks.training.regime --dry-run           # the runs, and how long they will take
    python -m benchmarks.training.regime                     # half an hour on one free core; stops at the first setting
    python -m benchmarks.training.regime --of noisy-digits   # a few minutes

The settings are those of benchmarks/study_files/regime.yaml (noisy-digits-regime.yaml), in the order of their work;
equal ones in that of the file. The rule was fixed before any of them ran. It takes the first setting in which, on the
validation rows,

- the ECE is at least 2.5 times the 95th percentile of its noise floor, and
- the training error of the last epoch is below 2%.

No test row is looked at, and no other study uses the seed of this search. Finished runs are kept as those of any study.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, circumstances, options_parser, write
from benchmarks.training import noisy_digits, subset
from pipeline.studies import duration, measuring, running, runs
from pipeline.studies import format as study_format
from pipeline.studies.command import plan_words
from pipeline.studies.runs import Place
from pipeline.training.files import EPOCHS

FILES = Path(__file__).parents[1] / "study_files"


@dataclass(frozen=True)
class Search:
    """A search on one data set: its study file, its result, the function that makes its data, and a row's sizes."""

    file: Path
    result: Path
    prepare: Callable[[], Path]
    sizes: tuple[int, ...]


SEARCHES = {
    subset.NAME: Search(FILES / "regime.yaml", RESULTS / "regime.json", subset.prepare, (3, 32, 32)),
    "noisy-digits": Search(
        FILES / "noisy-digits-regime.yaml", RESULTS / "noisy_digits_regime.json", noisy_digits.prepare, (1, 8, 8)
    ),
}
FACTOR = 2.5
"""Least ratio of the ECE to the 95th percentile of its noise floor."""
TRAINING_ERROR = 0.02
"""The training error is below this."""
LEAVES = ("train_size", "width", "epochs", "batch_size")
Row = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """One setting of the search with its figures. ECE, floor, error and NLL are of the validation rows."""

    setting: dict[str, Any]
    flops: float
    """Floating-point operations of the forward passes over all epochs."""
    seconds: float | None
    train_error: float
    error: float
    nll: float
    ece: float
    floor_p95: float

    @property
    def ratio(self) -> float:
        """Return the ECE as a multiple of its noise floor's 95th percentile."""
        return self.ece / self.floor_p95

    @property
    def is_over_confident(self) -> bool:
        """Return whether the rule holds."""
        return self.ratio >= FACTOR and self.train_error < TRAINING_ERROR


def search(places: Sequence[Place], measure: Callable[[Place], Candidate], sizes: tuple[int, ...]) -> list[Candidate]:
    """Measure the settings by rising work, up to the first one for which the rule holds.

    Args:
        places: The settings.
        measure: Function that measures one of them.
        sizes: Sizes of a row.
    """
    tried: list[Candidate] = []
    for place in sorted(places, key=lambda place: _flops(place, sizes)):
        tried.append(measure(place))
        if tried[-1].is_over_confident:
            break
    return tried


def _flops(place: Place, sizes: tuple[int, ...]) -> float:
    work = duration.work_of(place.run.params, (1, sizes))
    assert work is not None
    return work.total


def candidate_of(place: Place, sizes: tuple[int, ...]) -> Candidate:
    """Measure a finished run on rows of these sizes."""
    (row,) = measuring.rows_of([place], ["identity"])
    with (place.folder / EPOCHS).open(encoding="utf-8", newline="") as file:
        last = list(csv.DictReader(file))[-1]
    return Candidate(
        setting={leaf: place.run.overrides[leaf] for leaf in LEAVES},
        flops=_flops(place, sizes),
        seconds=row["seconds"],
        train_error=float(last["train_error"]),
        error=row["val_error_rate"],
        nll=row["val_nll"],
        ece=row["val_ece"],
        floor_p95=row["val_floor_p95"],
    )


def result_of(tried: Sequence[Candidate]) -> Row:
    """Return the result of the search. `chosen` is None if the rule holds for no setting."""
    return {
        "rule": {"factor": FACTOR, "training_error": TRAINING_ERROR},
        "tried": [{**asdict(one), "ratio": one.ratio, "holds": one.is_over_confident} for one in tried],
        "chosen": next((one.setting for one in tried if one.is_over_confident), None),
    }


def markdown(result: Row) -> str:
    """Return the table of the search."""
    rule = result["rule"]
    lines = [
        "| images | width | epochs | batch | minutes | training error | error | NLL | ECE | floor (95%) | ECE / floor |"
        " rule |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for one in result["tried"]:
        setting = one["setting"]
        minutes = "-" if one["seconds"] is None else f"{one['seconds'] / 60:.1f}"
        lines.append(
            f"| {setting['train_size']:,} | {setting['width']} | {setting['epochs']} | {setting['batch_size']}"
            f" | {minutes} | {one['train_error']:.1%} | {one['error']:.1%} | {one['nll']:.3f} | {one['ece']:.3f}"
            f" | {one['floor_p95']:.3f} | {one['ratio']:.1f}"
            f" | {'holds' if one['holds'] else 'does not hold'} |"
        )
    lines += [
        "",
        f"The rule asks for an ECE of at least {rule['factor']:g} times the floor's 95th percentile and a training"
        f" error below {rule['training_error']:.0%}. Error, NLL, ECE and floor are of validation rows.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--of", choices=SEARCHES, default=subset.NAME, help="data set (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="file of the result (default: that of the data set)")
    parser.add_argument("--dry-run", action="store_true", help="print the runs, and how long they will take")
    options = parser.parse_args()
    of = SEARCHES[options.of]
    of.prepare()
    home = Path.cwd()
    study = study_format.read(str(of.file))
    places = runs.places(home, runs.expand(study, home / "params.yaml"))
    print(f"{study.title}: at most {plan_words(running.estimate(home, places))}", flush=True)
    if options.dry_run:
        return

    def measure(place: Place) -> Candidate:
        if failed := running.run_all(home, [place]):
            raise running.RunError(next(iter(failed.values())))
        found = candidate_of(place, of.sizes)
        print(f"{place.run.name}: training error {found.train_error:.1%}, ECE {found.ratio:.2f} x floor", flush=True)
        return found

    result = {**circumstances("torch", "numpy"), **result_of(search(places, measure, of.sizes))}
    print(markdown(result))
    write(options.out or of.result, result)


if __name__ == "__main__":
    main()
