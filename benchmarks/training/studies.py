"""Studies of over-confident nets: the papers' questions at a size of two cores, and what became of their claims.

    python -m benchmarks.training.studies --dry-run              # the runs, and how long they will take
    python -m benchmarks.training.studies                        # all studies, one run after another
    python -m benchmarks.training.studies --only overfit         # one of them
    python -m benchmarks.training.studies --table                # runs nothing: stores what is finished
    python -m benchmarks.training.studies --table --only overfit

The files lie in benchmarks/study_files/. The data set is 20 classes of CIFAR-100 (TRUEODDS_DATA, or the download), as
datasets/cifar100-20.npz; that of noisy-digits is the digits with 10% wrong labels. `python -m
benchmarks.training.regime` found both settings. The result of noisy-digits is a file of its own.

Finished runs are stored in .run/studies, or in the folder that TRUEODDS_STUDIES names. Each one is also kept in a file
of benchmarks/runs/. Commit these files: on any other machine their runs are done. Kept runs of an earlier commit count
if settings and data are equal, and the page names their commits. With `--this-code` they run again. A study that was
stopped or killed continues from its last checkpoint. Several processes may run this at once.

The result has the finished runs only, with their number. A study keeps what an earlier call stored until as many runs
as then are finished.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.record import RESULTS, circumstances, options_parser, write
from benchmarks.training import noisy_digits, paper_claims, subset
from benchmarks.training.paper_claims import CLAIMS, Claim
from pipeline.studies import direct, kept_runs, measuring, reporting, running, runs, setting_choice
from pipeline.studies import format as study_format
from pipeline.studies.command import plan_words
from pipeline.studies.format import CALIBRATOR, Study, StudyError
from pipeline.studies.kept_runs import KeptRuns
from pipeline.studies.measuring import SEED, Row
from pipeline.studies.running import RunAll, StudyOutcome
from pipeline.studies.runs import Place
from pipeline.training.files import EPOCHS
from trueodds.files import read_json
from trueodds.texts import plural

FILES = Path(__file__).parents[1] / "study_files"
KEPT = Path(__file__).parents[1] / "runs"
"""Folder of the kept runs of all studies."""
RESULT = RESULTS / "studies.json"
NOISY = "noisy-digits"
RESULT_OF = {NOISY: RESULTS / "noisy_digits.json"}
"""Result of a study on other data than RESULT's."""
ORDER = (
    "overfit", "noisy-digits", "gamma-net", "gamma-net-cifar100", "bsce-gra", "focal", "nets", "nets-digits", "survey",
    "newsgroups", "soft-calibration", "gamma-net-variants",
)  # fmt: skip
MAIN = ("overfit", NOISY)
"""Studies of the claims and of the figures, one for each result."""
OUT = Path("studies")
BY_EPOCH = ("train_error", "val_nll", "val_ece", "test_ece", "test_gamma_mean")
"""Columns of epochs.csv that the result keeps."""
PICTURES = {"epochs": "Training error and ECE by epoch", "nll": "Log loss of the validation rows by epoch"}
"""Words for the pictures by epoch."""
FIGURES = ("error_rate", "nll", "ece", "floor_mean", "floor_p95", "ece_estimate")
"""Measures of each method that the result keeps, for its picture."""


def _places(study: Study, home: Path, params: Path, kept: KeptRuns) -> dict[str, Place]:
    """Return every run that a study can need, by its key: those of its tuning and its own."""
    expanded = runs.expand(study, params)
    both = [*setting_choice.trials(study, expanded, params), *expanded]
    return {place.key: place for place in kept.places(home, both)}


def run_nothing(_home: Path, _places: Sequence[Place]) -> dict[str, str]:
    """Stand in for running: only finished runs count."""
    return {}


def outcome_of(study: Study, kept: KeptRuns, run: RunAll | None) -> StudyOutcome | None:
    """Carry out a study. With `run_nothing`, return its finished runs; None without runs or a whole tuning."""
    try:
        done = running.carry_out(
            study, Path("params.yaml"), Path.cwd(), lambda line: print(line, flush=True), run, kept,
        )  # fmt: skip
    except StudyError:
        if run is not run_nothing:
            raise
        return None
    return done if any(place.is_done for place in done.places) else None


def result_of(study: Study, done: StudyOutcome, table: Sequence[Row]) -> dict[str, Any]:
    """Return the result of a study's finished runs."""
    found = reporting.findings(study, done, table, [])
    finished = [place for place in done.places if place.is_done]
    records = [place.record() for place in finished]
    times = [record["seconds"] for record in records if record["seconds"]]
    return {
        "title": study.title,
        "about": study.about,
        **{name: found[name] for name in ("cells", "summary", "comparisons", "choices", "tuning")},
        "exponents": exponents_of(study, finished),
        "differs": study.differs,
        "finished": len(finished),
        "runs": len(done.places),
        "seeds": sorted({place.run.overrides.get(SEED) for place in finished}, key=str),
        "hours": round(sum(times) / 3600, 2),
        "made_with": found["made_with"],
    }


def exponents_of(study: Study, places: Sequence[Place]) -> list[dict[str, Any]]:
    """Return the learned exponents of each run that learns them: gamma of the test rows, the outer loss, the ECE."""
    varied = [name for axis in study.axes for name in axis if name not in ("method", SEED)]
    found = []
    for place in places:
        rows = _rows_of(place)
        last = rows[-1]
        if not last.get("outer_before") or math.isnan(float(last.get("test_gamma_mean") or "nan")):
            continue
        named = {"mean": "test_gamma_mean", "low": "test_gamma_q05", "high": "test_gamma_q95", "ece": "test_ece"}
        found.append(
            {
                "method": place.run.overrides["method"],
                "seed": place.run.overrides[SEED],
                "varied": {name: place.run.overrides.get(name) for name in varied},
                "by_epoch": [round(float(row["test_gamma_mean"]), 4) for row in rows],
                **{name: float(last[column]) if last.get(column) else None for name, column in named.items()},
                "outer_before": float(last["outer_before"]),
                "outer_after": float(last["outer_after"]),
            }
        )
    return found


def _rows_of(place: Place) -> list[dict[str, str]]:
    """Return the epochs of a finished run."""
    with (place.folder / EPOCHS).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def methods_of(places: Sequence[Place], table: Sequence[Row]) -> list[dict[str, Any]]:
    """Return means over the seeds of each method: its figures as trained and scaled, its epochs and its minutes."""
    found = []
    for method, by_seed in paper_claims.by_method(places).items():
        of = [row for row in table if row["method"] == method]
        seconds = [record["seconds"] for place in by_seed.values() if (record := place.record())["seconds"]]
        found.append(
            {
                "method": method,
                "seeds": len(by_seed),
                "minutes": round(fmean(seconds) / 60, 1) if seconds else None,
                "calibrators": {
                    entry: {name: fmean(row[name] for row in of if row[CALIBRATOR] == entry) for name in FIGURES}
                    for entry in dict.fromkeys(row[CALIBRATOR] for row in of)
                },
                "epochs": _epochs(list(by_seed.values())),
            }
        )
    return found


def _epochs(places: Sequence[Place]) -> dict[str, list[float]]:
    """Return the mean of each column of BY_EPOCH over runs, by epoch. Columns without values are left out."""
    tables = [_rows_of(place) for place in places]
    found = {}
    for column in BY_EPOCH:
        values = [[float(row.get(column) or "nan") for row in rows] for rows in zip(*tables, strict=True)]
        means = [round(fmean(of), 5) for of in values]
        if all(mean == mean for mean in means):  # not NaN
            found[column] = means
    return found


def markdown(result: dict[str, Any]) -> str:
    """Return the claims with their verdicts, and the table of each study."""
    ece = {
        one["method"]: (of["ece"], of["floor_mean"])
        for one in result["methods"]
        if (of := one["calibrators"].get(paper_claims.IDENTITY))
    }
    lines = [*paper_claims.markdown(result["claims"], ece), "", *_survey(result["survey"]), ""]
    for name in paper_claims.pictures(result["methods"]) if "overfit" in result["studies"] else ():
        lines += [f"![{paper_claims.PAPERS.get(name) or PICTURES[name]}](../papers-{name}.svg)", ""]
    if not result["studies"]:
        lines.append("No run is finished yet.")
    for one in result["studies"].values():
        lines += [f"### {one['title']}", "", one["about"], "", _extent(one), ""]
        origins = one.get("made_with")
        lines += [reporting.origins_words(origins) if origins else "The files of these runs were not kept.", ""]
        lines += [*reporting.markdown(one["cells"]), ""]
        # What would have been detected stands in the study's own report: its sentence lists every measure.
        lines += [*(f"{sentence.rstrip('.')}." for sentence in one["summary"].split(". ")[:1] if sentence), ""]
        # The table above has the test results of a chosen setting, which follow in an indented line.
        lines += [f"- {line}" for line in [*one["tuning"], *one["choices"]] if not line.startswith(" ")]
        lines += _exponents(one.get("exponents", []))
        lines += ["", "Differs from the paper:", "", *(f"- {line}" for line in one["differs"]), ""]
    if "overfit" in result["studies"]:
        lines += _not_run([name for name in ORDER if name not in (*result["studies"], *RESULT_OF)])
    return "\n".join(lines).strip()


def _exponents(of: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table of learned exponents; nothing without any."""
    if not of:
        return []
    head = ["method", "seed", "mean γ", "γ of 90% of the rows", "ECE, %", "outer loss", "its change by a meta step"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for one in of:
        ece = "" if one["ece"] is None else f"{100 * one['ece']:.1f}"
        change = (one["outer_after"] - one["outer_before"]) / one["outer_before"]
        lines.append(
            [
                _variant(one), str(one["seed"]), f"{one['mean']:.2f}", f"{one['low']:.2f} to {one['high']:.2f}",
                ece, f"{one['outer_before']:.3f}", f"{change:+.4%}",
            ]
        )  # fmt: skip
    words = "The learned exponents of the test rows after the last epoch. The outer loss is what they minimise."
    return ["", words, "", *(f"| {' | '.join(line)} |" for line in lines)]


def _variant(one: dict[str, Any]) -> str:
    """Return the method of a run, and the other settings in which the study's runs differ."""
    settings = [f"{name} {value}" for name, value in one["varied"].items() if value is not None]
    return ", ".join([f"`{one['method']}`", *settings])


def _not_run(names: Sequence[str]) -> list[str]:
    """Return a list of the studies without a finished run."""
    if not names:
        return []
    titles = [f"- `{name}`: {study_format.read(str(FILES / f'{name}.yaml')).title}" for name in names]
    return ["### Studies that are not run yet", "", *titles]


def _extent(one: dict[str, Any]) -> str:
    seeds = f"{plural(len(one['seeds']), 'seed')} so far" if one["finished"] < one["runs"] else "all seeds"
    return f"{one['finished']} of {plural(one['runs'], 'run')} are finished ({seeds}), in {one['hours']:.1f} hours."


def _survey(of: dict[str, Any] | None) -> list[str]:
    if of is None:
        return []
    plain, debiased = (of["reductions"][name] for name in ("ece", "ece_estimate"))
    return [
        f"The survey says that focal loss reduces the ECE by {of['least']:.0%} to {of['most']:.0%}. Here"
        f" `{of['method']}` reduces the plug-in ECE by {plain:.0%} and its debiased estimate by {debiased:.0%}. The"
        " plug-in ECE keeps its noise floor, so its reduction has no verdict."
    ]


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--only", choices=ORDER)
    parser.add_argument("--out", type=Path, help="file of the result, with --only (default: the committed file)")
    parser.add_argument("--table", action="store_true", help="run nothing; store what is finished")
    parser.add_argument("--dry-run", action="store_true", help="print the runs, and how long they will take")
    parser.add_argument("--without-dvc", action="store_true", help="train each net in this process (for a GPU)")
    parser.add_argument("--runs-only", action="store_true", help="carry out and keep the runs; store no table")
    parser.add_argument("--this-code", action="store_true", help="do not take the kept runs of other commits")
    options = parser.parse_args()
    kept = KeptRuns(KEPT, () if options.this_code else kept_runs.commits_in(KEPT))
    if options.out is not None and options.only is None:
        parser.error("--out is for one study, because several have results of their own; add --only NAME")
    subset.prepare()
    noisy_digits.prepare()
    home, params = Path.cwd(), Path("params.yaml")
    names = [options.only] if options.only else ORDER
    every: dict[str, Place] = {}
    for name in names:
        of = _places(study_format.read(str(FILES / f"{name}.yaml")), home, params, kept)
        print(f"{name}: {plan_words(running.estimate(home, list(of.values())))}", flush=True)
        every |= of
    print(f"together: {plan_words(running.estimate(home, list(every.values())))}", flush=True)
    if options.dry_run:
        return
    run: RunAll | None = None
    if options.table:
        run = run_nothing
    elif options.without_dvc:
        run = partial(running.run_all, make=direct.run_here, kept_runs=kept)
    if options.runs_only:
        for name in names:
            study = study_format.read(str(FILES / f"{name}.yaml"))
            running.carry_out(study, params, home, lambda line: print(line, flush=True), run, kept).check()
        return
    for result in dict.fromkeys(RESULT_OF.get(name, RESULT) for name in names):
        store(
            [name for name in names if RESULT_OF.get(name, RESULT) == result],
            options.out or result,
            kept,
            run,
        )


def store(names: Sequence[str], out: Path, kept: KeptRuns, run: RunAll | None) -> None:
    """Carry out studies that share a result, and store it after each one.

    Args:
        names: The studies.
        out: File of the result.
        kept: The kept runs.
        run: Carries out the runs. None: one after another, by DVC's graph.
    """
    earlier: dict[str, Any] = read_json(out) if out.is_file() else {"studies": {}}
    studies: dict[str, Any] = earlier["studies"]
    beside = {key: earlier.get(key, []) for key in ("claims", "methods")} | {"survey": earlier.get("survey")}
    for name in names:
        study = study_format.read(str(FILES / f"{name}.yaml"))
        done = outcome_of(study, kept, run)
        finished = sum(place.is_done for place in done.places) if done else 0
        if name in studies and finished < studies[name]["finished"]:
            print(f"{name}: {finished} of the {studies[name]['finished']} runs of the earlier result; that one stays")
            continue
        places, table = (done.places, measuring.rows_of(done.places, study.calibrators)) if done else ((), [])
        if done is None:
            print(f"{name}: no run is finished")
        else:
            studies[name] = result_of(study, done, table)
            print(reporting.report(study, done, OUT / name))
        if name in MAIN:
            beside = {
                "claims": paper_claims.judged(paper_claims.by_method(places), claims_of(study)),
                "survey": paper_claims.survey(table),
                "methods": methods_of(places, table),
            }
        ordered = {name: studies[name] for name in ORDER if name in studies}
        write(out, {**circumstances("torch", "numpy"), **beside, "studies": ordered})


def claims_of(study: Study) -> list[Claim]:
    """Return the claims that compare two methods of a study."""
    methods = study.vary["method"]
    return [claim for claim in CLAIMS if claim.method in methods and claim.than in methods]


if __name__ == "__main__":
    main()
