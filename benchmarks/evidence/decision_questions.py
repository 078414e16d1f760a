"""Questions with real answers and outcomes, dressed as requests and responses of decision models in both formats.

The probabilities are FiveThirtyEight's forecasts of games, and those of real nets on CIFAR test images. A model that
keeps its word is needed beside one that does not, so nets and NBA forecasts are calibrated on rows of their own first.
"""

from __future__ import annotations

import csv
import lzma
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

import trueodds
from trueodds.metrics import softmax

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Shape = Literal["decisions", "systemone"]
Kind = Literal["binary", "choice", "score"]

TYPES: dict[Shape, dict[Kind, str]] = {
    "decisions": {"binary": "predicate", "choice": "choice", "score": "score"},
    "systemone": {"binary": "noul", "choice": "choice", "score": "score"},
}
GAMES = 3
"""Games of one score question: the levels count how many of them the first team wins."""
STEP = 0.01


@dataclass(frozen=True)
class Games:
    """Forecasts of one sport, the oldest game first."""

    season_N: npt.NDArray[np.str_]
    day_N: npt.NDArray[np.str_]
    p_N: Array
    """Probability that the first team wins."""
    won_N: npt.NDArray[np.bool_]
    ties: int
    """Games that nobody won. They are left out."""

    def __len__(self) -> int:
        return len(self.p_N)


@dataclass(frozen=True)
class Question:
    """Question with the probabilities that a model gives, and what came true."""

    name: str
    kind: Kind
    options: tuple[str, ...]
    p_NC: Array
    truth_N: Indices

    def __len__(self) -> int:
        return len(self.truth_N)

    def label(self, row: int) -> str | bool:
        """Return the true answer as it is sent to the service."""
        k = int(self.truth_N[row])
        return bool(k) if self.kind == "binary" else self.options[k]


def read_games(path: Path) -> Games:
    """Read the forecasts of a sport: a CSV file, which may be compressed with xz (.xz)."""
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["date"])
    decided = [row for row in rows if float(row["prob1_outcome"]) in (0.0, 1.0)]
    return Games(
        np.array([row["season"] for row in decided]),
        np.array([row["date"] for row in decided]),
        np.array([float(row["prob1"]) for row in decided]),
        np.array([float(row["prob1_outcome"]) == 1 for row in decided]),
        len(rows) - len(decided),
    )


def questions(data: Path, counts: dict[str, int], rng: np.random.Generator) -> dict[str, Question]:
    """Draw five questions: two of yes or no, two choices, one score.

    Args:
        data: Folder with `forecasts` and `records`.
        counts: Number of answers by question.
        rng: Source of the draws.
    """
    mlb, nba = (read_games(data / "forecasts" / f"{sport}_games.csv.xz") for sport in ("mlb", "nba"))
    order_N = rng.permutation(len(mlb))
    yes_N, rest_N = np.split(order_N, [counts["first_team_wins"]])
    nba_p_N, nba_won_N = _calibrated_forecasts(nba, counts["home_team_wins"], rng)
    found = [
        _binary("first_team_wins", mlb.p_N[yes_N], mlb.won_N[yes_N]),
        _binary("home_team_wins", nba_p_N, nba_won_N),
        _choice("object", data / "records" / "lenet-5-cifar-10.npz", counts["object"], rng),
        _choice("scene", data / "records" / "wideresnet-16-4-cifar-100.npz", counts["scene"], rng),
        _score("wins_of_three", mlb.p_N[rest_N], mlb.won_N[rest_N]),
    ]
    return {one.name: _first(one, counts[one.name]) for one in found}


def sharpened(question: Question, error: float) -> Question:
    """Return the question with probabilities that are off by `error` on average.

    A choice becomes surer by a temperature, so that the mean probability of its answers rises by `error`. A yes-or-no
    question has p(yes) raised by a shift of its logits, by `error` on average.
    """
    z_NC = np.log(np.maximum(question.p_NC, 1e-12))
    if question.kind == "binary":
        sign_C = np.array([0.0, 1.0])

        def changed(by: float) -> Array:
            return softmax(z_NC + by * sign_C)

        def amount(by: float) -> float:
            return float((changed(by) - question.p_NC)[:, 1].mean())
    else:

        def changed(by: float) -> Array:
            return softmax(z_NC * (1 + by))

        def amount(by: float) -> float:
            return float((changed(by).max(axis=1) - question.p_NC.max(axis=1)).mean())

    by = brentq(lambda value: amount(value) - error, 0.0, 20.0)
    return replace(question, p_NC=changed(float(by)))


def rounded(question: Question) -> Question:
    """Return the question with probabilities in steps of STEP."""
    return replace(question, p_NC=question.p_NC.round(2))


def pair(
    shape: Shape, served: str, asked: Sequence[tuple[Question, int]], declined: Sequence[str], id_: str, time: float
) -> dict[str, Any]:
    """Return a request and its response in one of the formats.

    Args:
        shape: Format.
        served: Name of the served model.
        asked: Questions, each with the number of its row.
        declined: Names of the questions that the host declines.
        id_: Id of the pair.
        time: Unix time in seconds.
    """
    text = f"Facts of {id_}"
    alias = served.rpartition("-")[0]
    of = [(one, _question(shape, one), _answer(shape, one, row, one.name in declined)) for one, row in asked]
    if shape == "decisions":
        request: Any = {"model": alias, "input": text, "questions": [{"name": one.name, **tree} for one, tree, _ in of]}
        answers: Any = [{"name": one.name, **answer} for one, _, answer in of]
    else:
        request = {"model": alias, "state": text, "questions": {one.name: tree for one, tree, _ in of}}
        answers = {one.name: answer for one, _, answer in of}
    return {"id": id_, "time": time, "request": request, "response": {"model": served, "answers": answers}}


def _question(shape: Shape, one: Question) -> dict[str, Any]:
    tree: dict[str, Any] = {"type": TYPES[shape][one.kind], "instructions": one.name.replace("_", " ").capitalize()}
    if one.kind == "binary":
        return tree
    if shape == "decisions":
        field, key = ("choices", "value") if one.kind == "choice" else ("levels", "label")
        return {**tree, field: [{key: option} for option in one.options]}
    return {**tree, "criteria": dict.fromkeys(one.options) if one.kind == "choice" else list(one.options)}


def _answer(shape: Shape, one: Question, row: int, is_declined: bool) -> dict[str, Any]:
    if is_declined:
        return {"type": "refusal"}
    p_C = one.p_NC[row].tolist()
    tree: dict[str, Any] = {"type": TYPES[shape][one.kind]}
    if one.kind == "binary":
        return {**tree, "probability" if shape == "decisions" else "noul": p_C[1]}
    peak = 1 + sum(p * np.log(p) for p in p_C if p > 0) / np.log(len(p_C))
    tree["confidence"] = round(float(peak), 4)  # of the shape of the distribution, as hosts give it: no probability
    if one.kind == "choice":
        tree["choice"] = one.options[int(np.argmax(p_C))]
    else:
        tree["score"] = sum(k * p for k, p in enumerate(p_C))
    if shape == "systemone":
        names = one.options if one.kind == "choice" else map(str, range(len(p_C)))
        return {**tree, "probabilities": dict(zip(names, p_C, strict=True))}
    if one.kind == "choice":
        entries: list[dict[str, Any]] = [{"value": name} for name in one.options]
    else:
        entries = [{"value": k, "label": name} for k, name in enumerate(one.options)]
    return {**tree, "probabilities": [{**e, "probability": p} for e, p in zip(entries, p_C, strict=True)]}


def _binary(name: str, p_N: Array, won_N: npt.NDArray[np.bool_]) -> Question:
    return Question(name, "binary", ("false", "true"), np.column_stack([1 - p_N, p_N]), won_N.astype(np.intp))


def _choice(name: str, record: Path, count: int, rng: np.random.Generator) -> Question:
    """Return a net's answers to test images, after a calibrator that was fitted on the other images."""
    arrays = np.load(record)
    logits_NC, truth_N = trueodds.logits_of(arrays["predictions"]), arrays["ground_truth"].ravel().astype(np.intp)
    order_N = rng.permutation(len(truth_N))
    rest_N, fitted_N = np.split(order_N, [count])
    calibrator = trueodds.fit(logits_NC[fitted_N], truth_N[fitted_N])
    options = tuple(f"option {k}" for k in range(logits_NC.shape[1]))
    return Question(name, "choice", options, np.asarray(calibrator(logits_NC[rest_N])), truth_N[rest_N])


def _calibrated_forecasts(games: Games, count: int, rng: np.random.Generator) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return some forecasts, after a fit of scale and shift of the logits on the others."""
    logits_NC = trueodds.logits_of(np.column_stack([1 - games.p_N, games.p_N]))
    rest_N, fitted_N = np.split(rng.permutation(len(games)), [count])
    calibrator = trueodds.fit(logits_NC[fitted_N], games.won_N[fitted_N].astype(np.intp), "bias_corrected_temperature")
    return np.asarray(calibrator(logits_NC[rest_N]))[:, 1], games.won_N[rest_N]


def _score(name: str, p_N: Array, won_N: npt.NDArray[np.bool_]) -> Question:
    """Return how many of three games the first teams win. The forecasts of the games are multiplied."""
    count = len(p_N) // GAMES
    p_NG, won_NG = (values[: count * GAMES].reshape(count, GAMES) for values in (p_N, won_N))
    p_NC = np.zeros((count, GAMES + 1))
    p_NC[:, 0] = 1
    for game in range(GAMES):
        p = p_NG[:, game, None]
        p_NC = p_NC * (1 - p) + np.roll(p_NC, 1, axis=1) * p
    levels = ("none", "one", "two", "three")
    return Question(name, "score", levels, p_NC / p_NC.sum(axis=1, keepdims=True), won_NG.sum(axis=1).astype(np.intp))


def _first(question: Question, count: int) -> Question:
    if count > len(question):
        raise ValueError(f"{question.name} has {len(question):,} rows; {count:,} were asked for")
    return replace(question, p_NC=question.p_NC[:count], truth_N=question.truth_N[:count])
