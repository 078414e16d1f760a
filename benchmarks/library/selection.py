"""Costs of `calibrators.select` on few rows, its choices on many rows, and the harm of curved calibrators.

    python -m benchmarks.library.selection                               # six worlds; about twenty minutes on one core
    python -m benchmarks.library.selection --worlds 0 1                  # some of them; the others stay
    python -m benchmarks.library.selection --parts curves                # number of rows from which curves do no harm
    python -m benchmarks.library.selection --parts records --records DIR  # real nets: an .npz each; four minutes

Worlds: N validation rows, a choice among the default candidates for few rows, and its NLL on 10,000 test rows:

- plain: the papers' formulas (no shrinkage of temperatures, ensembles and bias corrections), lowest cross-validated
  NLL.
- least: the default fits, lowest cross-validated NLL.
- select: `calibrators.select`, which also passes over candidates that have too few rows.

For 50 rows the NLL is compared with that of no calibration, for 1,000 rows with that of the plain way.

Curves: the same, with and without the candidates that bend the top label's confidence, for truths that need no curve.

Records: `predictions` (probabilities, N x C) and `ground_truth` of a real net's test rows. They are split in halves,
fitted on one and measured on the other: NLL, ECE (15 bins) and noise floor of every candidate, and of the choice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, Run, circumstances, options_parser, write
from trueodds import calibrators, logits_of, metrics
from trueodds.calibrators import Calibrator, FitError
from trueodds.calibrators.held_out import FOLDS, calibrated_nll
from trueodds.calibrators.selection import CANDIDATES, TOP_CURVES, Selection, default_candidates
from trueodds.calibrators.selection.choosing import choose
from trueodds.calibrators.selection.folds import Folds

Rows = tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]
Draw = Callable[[np.random.Generator, int], Rows]
RESULT = RESULTS / "selection.json"
TEST_ROWS = 10_000
FEW, MANY = 50, 1000
ALLOWED = 0.05
"""Largest acceptable loss in nats of a choice on few rows, compared with no calibration."""
PLAIN: list[tuple[str, dict[str, float]]] = [
    ("identity", {}),
    ("temperature", {"shrinkage": 0.0}),
    ("ensemble_temperature", {"shrinkage": 0.0}),
    ("bias_corrected_temperature", {"shrinkage": 0.0, "intercept": 0.0}),
    ("structured_vector", {"shrinkage": 0.0}),
    ("structured_matrix", {"shrinkage": 0.0}),
]


def even(classes: int, spread: float, temperature: float, bias: float = 0.0) -> Draw:
    """Draw logits N(0, spread) in every class, labels from softmax(z / temperature + b), b even from -bias to bias."""

    def draw(rng: np.random.Generator, rows: int) -> Rows:
        z_NC = rng.normal(0, spread, (rows, classes))
        truth_NC = z_NC / temperature + np.linspace(-bias, bias, classes)
        return z_NC, (truth_NC + rng.gumbel(size=z_NC.shape)).argmax(axis=1)

    return draw


def alike(classes: int) -> Draw:
    """Draw rows whose confidences are all about .96, with labels from softmax(z)."""

    def draw(rng: np.random.Generator, rows: int) -> Rows:
        z_NC = rng.normal(0, 0.3, (rows, classes))
        z_NC[np.arange(rows), rng.integers(0, classes, rows)] += np.log(classes - 1) + 3.18
        return z_NC, (z_NC + rng.gumbel(size=z_NC.shape)).argmax(axis=1)

    return draw


WORLDS: dict[str, Draw] = {
    "2 classes, calibrated": even(2, 10.0, 1.0),
    "2 classes, logits 1.5 times too large": even(2, 15.0, 1.5),
    "10 classes, calibrated": even(10, 27.0, 1.0),
    "10 classes, logits 1.5 times too large": even(10, 40.5, 1.5),
    "10 classes, 1.5 times too large, offsets to 1.5": even(10, 40.5, 1.5, 1.5),
    "10 classes, every confidence .96": alike(10),
}
"""Worlds, all with an accuracy of about .96."""
STRAIGHT: dict[str, Draw] = {
    "10 classes, accuracy .6": even(10, 3.0, 1.0),
    "10 classes, accuracy .6, 1.5 times too large": even(10, 4.5, 1.5),
    "30 classes, accuracy .7": even(30, 6.0, 1.0),
    "10 classes, accuracy .96, 1.5 times too large": even(10, 40.5, 1.5),
}
"""Truths that no curve can improve, so that any change by a curve is harm."""
LADDER = (100, 200, 500, 1000)
PARTS = ("worlds", "curves", "records")


def measured(draw: Draw, rows: int, draws: int) -> dict[str, Any]:
    """Return the test NLL of each way for each draw, above the NLL that it is compared with."""
    test = draw(np.random.default_rng(1), TEST_ROWS)
    identity = float(calibrated_nll(calibrators.Identity(), *test).mean())
    found: dict[str, list[float]] = {"plain": [], "least": [], "select": []}
    passed_over = 0
    for seed in range(draws):
        data = draw(np.random.default_rng([rows, seed]), rows)
        plain, ours = calibrators.select(*data, candidates=PLAIN), calibrators.select(*data, candidates=CANDIDATES)
        passed_over += any(line.passed_over is not None for line in ours.table)
        chosen = {"plain": least(plain, data), "least": least(ours, data), "select": ours.calibrator}
        for way, calibrator in chosen.items():
            found[way].append(float(calibrated_nll(calibrator, *test).mean()))
    base_N = np.array(found["plain"]) if rows == MANY else np.full(draws, identity)
    accuracy = float((test[0].argmax(axis=1) == test[1]).mean())
    result: dict[str, Any] = {
        "rows": rows,
        "draws": draws,
        "accuracy": accuracy,
        "identity": identity,
        "passed_over": passed_over,
    }
    for way, nll in found.items():
        above_N = np.array(nll) - base_N
        result[way] = {
            "mean": float(above_N.mean()),
            "standard_error": float(above_N.std(ddof=1) / np.sqrt(draws)),
            "p95": float(np.quantile(above_N, 0.95)),
            "largest": float(above_N.max()),
            "above_allowed": int((above_N > ALLOWED).sum()),
        }
    return result


def harm(draw: Draw, rows: int, draws: int) -> dict[str, Any]:
    """Return the test NLL of `select` with the curves among the candidates, above that without them."""
    test = draw(np.random.default_rng(1), TEST_ROWS)
    added, taken = [], 0
    for seed in range(draws):
        data = draw(np.random.default_rng([rows, seed]), rows)
        without, with_curves = (
            calibrators.select(*data, candidates=names).calibrator for names in (CANDIDATES, CANDIDATES + TOP_CURVES)
        )
        taken += with_curves.name in TOP_CURVES
        same = without == with_curves
        losses = [0.0, 0.0] if same else [calibrated_nll(c, *test).mean() for c in (with_curves, without)]
        added.append(float(losses[0] - losses[1]))
    error = float(np.std(added, ddof=1) / np.sqrt(draws))
    figures = {"added": float(np.mean(added)), "standard_error": error, "largest": max(added), "taken": taken}
    return {"rows": rows, "draws": draws, **figures}


def of_record(path: Path, splits: int) -> dict[str, Any]:
    """Return means over splits of the results of every candidate and of the choice on the other half."""
    with np.load(path) as file:
        p_NC, y_N = file["predictions"], file["ground_truth"].ravel().astype(np.intp)
    z_NC = logits_of(p_NC)
    found: dict[str, list[list[float]]] = {}
    chosen: dict[str, int] = {}
    seconds = []
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(y_N))
        fit, test = order[: len(order) // 2], order[len(order) // 2 :]
        names = default_candidates(z_NC.shape[1], len(fit))
        started, folds = time.process_time(), Folds(z_NC[fit], y_N[fit], FOLDS)
        taken = choose([(name, {}) for name in names], folds)[0]  # as `select`, but its fits serve the others, too
        seconds.append(time.process_time() - started)
        chosen[taken.name] = chosen.get(taken.name, 0) + 1
        fits = {"select": taken}
        for name in names:
            try:
                fits[name] = taken if name == taken.name else folds.fit(name, {})
            except FitError:
                continue
        for name, calibrator in fits.items():
            own_NC = calibrator(z_NC[test])
            floor = metrics.noise_floor(own_NC, y_N[test]).mean
            found.setdefault(name, []).append(
                [float(calibrated_nll(calibrator, z_NC[test], y_N[test]).mean()), metrics.ece(own_NC, y_N[test]), floor]
            )
    means = {
        name: dict(zip(("nll", "ece", "floor"), np.mean(rows, axis=0).tolist(), strict=True))
        for name, rows in found.items()
    }
    others = [m for name, m in means.items() if name != "select"]
    best = {figure: min(m[figure] for m in others) for figure in ("nll", "ece")}
    return {
        "record": path.stem,
        "splits": splits,
        "rows": len(y_N) // 2,
        "classes": z_NC.shape[1],
        "seconds": float(np.median(seconds)),
        "chosen": chosen,
        "select": means["select"],
        "best": best,
        "above_floor": means["select"]["ece"] - means["select"]["floor"],
        "above_best_ece": means["select"]["ece"] - best["ece"],
        "above_best_nll": means["select"]["nll"] - best["nll"],
        "candidates": {name: m for name, m in means.items() if name != "select"},
    }


def least(selection: Selection, data: Rows) -> Calibrator:
    """Return the candidate with the lowest cross-validated NLL, even if it was passed over."""
    fitted = [line for line in selection.table if line.nll is not None]
    best = min(fitted, key=lambda line: line.nll or 0.0)
    return calibrators.get(best.name).fit(*data, **best.options)


def markdown(result: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    lines = [
        f"| test NLL, accuracy .96 | {FEW} rows, papers' formulas: draws that cost over .05 nats, worst cost"
        f" | the same for `select` | draws | {MANY:,} rows: `select` minus papers' formulas |",
        "|---|---|---|---:|---:|",
    ]
    table = {(m["world"], m["rows"]): m for m in result["measurements"]}
    for world in (world for world in WORLDS if (world, FEW) in table):
        few, many = table[world, FEW], table[world, MANY]
        cells = [f"{few[way]['above_allowed']}, {few[way]['largest']:+.3f}" for way in ("plain", "select")]
        gap = many["select"]
        lines.append(
            f"| {world} | {' | '.join(cells)} | {few['draws']} | {gap['mean']:+.4f} +- {gap['standard_error']:.4f} |"
        )
    if result.get("curves"):
        lines += ["", f"| added NLL where no curve is needed | {' | '.join(f'{n:,} rows' for n in LADDER)} |"]
        lines.append("|---|" + "---:|" * len(LADDER))
        for world in STRAIGHT:
            own = {m["rows"]: m for m in result["curves"] if m["world"] == world}
            cells = [f"{m['added']:+.4f} +- {m['standard_error']:.4f}" for m in (own[n] for n in LADDER)]
            lines.append(f"| {world} | {' | '.join(cells)} |")
    if result.get("records"):
        best = "best candidate's"
        head = f"| real net | classes | splits | chosen | ECE | noise floor | {best} ECE | NLL | {best} NLL |"
        lines += ["", head]
        lines.append("|---|---:|---:|---|---:|---:|---:|---:|---:|")
        for m in result["records"]:
            names = ", ".join(f"{name} {n}" for name, n in sorted(m["chosen"].items(), key=lambda pair: -pair[1]))
            own, best = m["select"], m["best"]
            figures = (
                f"{own['ece']:.4f} | {own['floor']:.4f} | {best['ece']:.4f} | {own['nll']:.4f} | {best['nll']:.4f}"
            )
            lines.append(f"| {m['record']} | {m['classes']} | {m['splits']} | {names} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["worlds"])
    parser.add_argument("--few", type=int, default=200, help=f"draws of {FEW} rows")
    parser.add_argument("--many", type=int, default=20, help=f"draws of {MANY:,} rows")
    worlds = list(WORLDS)
    parser.add_argument("--worlds", type=int, nargs="+", choices=range(len(worlds)), default=range(len(worlds)))
    parser.add_argument("--draws", type=int, default=20, help="draws of each number of rows, for the curves")
    parser.add_argument("--records", type=Path, metavar="DIR", help="a folder of records, for the part of that name")
    parser.add_argument("--splits", type=int, default=20, help="of each record")
    options = parser.parse_args()
    if "records" in options.parts and options.records is None:
        parser.error("--parts records needs --records DIR, a folder of .npz files with predictions and ground_truth")
    about = circumstances("numpy", "scipy")
    how = {"command": about.pop("command").replace(str(options.records), "DIR"), "commit": about.pop("commit")}
    result = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {"measurements": []}

    def keep(part: str, rows: list[dict[str, Any]]) -> None:
        """Write the result at once, so that an interrupted run keeps what it has measured."""
        result.update({**about, "test_rows": TEST_ROWS, part: rows})
        write(options.out, result)
        run.say(f"{part}: {rows[-1]}")

    run = Run()
    if "worlds" in options.parts:
        for world in (worlds[i] for i in options.worlds):
            fresh = [
                {"world": world, **measured(WORLDS[world], rows, draws), **how}
                for rows, draws in ((FEW, options.few), (MANY, options.many))
            ]
            kept = [m for m in result["measurements"] if m["world"] != world]
            keep("measurements", sorted(kept + fresh, key=lambda m: worlds.index(m["world"])))
    if "curves" in options.parts:
        harms: list[dict[str, Any]] = []
        for world, draw in STRAIGHT.items():
            harms += [{"world": world, **harm(draw, rows, options.draws), **how} for rows in LADDER]
            keep("curves", harms)
    if "records" in options.parts:
        for path in sorted(options.records.glob("*.npz")):
            others = [m for m in result.get("records", []) if m["record"] != path.stem]
            own = {**of_record(path, options.splits), **how}
            keep("records", sorted([*others, own], key=lambda m: str(m["record"])))
    print(markdown(result))


if __name__ == "__main__":
    main()
