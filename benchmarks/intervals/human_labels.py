"""The part of `trueodds.metrics.samplewise_error` that is due to few votes, for known true shares.

    python -m benchmarks.intervals.human_labels        # about half a minute on one core

The simulation has the size of CIFAR-10H: 10,000 images of ten classes, 51 people each, who choose the label in 95% of
all cases. Each image's share of other votes comes from a beta distribution, spread over the other classes by
Dirichlet(.2, ..., .2). The more unevenly doubt is distributed over the images, the more of them are unanimous. Besides
panels of people there are two nets that are wrong about one image in twenty: one with confidence .995, one with .95.
The interval's coverage is over samples of images; the truth is the value over all of them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds import metrics

Array = npt.NDArray[np.float64]
IMAGES, CLASSES, PEOPLE, WRONG, SEED = 10_000, 10, 51, 0.05, 3
SPREADS = {
    "beta(1, 19)": (1.0, 19.0),
    "beta(.5, 9.5)": (0.5, 9.5),
    "beta(.2, 3.8)": (0.2, 3.8),
    "beta(.1, 1.9)": (0.1, 1.9),
}
NETS = {"sure": 0.995, "less sure": 0.95}
SIZES = (300, 1000, 5000)
RESULT = RESULTS / "human_labels.json"


@dataclass
class Outcome:
    """Results for one population, all mean l1 distances except for the shares."""

    people: str
    label_share: float
    unanimous: float
    second_panel: float
    """`second_panel_error`: the error of people who vote by the first panel's shares."""
    half_panels: float
    right_model: float
    """Error of a model that knows the true shares, measured against the votes."""
    other_panel: float
    """Distance of two panels of 51 from one population."""
    second_panel_l2: float
    nets: dict[str, float]
    covered: dict[str, float]
    """Coverage of `samplewise_interval` at 95%, by the number of images, for the more confident net."""


def truth(spread: str, rng: np.random.Generator) -> tuple[Array, npt.NDArray[np.intp]]:
    """Return the shares of all people, and the labels."""
    label_N, others_N = rng.integers(0, CLASSES, IMAGES), rng.beta(*SPREADS[spread], IMAGES)
    is_label_NC = np.eye(CLASSES, dtype=bool)[label_N]
    shares_NC = np.empty((IMAGES, CLASSES))
    shares_NC[is_label_NC] = 1 - others_N
    shares_NC[~is_label_NC] = (rng.dirichlet(np.full(CLASSES - 1, 0.2), IMAGES) * others_N[:, None]).ravel()
    return shares_NC, label_N


def net_of(confidence: float, label_N: npt.NDArray[np.intp], rng: np.random.Generator) -> Array:
    """Return a net that predicts the label, or another class for one of twenty images, with that confidence."""
    wrong_N = rng.random(IMAGES) < WRONG
    top_N = np.where(wrong_N, (label_N + rng.integers(1, CLASSES, IMAGES)) % CLASSES, label_N)
    p_NC: Array = np.where(np.eye(CLASSES)[top_N] == 1, confidence, (1 - confidence) / (CLASSES - 1))
    return p_NC


def measure(spread: str, runs: int) -> Outcome:
    rng = np.random.default_rng([SEED, *spread.encode()])
    shares_NC, label_N = truth(spread, rng)
    first, other = (rng.multinomial(PEOPLE, shares_NC) for _ in range(2))
    nets = {name: net_of(confidence, label_N, rng) for name, confidence in NETS.items()}
    errors = {name: metrics.samplewise_error(p_NC, first) for name, p_NC in nets.items()}
    covered = {}
    for n in SIZES:
        inside = 0
        for _ in range(runs):
            rows = rng.integers(0, IMAGES, n)
            interval = metrics.samplewise_interval(nets["sure"][rows], first[rows])
            inside += interval.lower <= errors["sure"] <= interval.upper
        covered[str(n)] = inside / runs
    return Outcome(
        people=spread,
        label_share=float(shares_NC[np.arange(IMAGES), label_N].mean()),
        unanimous=float((first.max(axis=1) == PEOPLE).mean()),
        second_panel=metrics.second_panel_error(first),
        half_panels=metrics.half_panels_error(first),
        right_model=metrics.samplewise_error(shares_NC, first),
        other_panel=metrics.samplewise_error(other / PEOPLE, first),
        second_panel_l2=metrics.second_panel_error(first, norm="l2"),
        nets=errors,
        covered=covered,
    )


def markdown(record: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    lines = [
        "| doubt of people (simulated) | unanimous images | `second_panel_error` | a model that is right | two panels |"
        " `half_panels_error` | nets: sure, less sure | lowest coverage at a nominal 95% |",
        "|---" * 8 + "|",
    ]
    for one in record["people"]:
        figures = [one[key] for key in ("second_panel", "right_model", "other_panel", "half_panels")]
        size, lowest = min(one["covered"].items(), key=lambda item: item[1])
        lines.append(
            f"| {one['people']} | {one['unanimous']:.0%} | {' | '.join(f'{value:.3f}' for value in figures)}"
            f" | {', '.join(f'{value:.3f}' for value in one['nets'].values())} | {lowest:.1%} (n = {size}) |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(1), default=1000, help="samples of images for each coverage")
    options = parser.parse_args()
    run = Run()
    run.finish(
        options.out,
        markdown,
        images=IMAGES,
        votes=PEOPLE,
        people=[asdict(measure(spread, options.runs)) for spread in SPREADS],
    )


if __name__ == "__main__":
    main()
