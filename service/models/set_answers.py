"""Conformal sets of stored answers, as /predict returns them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.errors import ServiceError
from service.models.calls import PredictionResult
from service.models.engine import Engine
from trueodds.bundle import Card
from trueodds.calibrators.conformal import SetRule
from trueodds.calibrators.conformal.ranks import fewest_rows
from trueodds.texts import plural

_SEVERAL = "The level is the coverage on average, not for one class, one kind of input or one set size."


@dataclass(frozen=True)
class SetAnswers:
    """Sets of the answers to one call."""

    rule: SetRule
    sets: list[list[str] | None]
    """Names of the classes of each set, the most probable first. None: another version gave the answer, without it."""
    test_coverage: float | None
    """Coverage of the test rows at this level; None if it is not on the card."""

    @property
    def floor(self) -> float:
        """Coverage that sound sets reach in 95% of calibrations."""
        return min(self.rule.floors)

    @property
    def reading(self) -> str:
        """Promise of the sets, in words."""
        rule = self.rule
        measured = "" if self.test_coverage is None else f" {self.test_coverage:.2%} of the test rows were covered."
        few = len(rule.unlimited_classes)
        whole = ""
        if few and rule.method == "class":
            verb = "is" if few == 1 else "are"
            fewest = f"{fewest_rows(rule.level):,} rows of a class are needed"
            whole = f" {plural(few, 'class', 'classes')} with too few calibration rows {verb} in every set: {fewest}."
        elif few:
            whole = (
                f" {rule.calibration_rows:,} calibration rows are too few for this level, which needs"
                f" {fewest_rows(rule.level):,}, so every class is in the set."
            )
        return (
            f"A set holds the true class with probability {rule.level:.6g}, for inputs like the"
            f" {rule.calibration_rows:,} calibration rows.{measured}{whole} {_SEVERAL}"
        )


def rule_of(engine: Engine, level: float) -> SetRule:
    """Return the rule of a level.

    Raises:
        ServiceError: 422 if the version has no sets.
    """
    fitted, card = engine.conformal, engine.card
    if fitted is None or card.sets is None:
        raise ServiceError(
            422,
            "no_sets",
            f"set = {level:g}: {engine.version.model}/{engine.version.version} has no conformal sets. {_reason(card)}",
        )
    known = {rule.level: rule for rule in card.sets.rules}
    return known[level] if level in known else fitted.at(level, card.sets.rules[0].confidence)


def _reason(card: Card) -> str:
    """Return how a version gets sets."""
    if "recalibration" in card.training:
        return (
            "Its recalibration fitted none: its labels were no random sample, or the version before had no sets."
            " Fit sets to labelled rows (trueodds import --conformal), and publish the bundle"
        )
    return "Publish a version with sets: trueodds import --conformal lac, or conformal: lac in params.yaml"


def answer_sets(result: PredictionResult, engine: Engine, rule: SetRule) -> SetAnswers:
    """Compute the set of each answer. The same id gets the same set.

    A repeated answer of an earlier version has the set of that version, at the same level.
    """
    sets: list[list[str] | None] = []
    for n, inside_C in enumerate(members(result, engine, rule)):
        if inside_C is None:
            sets.append(None)
            continue
        classes, order_C = result.classes(n), np.argsort(-result.probabilities_NC[n], kind="stable")
        sets.append([classes[k] for k in order_C[inside_C[order_C]].tolist()])
    card = engine.card.sets
    measured = None
    if card is not None and rule in card.rules and card.test:
        measured = card.test[card.rules.index(rule)].coverage
    return SetAnswers(rule, sets, measured)


def members(result: PredictionResult, engine: Engine, rule: SetRule) -> list[npt.NDArray[np.bool_] | None]:
    """Return for each answer whether each class is in its set; None if the version that gave it has no such sets."""
    groups: dict[SetRule | None, list[int]] = {}
    for n in range(len(result)):
        version = result.version_of(n)
        own = rule if version.key == engine.version.key else _stored_rule(version.set_rules, rule.level)
        groups.setdefault(own, []).append(n)
    found: list[npt.NDArray[np.bool_] | None] = [None] * len(result)
    for own, rows in groups.items():
        if own is None:
            continue
        inside_NC = own.sets(result.probabilities_NC[rows], [result.ids[n] for n in rows])
        for n, inside_C in zip(rows, inside_NC, strict=True):
            found[n] = inside_C
    return found


def _stored_rule(rules: tuple[SetRule, ...], level: float) -> SetRule | None:
    return next((rule for rule in rules if rule.level == level), None)
