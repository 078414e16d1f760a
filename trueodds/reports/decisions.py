"""What alerts by p(positive) come to: at thresholds, and at the one that given costs call for."""

from __future__ import annotations

from trueodds import metrics
from trueodds.metrics import Costs, DecisionCost
from trueodds.reports.schemas import Decisions
from trueodds.reports.words import decimal, level, percent, span
from trueodds.sums.positive import PositiveSums


def decisions_of(positive: PositiveSums, nominal: float, costs: Costs | None = None) -> Decisions | None:
    """Alerts at thresholds, with intervals at the `nominal` level; None without labels."""
    sums = positive.sums.labelled
    if not sums.n:
        return None
    at = metrics.thresholds(sums, level=nominal)
    if costs is None:
        return Decisions(label=positive.name, thresholds=at)
    cost = metrics.decision_cost(sums, costs=costs, level=nominal)
    at = sorted([one for one in at if one.threshold != cost.at.threshold] + [cost.at], key=lambda one: one.threshold)
    return Decisions(label=positive.name, thresholds=at, cost=cost, reading=_reading(positive.name, cost, nominal))


def _reading(label: str, cost: DecisionCost, nominal: float) -> str:
    limits = f"{level(nominal)} interval {span(cost.lower, cost.upper)}"
    sentences = [
        f"A missed {label} at {cost.costs.miss:g} and a false alarm at {cost.costs.alarm:g} call for an alert above"
        f" {percent(cost.at.threshold)}. There it costs {decimal(cost.cost)} a labelled answer ({limits});"
        f" {decimal(cost.never)} without any alert, {decimal(cost.always)} with one at every answer."
    ]
    saved = f"{level(nominal)} interval {span(cost.saving_lower, cost.saving_upper)}"
    if cost.saving_lower > 0:
        sentences.append(
            f"{decimal(cost.saving)} of it ({saved}) comes of miscalibration: a recalibration would save it, or an"
            f" alert above {percent(cost.best_threshold)}, which suits these labels best."
        )
    else:
        sentences.append(f"That any of it comes of miscalibration is not shown ({decimal(cost.saving)}, {saved}).")
    return " ".join(sentences)
