"""Figures of ordered classes, and what they say in plain words."""

from __future__ import annotations

import numpy as np

from trueodds import metrics
from trueodds.metrics import LevelBias
from trueodds.metrics.significance.at_least import FAMILY_RATE, holm
from trueodds.reports import words
from trueodds.reports.figures import positive_figures
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import AtLeastFigures, OrderedFigures
from trueodds.sums.answers import AnswerSums
from trueodds.sums.ordered import LevelSums
from trueodds.sums.positive import PositiveSums

NAMES = {"share": "prevalence", "share_lower": "prevalence_lower", "share_upper": "prevalence_upper"}
"""Names of figures that differ from those of a positive class."""
NOT_OF_A_POSITIVE = ("name", "p_value", "more_than_chance")
MOST_NAMED = 5
"""Largest number of levels that a sentence names."""


def ordered_figures(levels: LevelSums, options: ReportOptions) -> OrderedFigures:
    """Compute the figures of ordered classes. Without labels they hold only the names of the levels.

    Each "at least level k" has the figures of `positive_figures` at these options, so two levels have those of the
    upper one as a positive class.

    Args:
        levels: Sums of the labelled answers, with the names of the levels.
        options: Window, bins and confidence level.
    """
    names, sums = levels.names, levels.sums
    scale = f"0 to {len(names) - 1}, in levels"
    if not sums.n:
        return OrderedFigures(levels=list(names), rps_scale=scale)
    found = []
    for name, part in zip(names[1:], sums.at_least, strict=True):
        answers = AnswerSums(part.cells[0].astype(np.int64), part)
        figures = positive_figures(PositiveSums(name, answers), options).model_dump()
        known = {field: figures[NAMES.get(field, field)] for field in _FIELDS}
        found.append(AtLeastFigures(name=name, p_value=figures["calibration_p_value"], more_than_chance=False, **known))
    for one, mark in zip(found, holm([one.p_value for one in found], FAMILY_RATE), strict=True):
        one.more_than_chance = mark
    score = metrics.rps_interval(sums, level=options.level)
    anytime = options.window.is_everything and not options.one_look
    bias = metrics.level_bias(sums, level=options.level, anytime=anytime)
    return OrderedFigures(
        levels=list(names),
        rps=score.value,
        rps_lower=score.lower,
        rps_upper=score.upper,
        rps_scale=scale,
        level_bias=bias.bias,
        level_bias_lower=bias.lower,
        level_bias_upper=bias.upper,
        expected_level=bias.expected,
        observed_level=bias.observed,
        at_least=found,
        reading=_reading(bias, found),
    )


_FIELDS = [name for name in AtLeastFigures.model_fields if name not in NOT_OF_A_POSITIVE]


def _reading(bias: LevelBias, at_least: list[AtLeastFigures]) -> str:
    """Describe the bias of the level and the marks."""
    limits = words.span(bias.lower, bias.upper, digits=2)
    size = words.decimal(abs(bias.bias), 2)
    if bias.lower <= 0 <= bias.upper:
        first = f"The labels do not show that levels are predicted too high or too low (bias {limits})."
    else:
        first = f"Levels are predicted {size} too {'high' if bias.bias > 0 else 'low'} on average (bias {limits})."
    off = [one for one in at_least if one.more_than_chance]
    if not off:
        return f'{first} No "at least" is off by more than chance.'
    named = ", ".join(f"{one.name} ({words.signed(one.signed_gap)})" for one in off[:MOST_NAMED])
    named += f" and {len(off) - MOST_NAMED} more" * (len(off) > MOST_NAMED)
    return f'{first} "At least" is off by more than chance for {named}.'
