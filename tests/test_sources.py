"""Probabilities from chat models: log-probabilities of tokens, verbalised numbers and votes, with slow twins."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trueodds.client.observations import observation_rows, shared_options
from trueodds.errors import ConfigError
from trueodds.inputs.sources import (
    LEAST_REST,
    SourceError,
    from_logprobs,
    from_votes,
    verbalised_number,
    verbalised_numbers,
)

CLASSES = ("yes", "no", "unsure")


def twin(tokens: dict[str, float], classes: tuple[str, ...]) -> tuple[list[float], float]:
    """The rule, written out for names that differ by more than case."""
    p = {token: math.exp(value) for token, value in tokens.items() if value > -9999}
    of_class = {name: [x for token, x in p.items() if token.strip().lower() == name.lower()] for name in classes}
    most = min(max(1 - sum(p.values()), LEAST_REST), min(p.values()))
    missing = [name for name in classes if not of_class[name]]
    shares = [sum(of_class[name]) if of_class[name] else most / len(missing) for name in classes]
    return [share / sum(shares) for share in shares], sum(sum(of_class[name]) for name in classes)


@pytest.mark.parametrize("seed", range(20))
def test_logprobs_are_read_by_the_stated_rule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["yes", " Yes", "no", "NO ", "unsure", "Well", "\n", "The"]
    p_T = rng.dirichlet(np.full(9, rng.choice([0.1, 1.0])))[:8].clip(1e-12)
    chosen = ["yes", *rng.choice(names[1:], rng.integers(1, 8), replace=False)]
    tokens = {name: math.log(p_T[names.index(name)]) for name in chosen}
    tokens[" no"] = -9999.0
    expected, mass = twin(tokens, CLASSES)
    read = from_logprobs(tokens, CLASSES)
    np.testing.assert_allclose(read.probabilities, expected, rtol=1e-12)
    assert math.isclose(read.label_mass, mass)
    assert math.isclose(sum(read.probabilities), 1) and min(read.probabilities) > 0


def test_what_is_not_listed_never_has_more_than_it_can_have() -> None:
    full = np.random.default_rng(1).dirichlet(np.full(200, 0.05), 200)
    for p_C in full:
        classes = tuple(f"c{k}" for k in range(200))
        top = np.argsort(-p_C)[:20]
        read = from_logprobs({classes[k]: math.log(p_C[k]) for k in top if p_C[k] > 0}, classes)
        hidden = np.setdiff1d(np.arange(200), top)
        listed = [p_C[k] for k in top if p_C[k] > 0]
        most = min(max(1 - sum(listed), LEAST_REST), min(listed))
        rest = np.array(read.probabilities)[hidden]
        assert (rest > 0).all() and rest.sum() <= max(1 - sum(listed), LEAST_REST) * (1 + 1e-9)
        before_division = rest.sum() / (1 - rest.sum()) * sum(listed)
        assert before_division <= most * (1 + 1e-9)


def test_all_shapes_of_logprobs_are_read_alike() -> None:
    listed: list[Any] = [{"token": "yes", "logprob": -0.2, "bytes": [1]}, {"token": "no", "logprob": -2.0}]
    entry = {"token": "yes", "logprob": -0.2, "bytes": None, "top_logprobs": listed}
    shapes: list[Any] = [
        listed,
        entry,
        {"content": [entry]},
        {"content": [entry], "refusal": None},
        {"yes": -0.2, "no": -2.0},
    ]
    assert len({tuple(from_logprobs(shape, ("yes", "no")).probabilities) for shape in shapes}) == 1


def test_case_tells_classes_apart_that_differ_by_nothing_else() -> None:
    read = from_logprobs({"US": math.log(0.6), "us": math.log(0.3)}, ("us", "US"))
    np.testing.assert_allclose(read.probabilities, [1 / 3, 2 / 3])
    with pytest.raises(SourceError, match="none of them is a class"):
        from_logprobs({"Us": -0.1}, ("us", "US"))


@pytest.mark.parametrize(
    ("logprobs", "words"),
    [
        ({"yes": 0.4}, "0.4 for the token 'yes'; allowed are natural logarithms"),
        ({"yes": float("nan")}, "allowed are natural logarithms"),
        ({"yes": "x"}, "allowed are natural logarithms"),
        ({"yes": True}, "allowed are natural logarithms"),
        ({"yes": -0.1, "no": -0.1}, "sum to 1.80967; expected at most 1"),
        ({"Sure": -0.1}, "the tokens 'Sure', and none of them is a class; the classes are 'yes', 'no'"),
        ({"yes": -9999.0}, "no token, and none of them is a class"),
        ({}, "no token"),
        ([{"token": "yes", "logprob": -1}, {"token": "yes", "logprob": -2}], "'yes' twice"),
        ([{"token": "yes", "logprob": -1, "p": 1}], "has 'p'; allowed are token, logprob and bytes"),
        ([{"token": 3, "logprob": -1}], "the token 3; expected a text"),
        ([["yes", -1]], "expected an object with a log-probability per token"),
        ("yes", "expected an object"),
        (None, "expected an object"),
        ({"content": []}, "has 0 tokens; send the top_logprobs of the one token"),
    ],
)
def test_what_is_no_list_of_logprobs_is_refused(logprobs: Any, words: str) -> None:
    with pytest.raises(SourceError) as refused:
        from_logprobs(logprobs, CLASSES)
    assert words in str(refused.value)


@pytest.mark.parametrize("counts", list(itertools.product(range(4), repeat=3)))
def test_votes_are_the_mean_of_perks_posterior(counts: tuple[int, ...]) -> None:
    if not sum(counts):
        with pytest.raises(SourceError, match="no vote"):
            from_votes(list(counts), CLASSES)
        return
    expected = [float((count + Fraction(1, 3)) / (sum(counts) + 1)) for count in counts]
    samples = [name for name, count in zip(CLASSES, counts, strict=True) for _ in range(count)]
    for votes in (list(counts), {n: c for n, c in zip(CLASSES, counts, strict=True) if c}, samples[::-1]):
        np.testing.assert_allclose(from_votes(votes, CLASSES), expected, rtol=1e-14)


def test_of_two_classes_the_votes_have_half_a_vote_each() -> None:
    assert from_votes({"Yes": 5}, ("yes", "no")) == [5.5 / 6, 0.5 / 6]


@pytest.mark.parametrize(
    ("votes", "words"),
    [
        ({"maybe": 2}, "'maybe', which is no class"),
        ({"yes": -1}, "the count -1; allowed are whole numbers"),
        ({"yes": 0.5}, "the count 0.5"),
        ({"yes": True}, "the count True"),
        ({"yes": float("inf")}, "the count inf"),
        ([1, 2], "a count for each of the 3 classes"),
        ([], "a count for each"),
        (3, "a count for each"),
    ],
)
def test_what_is_no_vote_is_refused(votes: Any, words: str) -> None:
    with pytest.raises(SourceError) as refused:
        from_votes(votes, CLASSES)
    assert words in str(refused.value)


READ = [(0.85, 0.85), (85, 0.85), ("85%", 0.85), ("0.85", 0.85), (" 85 % ", 0.85), ("1%", 0.01), ("100%", 1.0)]
READ_TOO = [(100, 1.0), (0, 0.0), (2, 0.02), ("0.5%", 0.005), (".5", 0.5), ("99.5", 0.995)]
AMBIGUOUS = [(1, "1 percent or certain"), ("1", "1 percent or certain"), (1.5, "nor clearly percent")]
NO_NUMBERS = [101, -0.1, "high", True, None, "", float("nan"), "1e-1", "9" * 100, "\u0663"]


@pytest.mark.parametrize(("value", "expected"), [*READ, *READ_TOO])
def test_verbalised_numbers_are_read(value: Any, expected: float) -> None:
    assert math.isclose(verbalised_number(value), expected)


@pytest.mark.parametrize(("value", "words"), [*AMBIGUOUS, *((value, "allowed are") for value in NO_NUMBERS)])
def test_an_ambiguous_verbalised_number_is_refused(value: Any, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        verbalised_number(value)


UNITS = [([0.7, 0.3], [0.7, 0.3]), ([70, 30], [0.7, 0.3]), (["70%", "30%"], [0.7, 0.3]), ([1, 0], [1.0, 0.0])]
SMALL = [([99, 1], [0.99, 0.01]), (["1%", "0%"], [0.01, 0.0])]


@pytest.mark.parametrize(("values", "expected"), [*UNITS, *SMALL])
def test_a_verbalised_distribution_has_the_unit_that_its_sum_shows(values: list[Any], expected: list[float]) -> None:
    np.testing.assert_allclose(verbalised_numbers(values), expected)


@pytest.mark.parametrize(
    ("values", "words"),
    [(["70%", "0.3"], "with and without %"), ([3, 4], "sum to 7"), ([0.7, "x"], "holds 'x'"), ([300, 1], "holds 300")],
)
def test_a_verbalised_distribution_of_no_clear_unit_is_refused(values: list[Any], words: str) -> None:
    with pytest.raises(SourceError, match=words):
        verbalised_numbers(values)


def test_the_client_sends_objects_of_an_sdk_as_their_keys() -> None:
    top = [
        SimpleNamespace(token="yes", logprob=-0.1, bytes=None),
        SimpleNamespace(token="no", logprob=-2.4),
    ]
    rows, _ = observation_rows(["a", "b"], [top, {"yes": np.float64(-1.0)}], {"form": "logprobs", "tags": ["t", None]})
    listed = [{"token": "yes", "logprob": -0.1}, {"token": "no", "logprob": -2.4}]
    assert list(rows) == [{"id": "a", "logprobs": listed, "tag": "t"}, {"id": "b", "logprobs": {"yes": -1.0}}]
    sent = {"form": "verbalised", "predicted": ["yes"], "confidence_sources": ["verbalised"]}
    rows, _ = observation_rows(["a"], ["85%"], sent)  # type: ignore[arg-type]
    assert list(rows) == [{"id": "a", "verbalised": "85%", "predicted": "yes", "confidence_source": "verbalised"}]
    assert shared_options({"confidence_source": "native"}) == {"confidence_source": "native"}


@pytest.mark.parametrize(
    ("options", "numbers", "words"),
    [
        ({"form": "logprob"}, [{}], "logprobs"),
        ({"form": "votes", "logits": True}, [{}], "give one of them"),
        ({"form": "votes"}, {"yes": 3}, "one entry for each"),
        ({"form": "votes"}, [{"yes": 3}, {"no": 1}], "expected the same number of each"),
    ],
)
def test_the_client_refuses_what_is_no_list_of_answers(options: Any, numbers: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        observation_rows(["a"], numbers, options)
