"""Probabilities from chat models: log-probabilities of tokens, verbalised numbers, and votes of repeated samples."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

from trueodds.errors import nearest
from trueodds.texts import quotes, short

ConfidenceSource = Literal["native", "logprob", "verbalised", "votes"]
SOURCES: tuple[ConfidenceSource, ...] = get_args(ConfidenceSource)
"""Sources of a confidence.

native: the model gives probabilities of its classes. logprob: log-probabilities of tokens. verbalised: numbers that a
model writes. votes: shares of repeated samples.
"""
UNLISTED = -9999.0
"""Log-probability by which chat completions mark a token that is not among the most probable ones."""
LEAST_REST = 2.0**-23
"""Least remaining mass of a list of log-probabilities. They come as float32, which cannot hold less beside 1."""
LOW_MASS = 0.5
"""An answer with less label mass counts as one whose prompt does not fit the classes."""
_ABOVE_ONE = 1e-3
_CHAT_KEYS = frozenset(("token", "logprob", "bytes"))
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)")

LOGPROBS_READING = (
    "logprobs: tokens of a class add up, tokens of no class count as remaining mass, and the classes that are not"
    " listed share at most the smaller of the remaining mass and the smallest listed probability; then all are divided"
    " by their sum"
)
VERBALISED_READING = "verbalised: below 1 as a probability, from 2 to 100 and with % as percent"
VOTES_READING = "votes: (votes + 1/C) / (n + 1) for C classes and n votes, so no vote of n is not impossible"


class SourceError(ValueError):
    """Values of a chat model that cannot be read as probabilities. The message has them and the cure."""


class ClassProbabilities(NamedTuple):
    """Probabilities of the classes in their order."""

    probabilities: list[float]
    label_mass: float
    """Share of the token probability that fell on the classes."""


def from_logprobs(logprobs: Any, classes: Sequence[str]) -> ClassProbabilities:
    """Compute probabilities of classes from the log-probabilities of the most probable tokens.

    With p_t = exp(logprob of token t) and R = 1 - sum_t p_t, a token that is not listed has at most b = min(R, min_t
    p_t). A class has the sum of its tokens; classes without a token share b in equal parts. All are then divided by
    their sum. So tokens that are no class count as remaining mass.

    A token belongs to the class with its name, blanks at its ends and case aside. Case counts where two classes differ
    by nothing else. A log-probability of -9999 or less marks a token that is not listed.

    Args:
        logprobs: Log-probabilities by token; or the list `top_logprobs` of chat completions, or the entry of one token
            that holds it.
        classes: Names of the classes.

    Returns:
        The probabilities, and the sum of the classes' tokens as `label_mass`.

    Raises:
        SourceError: Not log-probabilities, or no token is a class.

    Examples:
        >>> import math
        >>> from trueodds.inputs.sources import from_logprobs
        >>> top = [{"token": "Yes", "logprob": math.log(0.6)}, {"token": " yes", "logprob": math.log(0.2)}]
        >>> p, mass = from_logprobs([*top, {"token": "no", "logprob": math.log(0.1)}], ["yes", "no", "unsure"])
        >>> [round(x, 4) for x in p], round(mass, 4)
        ([0.8, 0.1, 0.1], 0.9)
    """
    places = _places(tuple(classes))
    mass_C, named_C = [0.0] * len(classes), [False] * len(classes)
    total, least, strange = 0.0, 1.0, list[str]()
    for token, logprob in _tokens(logprobs):
        if type(logprob) not in (int, float) or not logprob <= _ABOVE_ONE:
            raise SourceError(
                f"logprobs has {short(logprob)} for the token {short(token)}; allowed are natural logarithms of"
                " probabilities, 0 at most"
            )
        if logprob <= UNLISTED:
            continue
        p = min(math.exp(logprob), 1.0)
        total, least = total + p, min(least, p)
        place = _place(token.strip(), places)
        if place is None:
            strange.append(token)
        else:
            mass_C[place] += p
            named_C[place] = True
    if total > 1 + _ABOVE_ONE:
        raise SourceError(
            f"the probabilities of logprobs sum to {total:.6g}; expected at most 1. Are these the natural logarithms of"
            " one token's alternatives?"
        )
    label_mass = min(sum(mass_C), 1.0)
    if label_mass <= 0:
        held = f"the tokens {quotes(strange, 5)}" if strange else "no token"
        raise SourceError(
            f"logprobs has {held}, and none of them is a class; the classes are {quotes(list(classes), 5)}. Ask for the"
            f" names of the classes, one token each.{nearest(strange[0][:100], classes) if strange else ''}"
        )
    if unlisted := named_C.count(False):
        share = min(max(1 - total, LEAST_REST), least) / unlisted
        mass_C = [mass if named else share for mass, named in zip(mass_C, named_C, strict=True)]
    whole = sum(mass_C)
    return ClassProbabilities([mass / whole for mass in mass_C], label_mass)


def from_votes(votes: Any, classes: Sequence[str]) -> list[float]:
    """Compute probabilities of classes from votes, the answers of repeated samples.

    p_k = (votes_k + 1/C) / (n + 1): the mean of the posterior under Perks' prior, one vote shared by all classes. For
    two classes it is half a vote each (Krichevsky & Trofimov 1981). So a share of 0 of n votes is not read as
    impossible.

    Args:
        votes: Counts by class, where classes without a vote may be missing; counts in the order of the classes; or the
            names that were sampled.
        classes: Names of the classes.

    Raises:
        SourceError: Not counts, no vote at all, or a vote for another class.

    Examples:
        >>> from trueodds.inputs.sources import from_votes
        >>> from_votes({"yes": 3}, ["yes", "no"])
        [0.875, 0.125]
        >>> from_votes(["yes", "no", "yes"], ["yes", "no"])
        [0.625, 0.375]
    """
    count_C = _votes_of(votes, classes)
    n = sum(count_C)
    if n <= 0:
        raise SourceError("votes has no vote; expected at least one")
    return [(count + 1 / len(classes)) / (n + 1) for count in count_C]


def verbalised_number(value: Any) -> float:
    """Return the probability that a model wrote as a number or a text, such as 0.85, 85 or "85%".

    A number below 1 is a probability, and one from 2 to 100 is percent. With %, any number to 100 is percent.

    Raises:
        SourceError: Not such a number, or one that is ambiguous: 1 can be one percent or certain.

    Examples:
        >>> from trueodds.inputs.sources import verbalised_number
        >>> verbalised_number(0.85), verbalised_number(85), verbalised_number("85%"), verbalised_number("1 %")
        (0.85, 0.85, 0.85, 0.01)
    """
    number: Any = value
    percent = False
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value.strip()) if len(value) < 50 else None
        number, percent = (float(match[1]), bool(match[2])) if match else (None, False)
    if type(number) not in (int, float) or not 0 <= number <= 100:
        raise SourceError(f"verbalised is {short(value)}; allowed are numbers such as 0.85, 85 and '85%'")
    if percent or number >= 2:
        return float(number) / 100
    if number < 1:
        return float(number)
    if number == 1:
        raise SourceError(f"verbalised is {short(value)}, which can be 1 percent or certain; send '1%' or '100%'")
    raise SourceError(
        f"verbalised is {short(value)}, which is neither a probability nor clearly percent; send it with %"
    )


def verbalised_numbers(values: Sequence[Any]) -> list[float]:
    """Return the probabilities of a verbalised distribution. All numbers have the same unit, which their sum shows.

    Raises:
        SourceError: A number cannot be read, or the sum is near neither 1 nor 100.

    Examples:
        >>> from trueodds.inputs.sources import verbalised_numbers
        >>> verbalised_numbers([85, 14, 1]), verbalised_numbers(["1", "0"]), verbalised_numbers(["99%", "1%"])
        ([0.85, 0.14, 0.01], [1.0, 0.0], [0.99, 0.01])
    """
    numbers, percents = list[float](), set[bool]()
    for value in values:
        text = value.strip() if isinstance(value, str) else value
        percents.add(isinstance(text, str) and text.endswith("%"))
        number = _PERCENT.fullmatch(text) if isinstance(text, str) and len(text) < 50 else None
        numeric: Any = float(number[1]) if number else text
        if type(numeric) not in (int, float) or not 0 <= numeric <= 100:
            raise SourceError(f"verbalised holds {short(value)}; allowed are numbers such as 0.85, 85 and '85%'")
        numbers.append(float(numeric))
    if len(percents) > 1:
        raise SourceError("verbalised has numbers with and without %; write all of them in the same way")
    total = sum(numbers)
    if percents == {True} or 50 < total < 200:
        return [number / 100 for number in numbers]
    if total < 2:
        return numbers
    raise SourceError(f"the numbers of verbalised sum to {total:.6g}; expected 1 or 100")


def _tokens(logprobs: Any) -> list[tuple[str, Any]]:
    """Return tokens and log-probabilities."""
    value = logprobs
    if isinstance(value, dict) and isinstance(content := value.get("content"), list):
        if len(content) != 1:
            raise SourceError(
                f"logprobs.content has {len(content)} tokens; send the top_logprobs of the one token that answers"
            )
        value = content[0]
    if isinstance(value, dict) and isinstance(value.get("top_logprobs"), list):
        value = value["top_logprobs"]
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list) and all(isinstance(e, dict) and {"token", "logprob"} <= e.keys() for e in value):
        if extra := {key for entry in value for key in entry} - _CHAT_KEYS:
            raise SourceError(f"an entry of logprobs has {short(min(extra))}; allowed are token, logprob and bytes")
        pairs = [(entry["token"], entry["logprob"]) for entry in value]
    else:
        raise SourceError(
            f"logprobs is {short(logprobs)}; expected an object with a log-probability per token, or the list"
            ' top_logprobs of chat completions: [{"token": ..., "logprob": ...}, ...]'
        )
    if bad := [token for token, _ in pairs if not isinstance(token, str)]:
        raise SourceError(f"logprobs has the token {short(bad[0])}; expected a text")
    counts = Counter(token for token, _ in pairs)
    if twice := [token for token, count in counts.items() if count > 1]:
        raise SourceError(f"logprobs lists the token {short(twice[0])} twice; send each token once")
    return pairs


def _votes_of(votes: Any, classes: Sequence[str]) -> list[int]:
    """Return the votes of each class."""
    if isinstance(votes, list) and votes and all(isinstance(vote, str) for vote in votes):
        votes = dict(Counter(votes))
    if isinstance(votes, Mapping):
        places = _places(tuple(classes))
        counts = [0] * len(classes)
        for name, count in votes.items():
            place = _place(name.strip(), places)
            if place is None:
                raise SourceError(
                    f"votes has {short(name)}, which is no class; the classes are {quotes(list(classes), 5)}. Leave"
                    f" samples without an answer out.{nearest(name[:100], classes)}"
                )
            counts[place] += _count(count)
        return counts
    if isinstance(votes, list) and len(votes) == len(classes):
        return [_count(vote) for vote in votes]
    raise SourceError(
        f"votes is {short(votes)}; expected an object with a count per class, a count for each of the"
        f" {len(classes)} classes in their order, or a list of the sampled names"
    )


def _count(value: Any) -> int:
    if type(value) in (int, float) and 0 <= value <= 2**53 and value == int(value):
        return int(value)
    raise SourceError(f"votes has the count {short(value)}; allowed are whole numbers from 0")


@lru_cache(maxsize=64)
def _places(classes: tuple[str, ...]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the places of classes by name, and by name without case where that is clear."""
    folded = Counter(name.casefold() for name in classes)
    places = {name: place for place, name in enumerate(classes)}
    return places, {name.casefold(): place for name, place in places.items() if folded[name.casefold()] == 1}


def _place(name: str, places: tuple[dict[str, int], dict[str, int]]) -> int | None:
    """Return the place of the class that a name means."""
    exact, folded = places
    return exact.get(name, folded.get(name.casefold()))
