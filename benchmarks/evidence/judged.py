"""Few human labels beside a judge's: coverage, width, and what the judge is worth.

    python -m benchmarks.evidence.judged        # about ten minutes on one core

Each run draws fresh answers, their human labels, the judge's labels, and the answers with a human label. Two kinds:

- events: the share of a positive class, for a judge with some sensitivity and specificity. `oracle` is always right,
  `coin` tells nothing, `blind` finds 30% and invents almost none, `noisy` invents 10%.
- nets: accuracy, gap, and the gaps of 15 bins, for the shapes of benchmarks/shapes.py and the net W
  (benchmarks/evidence/labelling.py), calibrated (T = 1) and over-confident (T = 2). `even` errs on 5% of all answers,
  `hard` errs more on doubtful answers, `lenient` calls half of the wrong answers right, `echo` calls an answer right
  with the probability of its confidence. Human labels are a plain sample, or drawn for the goal "ece".

Two parts of their own:

- kinds of answers with very different accuracies and propensities, down to a few labels of a kind. Judges are `even`
  (10% errors), `coin`, or `worst`: it errs on 40% of the kind with the smallest propensity, and on 2% of the others;
- where it fails: some answers are labelled twice as often, and the labels are given as a plain sample. They are those
  that the judge calls positive, or those that are positive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from benchmarks.evidence.labelling import PILED
from benchmarks.markdown import table
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.shapes import SHAPES, chance_at, pool_logits
from trueodds.metrics import PoweredMean, draw_labels, label_propensities, powered_gap, powered_mean
from trueodds.sums.bins import CELLS, cell_of

Array = npt.NDArray[np.float64]
Floats = tuple[float, ...]
Generator = np.random.Generator
RESULT = RESULTS / "judged.json"
SHARES, LABELS, FACTOR = (0.5, 0.2, 0.05, 0.01), (30, 60, 100, 300, 1_000), 20
JUDGES = {
    "oracle": (1.0, 1.0),
    "good": (0.95, 0.95),
    "noisy": (0.8, 0.9),
    "blind": (0.3, 0.999),
    "coin": (0.5, 0.5),
}
"""Sensitivity and specificity."""
TEMPERATURES, NET_LABELS = (1.0, 2.0), (60, 300)
POOL, BINS, FEWEST, SEED = 20_000, 15, 10, 2023
OF_KINDS: tuple[tuple[Floats, Floats, Floats], ...] = (
    ((0.5, 0.5), (0.7, 0.9), (0.1, 0.003)),
    ((0.5, 0.5), (0.9, 0.7), (0.1, 0.003)),
    ((0.5, 0.5), (0.5, 0.5), (0.1, 0.003)),
    ((0.3, 0.3, 0.4), (0.5, 0.7, 0.9), (0.3, 0.03, 0.003)),
    ((0.3, 0.3, 0.4), (0.9, 0.7, 0.5), (0.3, 0.03, 0.003)),
    ((0.7, 0.3), (0.95, 0.2), (0.06, 0.004)),
    ((0.8, 0.2), (0.3, 0.7), (0.05, 0.005)),
    ((0.9, 0.1), (0.6, 0.4), (0.05, 0.004)),
    ((0.8, 0.2), (0.9, 0.1), (0.05, 0.003)),
)
"""Shares, accuracies and propensities of kinds of answers."""
KIND_ANSWERS, ENOUGH = 3_000, 3
"""Answers of each run, and expected labels of a kind below which it is often not drawn."""
WIDTHS = ("width", "width, human alone", "worth")
TWO_THIRDS = 0.0917
"""Error rate of a judge of two equal classes with a squared correlation of 2/3: (1 - sqrt(2/3)) / 2."""


@dataclass
class Setting:
    about: str
    population: str
    judge: str
    design: str
    labels: int
    answers: int
    runs: int
    truth: float
    covered: float
    covered_human: float
    width: float
    width_human: float
    saving: float
    """Squared ratio of the mean widths."""
    wider: int
    """Runs in which the interval is wider than that of the human labels alone."""


class Tally:
    """Coverage and widths over the runs of a setting."""

    def __init__(self, truth: float) -> None:
        self.truth, self.rows = truth, list[tuple[bool, bool, float, float]]()

    def add(self, mean: PoweredMean) -> None:
        covered = mean.lower <= self.truth <= mean.upper
        by_human = mean.human_lower <= self.truth <= mean.human_upper
        self.rows.append((covered, by_human, mean.upper - mean.lower, mean.human_upper - mean.human_lower))

    def setting(self, about: str, population: str, judge: str, design: str, labels: int, answers: int) -> Setting:
        covered, by_human, width, human = np.array(self.rows, np.float64).T
        means = float(width.mean()), float(human.mean())
        return Setting(
            about=about,
            population=population,
            judge=judge,
            design=design,
            labels=labels,
            answers=answers,
            runs=len(self.rows),
            truth=self.truth,
            covered=float(covered.mean()),
            covered_human=float(by_human.mean()),
            width=means[0],
            width_human=means[1],
            saving=(means[1] / means[0]) ** 2,
            wider=int((width > human + 1e-9).sum()),
        )


def labels_of(truth_N: npt.NDArray[np.bool_], sensitivity: float, specificity: float, rng: Generator) -> Array:
    """Draw a judge's labels."""
    chance_N = np.where(truth_N, sensitivity, 1 - specificity)
    return (rng.random(len(truth_N)) < chance_N).astype(np.float64)


def event(share: float, judge: str, labels: int, answers: int, runs: int, rates: tuple[float, float]) -> Setting:
    """Measure the share of a positive class."""
    rng, tally = np.random.default_rng([SEED, labels, int(1e4 * share), answers, len(judge)]), Tally(share)
    for _ in range(runs):
        truth_N = rng.random(answers) < share
        human_N = np.where(np.arange(answers) < labels, truth_N, np.nan)
        tally.add(powered_mean(human_N, labels_of(truth_N, *rates, rng)))
    return tally.setting("share", f"{share:g}", judge, "plain", labels, answers)


def net_judge(judge: str, right_N: npt.NDArray[np.bool_], confidence_N: Array, rng: Generator) -> Array:
    """Draw a judge's labels of right and wrong answers."""
    if judge == "lenient":
        return labels_of(right_N, 1.0, 0.5, rng)
    draw_N = rng.random(len(right_N))
    if judge == "echo":
        return (draw_N < confidence_N).astype(np.float64)
    doubt_N = 1 - confidence_N
    chance_N = 0.05 if judge == "even" else np.minimum(0.05 * doubt_N / doubt_N.mean(), 0.5)
    return np.where(draw_N < chance_N, ~right_N, right_N).astype(np.float64)


def pool(shape: str, temperature: float) -> tuple[Array, Array]:
    """Return the confidence of each answer, and the probability that it is right."""
    if shape in PILED:
        rng = np.random.default_rng(SEED)
        logits_NC = rng.normal(0, 1.2, (POOL, 10))
        logits_NC[:, 0] += np.maximum(rng.normal(*PILED[shape], POOL), 0)
    else:
        logits_NC = pool_logits(shape, POOL, SEED)
    return chance_at(logits_NC, 1.0), chance_at(logits_NC, temperature)


def net(shape: str, temperature: float, judge: str, design: str, labels: int, runs: int) -> list[Setting]:
    """Measure accuracy, gap and the gaps of the bins."""
    confidence_P, chance_P = pool(shape, temperature)
    bin_P = cell_of(confidence_P) // (CELLS // BINS)
    gap_P = chance_P - confidence_P
    rng = np.random.default_rng([SEED, labels, int(10 * temperature), len(judge), len(design)])
    answers = FACTOR * labels
    of_all, of_gap = Tally(float(chance_P.mean())), Tally(float(gap_P.mean()))
    of_bins = {k: Tally(float(gap_P[bin_P == k].mean())) for k in np.unique(bin_P).tolist()}
    for _ in range(runs):
        drawn = rng.integers(POOL, size=answers)
        confidence_N, bin_N = confidence_P[drawn], bin_P[drawn]
        right_N = rng.random(answers) < chance_P[drawn]
        judge_N = net_judge(judge, right_N, confidence_N, rng)
        propensity_N = label_propensities(confidence_N, labels, goal="ece" if design == "ece" else "plain")
        order_N = np.argsort(confidence_N, kind="stable")
        human_N = np.full(answers, np.nan)
        chosen = order_N[draw_labels(propensity_N[order_N], seed=int(rng.integers(2**31)))]
        human_N[chosen] = right_N[chosen]
        of_all.add(powered_mean(human_N, judge_N, propensity_N=propensity_N))
        of_gap.add(powered_gap(confidence_N, human_N, judge_N, propensity_N=propensity_N))
        for k, tally in of_bins.items():
            of_N = bin_N == k
            if np.isfinite(human_N[of_N]).sum() >= 2 * FEWEST:
                columns = confidence_N[of_N], human_N[of_N], judge_N[of_N]
                tally.add(powered_gap(*columns, propensity_N=propensity_N[of_N], fewest=FEWEST))
    where = f"{shape}, T = {temperature:g}"
    settings = [
        of_all.setting("accuracy", where, judge, design, labels, answers),
        of_gap.setting("gap", where, judge, design, labels, answers),
    ]
    enough = [(k, tally) for k, tally in of_bins.items() if len(tally.rows) >= runs // 2]
    return settings + [
        tally.setting("gap of a bin", f"{where}, bin {k + 1}", judge, design, labels, answers) for k, tally in enough
    ]


def chosen_by(what: str, share: float, labels: int, runs: int) -> dict[str, Any]:
    """Measure what happens if some answers are labelled twice as often, and the labels are given as a plain sample.

    These answers are those that the judge calls positive, or those that are positive.
    """
    rng, tally, marked = np.random.default_rng([SEED, labels]), Tally(share), 0
    answers = FACTOR * labels
    for _ in range(runs):
        truth_N = rng.random(answers) < share
        judge_N = labels_of(truth_N, 0.9, 0.9, rng)
        chance_N = np.where((judge_N if what == "judge" else truth_N) == 1, 2.0, 1.0)
        human_N = np.full(answers, np.nan)
        chosen = rng.choice(answers, labels, replace=False, p=chance_N / chance_N.sum())
        human_N[chosen] = truth_N[chosen]
        mean = powered_mean(human_N, judge_N)
        tally.add(mean)
        marked += mean.unlike
    setting = tally.setting("share", f"{share:g}", "0.9", what, labels, answers)
    return {
        "chosen_by": what,
        "share": share,
        "labels": labels,
        "covered": setting.covered,
        "covered_human": setting.covered_human,
        "warned": marked / runs,
    }


@dataclass
class Kinds:
    setting: Setting
    fewest: float
    """Smallest expected number of labels of a kind."""


def kinds(share_K: Floats, accuracy_K: Floats, propensity_K: Floats, judge: str, runs: int) -> Kinds:
    """Measure the accuracy of all answers, if kinds of answers differ in accuracy and propensity."""
    shares_K, chances_K = np.array(share_K), np.array(propensity_K)
    rng = np.random.default_rng([SEED, int(1e4 * shares_K @ chances_K), int(100 * accuracy_K[0]), len(judge)])
    errors_K = np.full(len(share_K), {"even": 0.1, "coin": 0.5, "worst": 0.02}[judge])
    if judge == "worst":
        errors_K[-1] = 0.4
    tally, labels = Tally(float(shares_K @ np.array(accuracy_K))), 0
    for _ in range(runs):
        kind_N = rng.choice(len(share_K), KIND_ANSWERS, p=shares_K)
        right_N = rng.random(KIND_ANSWERS) < np.array(accuracy_K)[kind_N]
        chosen_N = rng.random(KIND_ANSWERS) < chances_K[kind_N]
        judge_N = np.where(rng.random(KIND_ANSWERS) < errors_K[kind_N], ~right_N, right_N).astype(np.float64)
        labels += int(chosen_N.sum())
        tally.add(powered_mean(np.where(chosen_N, right_N, np.nan), judge_N, propensity_N=chances_K[kind_N]))
    about = "/".join(f"{one:g}" for one in share_K) + " right " + "/".join(f"{one:g}" for one in accuracy_K)
    design = "/".join(f"{one:g}" for one in propensity_K)
    setting = tally.setting("accuracy", about, judge, design, round(labels / runs), KIND_ANSWERS)
    return Kinds(setting, float((KIND_ANSWERS * shares_K * chances_K).min()))


def summary(
    settings: list[Setting],
    thirds: list[Setting],
    failing: list[dict[str, Any]],
    unequal: list[Kinds],
) -> dict[str, Any]:
    """Return the figures of the claim."""

    def lowest(chosen: Callable[[Setting], bool]) -> float:
        return min(one.covered for one in settings if chosen(one))

    def mean(chosen: Callable[[Setting], bool]) -> float:
        rows = [one for one in settings if chosen(one)]
        return sum(one.covered * one.runs for one in rows) / sum(one.runs for one in rows)

    def is_below(one: Setting) -> bool:
        """Return whether the coverage is below 95%, significantly at 5% for all settings together."""
        return float(scipy.stats.binom.cdf(round(one.covered * one.runs), one.runs, 0.95)) < 0.05 / len(settings)

    coin = [one for one in settings if one.judge == "coin" or (one.judge == "echo" and one.about == "gap")]
    return {
        "settings": len(settings),
        "runs": max(one.runs for one in settings),
        "estimates": sum(one.runs for one in settings),
        "lowest_covered": lowest(lambda _: True),
        "mean_covered": mean(lambda _: True),
        "lowest_covered_human": min(one.covered_human for one in settings),
        "mean_covered_of_bins": mean(lambda one: one.about == "gap of a bin"),
        "lowest_covered_of_bins": lowest(lambda one: one.about == "gap of a bin"),
        "lowest_covered_below_100": lowest(lambda one: one.labels < 100),
        "wider": sum(one.wider for one in settings) / sum(one.runs for one in settings),
        "least_saving": min(one.saving for one in settings),
        "median_saving_good": float(np.median([one.saving for one in settings if one.judge in ("good", "even")])),
        "most_saving_useless": max(one.saving for one in coin),
        "two_thirds_saving_few": thirds[0].saving,
        "two_thirds_saving_many": thirds[-1].saving,
        "unequal": len(unequal),
        "lowest_covered_unequal": min(one.setting.covered for one in unequal if one.fewest >= ENOUGH),
        "lowest_covered_rare_kind": min(one.setting.covered for one in unequal if one.fewest < ENOUGH),
        "settings_below": sum(is_below(one) for one in settings),
        **{
            f"{name}_{what}": least([one[name] for one in failing if one["chosen_by"] == what])
            for what, least in (("judge", min), ("truth", min))
            for name in ("covered", "covered_human", "warned")
        },
    }


def markdown(result: dict[str, Any]) -> str:
    """Format the result as tables."""

    def row(one: dict[str, Any]) -> tuple[str, ...]:
        return (
            one["about"],
            one["population"],
            one["judge"],
            one["design"],
            f"{one['labels']:,}",
            f"{one['covered']:.1%}",
            f"{one['covered_human']:.1%}",
            f"{one['width']:.3f}",
            f"{one['width_human']:.3f}",
            f"{one['saving']:.2f}",
        )

    head = ("figure", "population", "judge", "sample", "labels", "covered", "human alone", *WIDTHS)
    unequal = result["unequal"]
    shown = sorted((one for one in result["rows"]), key=lambda one: one["covered"])[:12]
    doubt = [
        (
            "called positive" if one["chosen_by"] == "judge" else "positive",
            f"{one['share']:g}",
            f"{one['labels']:,}",
            f"{one['covered']:.1%}",
            f"{one['covered_human']:.1%}",
            f"{one['warned']:.1%}",
        )
        for one in result["chosen"]
    ]
    parts = [
        "The settings with the lowest coverage:",
        table(head, [row(one) for one in shown]),
        "A judge with a squared correlation of 2/3, by the number of human labels (200 answers for each of them):",
        table(head, [row(one) for one in result["two_thirds"]]),
        "The share of a positive class, 100 human labels:",
        table(head, [row(one) for one in result["rows"] if one["about"] == "share" and one["labels"] == 100]),
        "Nets, 300 human labels in a plain sample:",
        table(
            head,
            [
                row(one)
                for one in result["rows"]
                if one["about"] in ("accuracy", "gap") and one["labels"] == 300 and one["design"] == "plain"
            ],
        ),
        "Kinds of answers with very different propensities:",
        table((*head, "fewest labels of a kind"), [(*row(one["setting"]), f"{one['fewest']:.1f}") for one in unequal]),
        "Some answers are labelled twice as often, and the labels are given as a plain sample:",
        table(("which", "share", "labels", "covered", "human alone", "warned"), doubt),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Measure all settings."""
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(20), default=1_000, help="runs of each setting (default: 1,000)")
    arguments = parser.parse_args()
    run, settings, runs = Run(), list[Setting](), arguments.runs
    for share in SHARES:
        for judge, rates in JUDGES.items():
            settings += [event(share, judge, n, FACTOR * n, runs, rates) for n in LABELS]
        run.say("share", share, min(one.covered for one in settings))
    rates = (1 - TWO_THIRDS, 1 - TWO_THIRDS)
    thirds = [event(0.5, "two thirds", n, 200 * n, max(runs // 5, 20), rates) for n in LABELS]
    run.say("two thirds", thirds[-1].saving)
    places = [(share, n) for share in (0.2, 0.05) for n in (100, 300)]
    failing = [chosen_by(what, *place, runs) for what in ("judge", "truth") for place in places]
    unequal = [kinds(*one, judge, runs) for one in OF_KINDS for judge in ("even", "coin", "worst")]
    run.say("unequal propensities", min(one.setting.covered for one in unequal))
    for shape in (*SHAPES, "W"):
        for temperature in TEMPERATURES:
            for judge in ("even", "hard", "lenient", "echo"):
                for design in ("plain", "ece"):
                    for labels in NET_LABELS:
                        settings += net(shape, temperature, judge, design, labels, max(runs // 5, 20))
            run.say(shape, temperature, min(one.covered for one in settings))
    run.finish(
        arguments.out,
        markdown,
        summary=summary(settings, thirds, failing, unequal),
        rows=[asdict(one) for one in settings],
        two_thirds=[asdict(one) for one in thirds],
        unequal=[asdict(one) for one in unequal],
        chosen=failing,
    )


if __name__ == "__main__":
    main()
