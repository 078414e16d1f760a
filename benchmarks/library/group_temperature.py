"""Temperatures by group beside one temperature and one fit per group: NLL and calibration on new rows.

    python -m benchmarks.library.group_temperature        # about ten minutes on one core

A world has groups with temperatures T_g, and labels drawn from softmax(z / T_g), or from softmax(z / T_g + b_g) where
groups also have offsets. Each draw fits three ways to the same rows, and measures them on 500 new rows of each group:

- one: `temperature`, for all rows.
- by group: `group_temperature`.
- apart: `temperature`, for each group alone. A group without rows has the temperature of all rows.

NLL: the mean over new rows, above that of the true probabilities, in nats. Group ECE: the mean over groups of the ECE
of the top label (15 bins) on the group's new rows, less the same mean for the true probabilities. In worlds with equal
groups any gain of `by group` is chance, and any loss is its harm. New groups: rows of 20 groups without rows in the
fit, drawn from the same law, get T; they are compared with one temperature.

mcgrad, a peer for two classes, is compared if it is installed: it gets ln(p / (1 - p)) and the group as a category.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds import calibrators, metrics
from trueodds.calibrators import Calibrator, GroupTemperature
from trueodds.sums.inputs import Array
from trueodds.sums.losses import nll_of
from trueodds.sums.sums import CalibrationSums

RESULT = RESULTS / "group_temperature.json"
TEST_ROWS, BINS, NEW_GROUPS, SEED = 500, 15, 20, 7
LogTemperatures = Callable[[np.random.Generator, int], Array]


class World(NamedTuple):
    """A population of groups."""

    name: str
    sizes: tuple[int, ...]
    """Rows of each group in the fit."""
    classes: int
    spread: float
    """Standard deviation of the logits."""
    log_temperatures: LogTemperatures
    offset: float = 0.0
    """Standard deviation of the offsets of a group's classes."""

    @property
    def is_equal(self) -> bool:
        """Whether all groups have the same temperature and no offsets."""
        return self.name.startswith("equal")


def same(log_temperature: float) -> LogTemperatures:
    return lambda rng, groups: np.full(groups, log_temperature)


def normal(center: float, spread: float) -> LogTemperatures:
    return lambda rng, groups: rng.normal(center, spread, groups)


def clusters(low: float, high: float) -> LogTemperatures:
    return lambda rng, groups: rng.choice([low, high], groups)


def outlier(center: float, far: float) -> LogTemperatures:
    """All groups but the first are equal."""
    return lambda rng, groups: np.where(np.arange(groups) == 0, far, center)


LOPSIDED = (8000, *[20] * 39)
STEPS = tuple(int(n) for n in np.geomspace(5, 3000, 20))
WORLDS = (
    World("equal, 2 groups, few rows", (50,) * 2, 3, 3.0, same(0.4)),
    World("equal, 20 groups, few rows", (20,) * 20, 3, 3.0, same(0.4)),
    World("equal, 20 groups, many rows", (500,) * 20, 10, 4.0, same(0.4)),
    World("equal, 200 groups of 5 rows", (5,) * 200, 5, 3.0, same(-0.3)),
    World("equal, rare errors, 10 classes", (200,) * 5, 10, 27.0, same(0.0)),
    World("equal, two classes, dull", (200,) * 10, 2, 1.0, same(0.3)),
    World("equal, 100 classes", (100,) * 10, 100, 3.0, same(0.2)),
    World("equal, one large group, 39 small ones", LOPSIDED, 5, 3.0, same(0.4)),
    World("2 groups, far apart, few rows", (50,) * 2, 3, 3.0, clusters(-0.5, 0.7)),
    World("5 groups, normal .4", (200,) * 5, 10, 4.0, normal(0.3, 0.4)),
    World("20 groups, normal .2", (200,) * 20, 10, 4.0, normal(0.3, 0.2)),
    World("20 groups, normal .2, few rows", (20,) * 20, 3, 3.0, normal(0.3, 0.2)),
    World("20 groups, normal .1, many rows", (1000,) * 20, 5, 3.0, normal(0.3, 0.1)),
    World("200 groups of 5 rows, normal .5", (5,) * 200, 5, 3.0, normal(0.0, 0.5)),
    World("20 groups of 5 to 3,000 rows, normal .4", STEPS, 5, 3.0, normal(0.3, 0.4)),
    World("20 groups, two clusters", (100,) * 20, 5, 3.0, clusters(-0.3, 0.6)),
    World("20 groups, one far off", (200,) * 20, 5, 3.0, outlier(0.2, 1.2)),
    World("one large group, 39 small ones, normal .4", LOPSIDED, 5, 3.0, normal(0.3, 0.4)),
    World("rare errors, 10 classes, normal .3", (400,) * 5, 10, 27.0, normal(0.2, 0.3)),
    World("two classes, dull, normal .4", (200,) * 10, 2, 1.5, normal(0.3, 0.4)),
    World("two classes, 20 groups of 5 to 3,000 rows, normal .4", STEPS, 2, 2.0, normal(0.3, 0.4)),
    World("100 classes, normal .3", (100,) * 10, 100, 3.0, normal(0.2, 0.3)),
    World("offsets by group, equal temperatures", (200,) * 10, 5, 3.0, same(0.3), 0.7),
    World("offsets by group, normal .4", (200,) * 10, 5, 3.0, normal(0.3, 0.4), 0.7),
)


class Rows(NamedTuple):
    """Rows of a world, with their true probabilities."""

    logits_NC: Array
    labels_N: npt.NDArray[np.intp]
    groups_N: npt.NDArray[np.object_]
    truth_NC: Array


def draw(world: World, sizes: tuple[int, ...], log_t_G: Array, offset_GC: Array, rng: np.random.Generator) -> Rows:
    """Draw the rows of groups g0, g1, .. in turn."""
    group_N = np.repeat(np.arange(len(sizes)), sizes)
    z_NC = rng.normal(0, world.spread, (len(group_N), world.classes))
    truth_NC = metrics.softmax(z_NC * np.exp(-log_t_G)[group_N][:, None] + offset_GC[group_N])
    labels_N = (truth_NC.cumsum(axis=1) > rng.random((len(z_NC), 1))).argmax(axis=1)
    return Rows(z_NC, labels_N, np.array([f"g{g}" for g in group_N], dtype=object), truth_NC)


def apart(rows: Rows, whole: Calibrator, test: Rows) -> Array:
    """Return probabilities of test rows by one fit for each group."""
    p_NC = whole(test.logits_NC)
    for name in dict.fromkeys(rows.groups_N.tolist()):
        own_N, test_N = rows.groups_N == name, test.groups_N == name
        fitted = calibrators.Temperature.fit(rows.logits_NC[own_N], rows.labels_N[own_N])
        p_NC[test_N] = fitted(test.logits_NC[test_N])
    return p_NC


def nll(p_NC: Array, labels_N: npt.NDArray[np.intp]) -> float:
    return float(nll_of(p_NC[np.arange(len(labels_N)), labels_N]).mean())


def group_ece(p_NC: Array, test: Rows) -> float:
    """Return the mean over groups of the ECE."""
    values = []
    for start in range(0, len(p_NC), TEST_ROWS):
        part = slice(start, start + TEST_ROWS)
        values.append(metrics.ece(CalibrationSums.from_probabilities(p_NC[part], test.labels_N[part]), bins=BINS))
    return float(np.mean(values))


def by_mcgrad(rows: Rows, test: Rows) -> Array:
    """Return probabilities of two classes by mcgrad, from the softmax and the group."""
    import pandas as pd

    def frame(some: Rows) -> Any:
        p_N = metrics.softmax(some.logits_NC)[:, 1]
        return pd.DataFrame({"p": p_N, "label": some.labels_N, "group": some.groups_N.astype(str)})

    model: Any = importlib.import_module("mcgrad.methods").MCGrad()
    columns: dict[str, Any] = {"prediction_column_name": "p", "categorical_feature_column_names": ["group"]}
    model.fit(df_train=frame(rows), label_column_name="label", **columns)
    p_N = np.asarray(model.predict(df=frame(test), **columns), np.float64)
    return np.stack([1 - p_N, p_N], axis=1)


def measured(world: World, seed: int, peer: bool) -> dict[str, float]:
    """Return the numbers of one draw."""
    rng = np.random.default_rng([SEED, seed, *world.name.encode()])
    groups = len(world.sizes)
    log_t_G = world.log_temperatures(rng, groups + NEW_GROUPS)
    offset_GC = rng.normal(0, 1, (groups + NEW_GROUPS, world.classes)) * world.offset
    rows = draw(world, world.sizes, log_t_G, offset_GC, rng)
    test = draw(world, (TEST_ROWS,) * groups, log_t_G, offset_GC, rng)
    new = draw(world, (TEST_ROWS,) * NEW_GROUPS, log_t_G[groups:], offset_GC[groups:], rng)
    one = calibrators.fit(rows.logits_NC, rows.labels_N, "temperature")
    own = calibrators.fit(rows.logits_NC, rows.labels_N, "group_temperature", groups=rows.groups_N)
    assert isinstance(own, GroupTemperature)
    ways = {
        "one": one(test.logits_NC),
        "by_group": own(test.logits_NC, groups=test.groups_N),
        "apart": apart(rows, one, test),
    }
    if peer and world.classes == 2:
        ways["mcgrad"] = by_mcgrad(rows, test)
    best, floor = nll(test.truth_NC, test.labels_N), group_ece(test.truth_NC, test)
    found = {f"nll_{way}": nll(p_NC, test.labels_N) - best for way, p_NC in ways.items()}
    found |= {f"ece_{way}": group_ece(p_NC, test) - floor for way, p_NC in ways.items()}
    of_new = nll(one(new.logits_NC), new.labels_N) - nll(own(new.logits_NC), new.labels_N)
    return {**found, "new_gain": of_new, "spread": own.spread}


def line(world: World, draws: int, peer: bool) -> dict[str, Any]:
    """Return the means over the draws of a world."""
    found = [measured(world, seed, peer) for seed in range(draws)]
    means = {key: float(np.mean([one[key] for one in found])) for key in found[0] if key != "spread"}
    gain = np.array([one["nll_one"] - one["nll_by_group"] for one in found])
    return {
        "world": world.name,
        "equal": world.is_equal,
        "groups": len(world.sizes),
        "rows": sum(world.sizes),
        **means,
        "gain": float(gain.mean()),
        "gain_standard_error": float(gain.std(ddof=1) / np.sqrt(draws)),
        "worst_draw": float(gain.min()),
        "one_temperature": float(np.mean([one["spread"] == 0 for one in found])),
    }


def markdown(record: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    head = ("world", "rows", "NLL: one", "by group", "apart", "group ECE: one", "by group", "apart", "new groups")
    lines = [f"| {' | '.join((*head, 'spread 0'))} |", "|---" * (len(head) + 1) + "|"]
    for one in record["worlds"]:
        numbers = [f"{one[f'nll_{way}']:.4f}" for way in ("one", "by_group", "apart")]
        numbers += [f"{one[f'ece_{way}']:.4f}" for way in ("one", "by_group", "apart")]
        numbers += [f"{one['new_gain']:+.4f}", f"{one['one_temperature']:.0%}"]
        lines.append(f"| {one['world']} | {one['rows']:,} | {' | '.join(numbers)} |")
    if peers := [one for one in record["worlds"] if "nll_mcgrad" in one]:
        lines += ["", "| world | NLL: by group | mcgrad | group ECE: by group | mcgrad |", "|---" * 5 + "|"]
        for one in peers:
            values = (one["nll_by_group"], one["nll_mcgrad"], one["ece_by_group"], one["ece_mcgrad"])
            lines.append(f"| {one['world']} | {' | '.join(f'{value:.4f}' for value in values)} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--draws", type=whole_from(5), default=20, help="of each world (default: %(default)s)")
    options = parser.parse_args()
    run, lines, peer = Run(), list[dict[str, Any]](), find_spec("mcgrad") is not None
    if not peer:
        run.say("mcgrad is not installed, so it is not compared")
    for world in WORLDS:
        lines.append(line(world, options.draws, peer))
        run.say(world.name, f"gain {lines[-1]['gain']:.5f}", f"spread 0 in {lines[-1]['one_temperature']:.0%}")
    equal, unlike = ([one for one in lines if one["equal"] is which] for which in (True, False))
    summary = {
        "draws": options.draws,
        "worlds": len(lines),
        "equal_worlds": len(equal),
        "most_loss_if_equal": max(-one["gain"] for one in equal),
        "least_one_temperature_if_equal": min(one["one_temperature"] for one in equal),
        "unlike_worlds": len(unlike),
        "least_gain": min(one["gain"] for one in unlike),
        "median_gain": float(np.median([one["gain"] for one in unlike])),
        "share_of_excess": float(np.median([one["nll_by_group"] / one["nll_one"] for one in unlike])),
        "most_behind_apart": max(one["nll_by_group"] - one["nll_apart"] for one in lines),
        "most_loss_of_apart": max(one["nll_apart"] - one["nll_one"] for one in lines),
        "most_new_loss": max(-one["new_gain"] for one in lines),
    }
    run.finish(options.out, markdown, packages=("numpy", "scipy", "mcgrad"), summary=summary, worlds=lines)


if __name__ == "__main__":
    main()
