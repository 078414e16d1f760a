"""Published forecasts of games: verdicts by sport, with intervals for games that are not independent.

    trueodds data forecasts
    python -m benchmarks.evidence.forecasts        # downloads/forecasts; six minutes on one core

The forecasts are FiveThirtyEight's, with their outcomes. The figure with intervals is the signed gap:
the share of games that the favourite won, minus its mean probability. Below 0 the forecasts are over-confident.

Three intervals are compared. The first takes games for independent. The other two are cluster-robust: the variance is
that of the sums by day, or by season, and the quantile is Student's with a degree of freedom fewer than blocks.

Their coverage is simulated on the sports' own forecasts, days and seasons. Each season shifts the logits of all its
favourites by a normal number, and each day does. The target is the gap with the mean of both at 0.

The service's alarm runs on such streams, too. Without shifts it fires in at most 5% of them. With shifts the forecasts
are off for a day or a season at a time, in either direction, and are right on average.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit
from scipy.stats import t as student

import trueodds
from benchmarks.evidence.decision_questions import Games, read_games
from benchmarks.record import RESULTS, Run, options_parser
from pipeline.published_data import collections
from service.alarm import AlarmState
from service.settings import Settings
from service.store.rows import LabelBlock
from trueodds.sums.positive import PositiveClass

Array = npt.NDArray[np.float64]

RESULT = RESULTS / "forecasts.json"
SPORTS = ("mlb", "nba", "nfl", "nhl", "wnba")
LEVEL = 0.95
SHIFTS = {"independent": (0.0, 0.0), "days": (0.0, 0.3), "seasons": (0.15, 0.0), "both": (0.15, 0.3)}
"""Standard deviations of the shifts by season and by day, in logits."""
BLOCKS = ("games", "days", "seasons")
POSITIVE = PositiveClass("won", 1)
SETTINGS = Settings()


@dataclass(frozen=True)
class Gap:
    """Signed gap with an interval."""

    blocks: str
    count: int
    """Number of blocks."""
    gap: float
    lower: float | None
    upper: float | None
    """Upper limit. None for a single block."""


def gap_interval(residual_N: Array, block_N: npt.NDArray[Any], name: str, level: float = LEVEL) -> Gap:
    """Return the mean of residuals with a cluster-robust interval.

    mean +- t_(G-1) sqrt(G / (G - 1) sum_g s_g^2) / N, where s_g is the sum of (residual - mean) in block g of G.

    Args:
        residual_N: Outcome minus probability, shape (N,).
        block_N: Block of each row, shape (N,). Rows of different blocks are independent.
        name: Name of the blocks.
        level: Confidence level.

    References:
        Liang, Zeger 1986, Biometrika 73, section 2.
    """
    mean, count = float(residual_N.mean()), len(residual_N)
    _, number_N = np.unique(block_N, return_inverse=True)
    sum_G = np.bincount(number_N, residual_N - mean)
    blocks = len(sum_G)
    if blocks < 2:
        return Gap(name, blocks, mean, None, None)
    half = float(student.ppf((1 + level) / 2, blocks - 1)) * float(
        np.sqrt(blocks / (blocks - 1) * (sum_G**2).sum()) / count
    )
    return Gap(name, blocks, mean, mean - half, mean + half)


def blocks_of(games: Games) -> dict[str, npt.NDArray[Any]]:
    """Return the block of each game, by kind of block."""
    return {"games": np.arange(len(games)), "days": games.day_N, "seasons": games.season_N}


def favourites(games: Games) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return the probability of each favourite, and whether it won."""
    first_N = games.p_N >= 0.5
    return np.where(first_N, games.p_N, 1 - games.p_N), games.won_N == first_N


def sport(name: str, games: Games) -> dict[str, Any]:
    """Return the verdict on a sport and its intervals."""
    p_N, won_N = favourites(games)
    report = trueodds.report(games.p_N, games.won_N.astype(int))
    assert report.positive is not None
    gaps = [gap_interval(won_N - p_N, block_N, kind) for kind, block_N in blocks_of(games).items()]
    return {
        "sport": name,
        "games": len(games),
        "ties": games.ties,
        "seasons": len(set(games.season_N.tolist())),
        "verdict": report.verdict,
        "ece": report.ece,
        "ece_lower": report.ece_lower,
        "ece_upper": report.ece_upper,
        "favourites": verdicts_of(gaps),
        "gaps": [asdict(gap) for gap in gaps],
        "seasons_gaps": [
            {"season": season, **asdict(gap_interval((won_N - p_N)[games.season_N == season],
                                                     games.day_N[games.season_N == season], "days"))}
            for season in sorted(set(games.season_N.tolist()))
        ],
    }  # fmt: skip


def verdicts_of(gaps: list[Gap]) -> dict[str, str]:
    """Return what each interval says about the favourites."""
    return {gap.blocks: _verdict(gap) for gap in gaps}


def _verdict(gap: Gap) -> str:
    if gap.lower is None or gap.upper is None:
        return "one block only"
    return "over-confident" if gap.upper < 0 else "under-confident" if gap.lower > 0 else "no more than chance"


def simulated(name: str, games: Games, shifts: tuple[float, float], runs: int, seed: int) -> dict[str, Any]:
    """Return how often the intervals contain the gap that the shifts have on average."""
    rng = np.random.default_rng([seed, *name.encode()])
    p_N, _ = favourites(games)
    blocks, z_N = blocks_of(games), logit(p_N)
    number = {kind: np.unique(blocks[kind], return_inverse=True)[1] for kind in ("seasons", "days")}
    target = _mean_gap(z_N, p_N, shifts)
    covered = dict.fromkeys(BLOCKS, 0)
    width = dict.fromkeys(BLOCKS, 0.0)
    for _ in range(runs):
        by_season_G, by_day_G = (
            rng.normal(0, by, int(number[kind].max()) + 1) for kind, by in zip(("seasons", "days"), shifts, strict=True)
        )
        chance_N = expit(z_N + by_season_G[number["seasons"]] + by_day_G[number["days"]])
        residual_N = (rng.random(len(p_N)) < chance_N) - p_N
        for kind in BLOCKS:
            gap = gap_interval(residual_N, blocks[kind] if kind == "games" else number[kind], kind)
            if gap.lower is not None and gap.upper is not None:
                covered[kind] += gap.lower <= target <= gap.upper
                width[kind] += gap.upper - gap.lower
    has_seasons = int(number["seasons"].max()) > 0
    shown = [kind for kind in BLOCKS if kind != "seasons" or has_seasons]
    return {
        "covered": {kind: covered[kind] / runs if kind in shown else None for kind in BLOCKS},
        "width": {kind: width[kind] / runs if kind in shown else None for kind in BLOCKS},
    }


def alarm_share(name: str, games: Games, shifts: tuple[float, float], streams: int, seed: int) -> float:
    """Return the share of simulated streams in which the service's alarm fires."""
    rng = np.random.default_rng([seed, *name.encode(), 1])
    p_N, _ = favourites(games)
    z_N, first_N = logit(p_N), games.p_N >= 0.5
    blocks = [np.unique(of, return_inverse=True)[1] for of in (games.season_N, games.day_N)]
    fired = 0
    for _ in range(streams):
        by_season_G, by_day_G = (rng.normal(0, by, int(of.max()) + 1) for by, of in zip(shifts, blocks, strict=True))
        right_N = rng.random(len(p_N)) < expit(z_N + by_season_G[blocks[0]] + by_day_G[blocks[1]])
        state = AlarmState.start(SETTINGS).take(label_block(games.p_N, right_N == first_N), POSITIVE)
        fired += state.paging is not None
    return fired / streams


def label_block(p_N: Array, won_N: npt.NDArray[np.bool_]) -> LabelBlock:
    """Return forecasts and outcomes in the form of the store, in their order."""
    number_L = np.arange(len(p_N))
    label_L, predicted_L = won_N.astype(np.int64), (p_N > 0.5).astype(np.int64)
    loss_L = np.zeros(len(p_N))
    return LabelBlock(
        sequence_L=number_L + 1,
        ids=[""] * len(p_N),
        created_ms_L=number_L,
        arrived_ms_L=number_L,
        label_L=label_L,
        predicted_L=predicted_L,
        confidence_L=np.maximum(p_N, 1 - p_N),
        correct_L=label_L == predicted_L,
        first_correct_L=label_L == predicted_L,
        nll_L=loss_L,
        brier_L=loss_L,
        propensity_L=np.full(len(p_N), np.nan),
        tags=[None] * len(p_N),
        first_label_L=label_L,
        at_least_LK=np.empty((len(p_N), 0)),
    )


def _mean_gap(z_N: Array, p_N: Array, shifts: tuple[float, float]) -> float:
    """Return the mean gap over normal shifts, by Gauss-Hermite quadrature of their sum."""
    node_K, weight_K = np.polynomial.hermite_e.hermegauss(40)
    spread = float(np.hypot(*shifts))
    chance_NK = expit(z_N[:, None] + spread * node_K)
    return float((chance_NK @ (weight_K / weight_K.sum()) - p_N).mean())


def markdown(result: dict[str, Any]) -> str:
    """Return the tables for the page on decision models and forecasts."""
    lines = [
        "| sport | games (seasons) | verdict for independent games | ECE, 95% interval | favourites: gap |"
        " games as blocks | days as blocks | seasons as blocks |",
        "|---|---:|---|---|---:|---|---|---|",
    ]
    for one in result["sports"]:
        cells = [_interval(gap) for gap in one["gaps"]]
        lines.append(
            f"| {one['sport'].upper()} | {one['games']:,} ({one['seasons']}) | `{one['verdict']}` | {one['ece']:.3f}"
            f" [{one['ece_lower']:.3f}, {one['ece_upper']:.3f}] | {one['gaps'][0]['gap']:+.3f} | {' | '.join(cells)} |"
        )
    lines += [
        "",
        f"Coverage of these intervals in {result['runs']:,} simulations each, nominal {LEVEL:.0%}:",
        "",
        "| sport | dependence | games as blocks | days as blocks | seasons as blocks | streams with an alarm |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for one in result["coverage"]:
        shares = ["-" if share is None else f"{share:.1%}" for share in one["covered"].values()]
        lines.append(f"| {one['sport'].upper()} | {one['dependence']} | {' | '.join(shares)} | {one['alarm']:.0%} |")
    lines += ["", f"The alarm ran on {result['streams']:,} streams each, with the service's default tolerance."]
    return "\n".join(lines)


def _interval(gap: dict[str, Any]) -> str:
    return "-" if gap["lower"] is None else f"[{gap['lower']:+.3f}, {gap['upper']:+.3f}]"


if __name__ == "__main__":
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=int, default=1000, help="simulations of intervals per sport and dependence")
    parser.add_argument("--streams", type=int, default=100, help="simulations of the alarm")
    chosen = parser.parse_args()
    run = Run()
    paths = collections.find("forecasts")
    games = {path.name.partition("_")[0]: read_games(path) for path in paths}
    coverage = [
        {"sport": name, "dependence": kind, "season_shift": by[0], "day_shift": by[1],
         **simulated(name, games[name], by, chosen.runs, 7),
         "alarm": alarm_share(name, games[name], by, chosen.streams, 7)}
        for name in SPORTS for kind, by in SHIFTS.items()
    ]  # fmt: skip
    run.finish(
        chosen.out,
        markdown,
        level=LEVEL,
        runs=chosen.runs,
        streams=chosen.streams,
        sports=[sport(name, games[name]) for name in SPORTS],
        coverage=coverage,
    )
