"""Replays of `trueodds.threshold`: how often the guaranteed bound is broken, and the certified share beside MAPIE.

    python -m benchmarks.intervals.threshold --records FOLDER        # about three minutes on one core

A record holds 10,000 answers of a net with their labels, which are taken as the population. A replay draws labelled
answers from it with replacement, asks for a threshold at a risk of 5% with 95% confidence, and looks up how often the
answers above it are wrong in the whole record. More than 5% breaks the guarantee. The goal is that at most 5% of the
replays break it. It fails if an exact one-sided test at 5% rejects that.

Nets: those of the .npz files in FOLDER (`predictions`, `ground_truth`), and simulated ones. rare: an error rate of .4%.
ties: confidences with one decimal. edge: every answer is wrong with probability .0502, whatever its confidence, so that
any threshold breaks the guarantee. By group, the guarantee is that no group's bound is broken; groups are predicted
classes, five together. With costs, errors of every second class cost 10, the others 1, and the mean cost of an acting
answer is bounded by .3.

MAPIE: BinaryClassificationController on the precision of acting, by its fixed sequence over thresholds .99, .98, ...,
and by its default, Bonferroni's correction over the same hundred. Without the package its published algorithm is run
from this file with the same exact binomial p-values.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr
from scipy.stats import binom

import trueodds
from benchmarks.record import RESULTS, Run, circumstances, options_parser, whole_from

RISK, CONFIDENCE, SEED = 0.05, 0.95, 1
ROWS, LABELS = 10_000, (100, 300, 1_000, 10_000)
GROUPS, GROUP_LABELS, COST_LABELS = 5, (1_000, 3_000), (1_000, 3_000)
COST_RISK, DEAR = 0.3, 10.0
GRID = np.linspace(0.99, 0, 100)
RESULT = RESULTS / "threshold.json"
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Record:
    """All answers of a net."""

    name: str
    confidence_N: Array
    wrong_N: npt.NDArray[np.bool_]
    predicted_N: npt.NDArray[np.intp]


@dataclass
class Outcome:
    """Results of one setting, a row of the table."""

    net: str
    kind: str
    """Kind of guarantee: one threshold; by group; with costs."""
    labels: int
    runs: int
    broken: int
    allowed: int
    """Largest number of broken guarantees at which the goal holds."""
    certified: float
    """Share of the replays with a threshold."""
    share: float
    """Mean share of the answers that act; 0 for replays without a threshold."""
    mapie: float | None
    """The same by MAPIE's fixed sequence."""
    mapie_bonferroni: float | None
    possible: float | None
    """Largest share with a true risk of at most 5%."""
    share_covered: float | None
    """Share of the certified replays whose interval contains the true share."""
    none: float
    """Share of the replays that are told that even the 5% most confident answers are wrong too often."""


def records(folder: Path | None) -> Iterator[Record]:
    """Yield the nets of the folder, then the simulated ones."""
    for path in sorted(folder.glob("*.npz")) if folder else ():
        with np.load(path, allow_pickle=False) as file:
            p_NC, y_N = file["predictions"].astype(np.float64), file["ground_truth"]
        top_N = p_NC.argmax(axis=1)
        name = path.stem.rpartition("-cifar")[0] or path.stem
        yield Record(name, np.minimum(p_NC.max(axis=1), 1.0), top_N != y_N, top_N)
    rng = np.random.default_rng(SEED)
    predicted_N = rng.integers(10, size=ROWS)
    confidence_N = 1 - 0.02 * rng.random(ROWS) ** 3
    yield Record("rare", confidence_N, rng.random(ROWS) < 0.8 * (1 - confidence_N), predicted_N)
    confidence_N = rng.uniform(0.5, 1, ROWS)
    yield Record("ties", confidence_N.round(1), rng.random(ROWS) < (1 - confidence_N) ** 1.5, predicted_N)
    rank_N = np.argsort(rng.permutation(ROWS))
    wrong_N = rank_N * 502 // ROWS != (rank_N - 1) * 502 // ROWS  # spread evenly over the ranks
    yield Record("edge", np.linspace(1, 0.5, ROWS)[rank_N], wrong_N, predicted_N)


def mapie_shares(c_L: Array, wrong_L: npt.NDArray[np.bool_]) -> tuple[float | None, float | None]:
    """Return thresholds of MAPIE's published algorithm, by fixed sequence and Bonferroni; answers in falling order."""
    acted_G = np.searchsorted(-c_L, -GRID, side="right")
    wrong_G = np.concatenate([[0], np.cumsum(wrong_L)])[acted_G]
    p_G = np.where(acted_G > 0, bdtr(wrong_G.astype(np.float64), np.maximum(acted_G, 1).astype(np.int64), RISK), 1.0)
    fails_G = p_G > 1 - CONFIDENCE
    passed = int(fails_G.argmax()) if fails_G.any() else len(GRID)
    valid_K = np.flatnonzero(p_G <= (1 - CONFIDENCE) / len(GRID))
    return (float(GRID[passed - 1]) if passed else None), (float(GRID[valid_K[-1]]) if len(valid_K) else None)


def mapie_itself(c_N: Array, wrong_N: npt.NDArray[np.bool_]) -> float | None:
    """Return the threshold of the package by fixed sequence."""
    from mapie.risk_control import BinaryClassificationController  # type: ignore[import-not-found]

    controller = BinaryClassificationController(
        lambda x_N1: np.column_stack([1 - np.ravel(x_N1), np.ravel(x_N1)]),
        "precision",
        1 - RISK,
        confidence_level=CONFIDENCE,
        list_predict_params=GRID,
        fwer_method="fixed_sequence",
    )
    found = controller.calibrate(c_N[:, None], (~wrong_N).astype(int)).best_predict_param
    return None if found is None else float(found)


def one_threshold(record: Record, labels: int, runs: int) -> Outcome:
    """Replay a threshold for all answers, and MAPIE's on the same labels."""
    c_N, wrong_N = record.confidence_N, record.wrong_N
    rng = np.random.default_rng([SEED, labels, len(record.name)])
    order_N = np.argsort(-c_N, kind="stable")
    falling_N, wrong_so_far = c_N[order_N], np.concatenate([[0], np.cumsum(wrong_N[order_N])])
    acts_K = np.searchsorted(-falling_N, -np.unique(falling_N), side="right")
    possible = max([int(k) for k in acts_K if wrong_so_far[k] <= RISK * k], default=0) / ROWS

    def truth(at: float | None) -> tuple[float, bool]:
        acts = 0 if at is None else int(np.searchsorted(-falling_N, -at, side="right"))
        return acts / len(c_N), bool(wrong_so_far[acts] > RISK * acts)

    rows, installed = [], importlib.util.find_spec("mapie") is not None
    for run in range(runs):
        draw = rng.integers(len(c_N), size=labels)
        found = trueodds.threshold(c_N[draw], ~wrong_N[draw], risk=RISK, confidence=CONFIDENCE)
        falling = draw[np.argsort(-c_N[draw], kind="stable")]
        sequence, bonferroni = mapie_shares(c_N[falling], wrong_N[falling])
        if installed and run < 5 and mapie_itself(c_N[draw], wrong_N[draw]) != sequence:
            raise SystemExit(f"MAPIE's own threshold differs from {sequence} on {record.name}, {labels} labels")
        share, broken = truth(found.threshold)
        covered = found.share_lower <= share <= found.share_upper
        others = truth(sequence)[0], truth(bonferroni)[0]
        rows.append((broken, found.reason == "certified", share, *others, covered, found.reason == "none"))
    table = np.array(rows, np.float64)
    mean, certified = table.mean(axis=0), table[:, 1] == 1
    return Outcome(
        net=record.name,
        kind="one threshold",
        labels=labels,
        runs=runs,
        broken=int(table[:, 0].sum()),
        allowed=allowed(runs),
        certified=float(mean[1]),
        share=float(mean[2]),
        mapie=float(mean[3]),
        mapie_bonferroni=float(mean[4]),
        possible=possible,
        share_covered=float(table[certified, 5].mean()) if certified.any() else None,
        none=float(mean[6]),
    )


def by_group(record: Record, labels: int, runs: int) -> Outcome:
    """Replay a threshold for each group. The guarantee is broken if any group's is."""
    c_N, wrong_N, group_N = record.confidence_N, record.wrong_N, record.predicted_N % GROUPS
    rng, rows = np.random.default_rng([SEED, labels, len(record.name), GROUPS]), []
    for _ in range(runs):
        draw = rng.integers(len(c_N), size=labels)
        found = trueodds.threshold(
            c_N[draw], ~wrong_N[draw], risk=RISK, confidence=CONFIDENCE, groups_N=group_N[draw].astype(str)
        )
        broken, acting = False, 0
        for one in found.groups:
            if one.threshold is not None:
                acts_N = (group_N == int(one.group)) & (c_N >= one.threshold)
                acting += int(acts_N.sum())
                broken |= bool(wrong_N[acts_N].mean() > RISK)
        rows.append((broken, found.reason == "certified", acting / len(c_N), found.reason == "none"))
    return _plain(record.name, "by group", labels, rows)


def with_costs(record: Record, labels: int, runs: int) -> Outcome:
    """Replay a bound on the mean cost."""
    c_N, wrong_N = record.confidence_N, record.wrong_N
    cost_N = np.where(record.predicted_N % 2 == 0, DEAR, 1.0)
    rng, rows = np.random.default_rng([SEED, labels, len(record.name), 10]), []
    for _ in range(runs):
        draw = rng.integers(len(c_N), size=labels)
        found = trueodds.threshold(
            c_N[draw], ~wrong_N[draw], risk=COST_RISK, confidence=CONFIDENCE, cost_N=cost_N[draw]
        )
        acts_N = c_N >= (np.inf if found.threshold is None else found.threshold)
        broken = bool(acts_N.any()) and bool((cost_N * wrong_N)[acts_N].mean() > COST_RISK)
        rows.append((broken, found.reason == "certified", float(acts_N.mean()), found.reason == "none"))
    return _plain(record.name, "with costs", labels, rows)


def _plain(net: str, kind: str, labels: int, rows: list[tuple[bool, bool, float, bool]]) -> Outcome:
    table = np.array(rows, np.float64)
    _, certified, share, none = table.mean(axis=0).tolist()
    broken, runs = int(table[:, 0].sum()), len(rows)
    return Outcome(net, kind, labels, runs, broken, allowed(runs), certified, share, None, None, None, None, none)


def allowed(runs: int) -> int:
    """Return the most broken guarantees that an exact one-sided test of 5% at 5% does not reject: 62 of 1,000."""
    return int(binom.isf(0.05, runs, 1 - CONFIDENCE))


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the worst settings, and the total certified share beside MAPIE's."""
    one = [o for o in outcomes if o.kind == "one threshold"]
    shares = [(o.share, o.mapie or 0.0, o.mapie_bonferroni or 0.0) for o in one]
    ours, mapie, bonferroni = np.mean(shares, axis=0).tolist()
    covered = [o.share_covered for o in one if o.share_covered is not None and o.certified >= 0.1]
    return {
        "settings": len(outcomes),
        "failed": sum(o.broken > o.allowed for o in outcomes),
        "most_broken": max(o.broken / o.runs for o in outcomes),
        "most_broken_on_the_edge": max((o.broken / o.runs for o in one if o.net == "edge"), default=0.0),
        "most_broken_by_group": max(o.broken / o.runs for o in outcomes if o.kind == "by group"),
        "most_broken_with_costs": max(o.broken / o.runs for o in outcomes if o.kind == "with costs"),
        "runs": outcomes[0].runs,
        "share": ours,
        "mapie": mapie,
        "mapie_bonferroni": bonferroni,
        "most_below_mapie": max((o.mapie or 0.0) - o.share for o in one),
        "least_share_covered": min(covered, default=None),
        "most_told_none_wrongly": max((o.none for o in one if (o.possible or 0) >= 0.05), default=0.0),
        "certified_at_300": float(np.mean([o.certified for o in one if o.labels == 300 and o.net != "edge"])),
    }


def markdown(result: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    lines = ["| net | | labels | broken | certified | share | MAPIE, fixed sequence | MAPIE, default | possible |"]
    lines.append("|---" * 9 + "|")
    for o in (Outcome(**setting) for setting in result["settings"]):
        known = ["–" if value is None else f"{value:.1%}" for value in (o.mapie, o.mapie_bonferroni, o.possible)]
        broken = f"{o.broken} of {o.runs:,} (at most {o.allowed})"
        cells = [o.net, o.kind, f"{o.labels:,}", broken, f"{o.certified:.0%}", f"{o.share:.1%}", *known]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--records", type=Path, metavar="FOLDER", help="nets as .npz; without it, simulated ones only")
    parser.add_argument("--runs", type=whole_from(1), default=1000, help="replays per setting")
    options = parser.parse_args()
    if options.records and not any(options.records.glob("*.npz")):
        parser.error(f"--records {options.records} holds no .npz; give the folder of the nets' records")
    run, outcomes = Run(), list[Outcome]()
    for record in records(options.records):
        plans = [(one_threshold, LABELS), (by_group, GROUP_LABELS), (with_costs, COST_LABELS)]
        for replay, sizes in plans[: 1 if record.name in ("ties", "edge") else 3]:
            for labels in sizes:
                o = replay(record, labels, options.runs)
                outcomes.append(o)
                words = f"{o.net:>16} {o.kind:13} {labels:6} labels: broken {o.broken:3}, share {o.share:.3f}"
                run.say(f"{words}, MAPIE {o.mapie}")
    run.finish(
        options.out,
        markdown,
        command=circumstances()["command"].replace(str(options.records), "FOLDER"),
        mapie="the package" if importlib.util.find_spec("mapie") else "its published algorithm",
        summary=summary(outcomes),
        settings=[asdict(o) for o in outcomes],
    )


if __name__ == "__main__":
    main()
