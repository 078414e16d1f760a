"""The numbers of a report as a table: name, value, interval and note of each, formatted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trueodds.reports.schemas import OrderedFigures, PositiveFigures, Rounding
from trueodds.reports.words import DASH, decimal, digits_of_rare, percent, signed_points, span, unseen
from trueodds.texts import plural


def figure_rows(figures: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return (name, value, interval, note) of each number of a report, formatted, with a dash for unknown ones."""

    def limits(name: str, how: str = "decimal") -> str:
        return span(figures[f"{name}_lower"], figures[f"{name}_upper"], how, 4 if how == "decimal" else 1)

    bins = f"{len(figures['bins'])} bins of equal {'width' if figures['binning'] == 'width' else 'count'}"
    floor = f"of a calibrated model; up to {decimal(figures['floor_p95'], 4)} by chance"
    worst = figures["mce_bin"]
    place = f"{plural(worst.count, 'row')}, {worst.lo:.0%} to {worst.hi:.0%}"
    rounding: Rounding | None = figures.get("rounding")
    unknown = "not known without the probabilities of all classes"
    of_nll, of_brier = ("" if figures[name] is not None else unknown for name in ("nll", "brier"))
    if rounding and rounding.step and of_nll:
        of_nll = f"steps of {rounding.step:g} are too coarse for it"
    of_top = "of the more probable class; " if figures.get("positive") is not None else ""
    classwise = ("classwise ECE", decimal(figures.get("classwise_ece"), 4), "", "mean over the classes")
    return [
        ("accuracy", percent(figures["accuracy"]), limits("accuracy", "percent"), ""),
        ("mean confidence", percent(figures["mean_confidence"]), "", "should equal the accuracy"),
        ("gap, points", signed_points(figures["signed_gap"], ""), limits("signed_gap", "signed"), ""),
        ("ECE", decimal(figures["ece"], 4), "", of_top + bins),
        ("  estimate", decimal(figures["ece_estimate"], 4), limits("ece"), "without what chance adds"),
        ("  noise floor", decimal(figures["floor_mean"], 4), "", floor),
        ("smooth ECE", decimal(figures["smooth_ece"], 4), "", "without bins"),
        *([classwise] if "classwise_ece" in figures else []),
        ("worst bin (MCE)", decimal(figures["mce"], 4), "", place),
        (
            "NLL, nats",
            decimal(figures["nll"], 4),
            limits("nll") if not of_nll else "",
            of_nll or _of_zeros(rounding) or unseen(figures.get("nll_unseen")),
        ),
        *_ruled_out(rounding),
        (
            "Brier score",
            decimal(figures["brier"], 4),
            limits("brier") if not of_brier else "",
            of_brier or "0 to 2, over all classes",
        ),
    ]


def _of_zeros(rounding: Rounding | None) -> str:
    """Describe how the zeros of classes that came true are read; "" if there are none."""
    if rounding is None or rounding.zeros_read_as is None:
        return ""
    zeros = f"{plural(rounding.zeros, 'zero')} that came true read as {rounding.zeros_read_as:.2g}"
    return f"at least {decimal(rounding.nll_at_least, 4)}; {zeros}"


def _ruled_out(rounding: Rounding | None) -> list[tuple[str, str, str, str]]:
    """Return the row of answers that gave what happened probability 0, if there are any."""
    if rounding is None or not rounding.ruled_out:
        return []
    return [("ruled out what happened", f"{rounding.ruled_out:,}", "", "the true class had probability 0")]


def positive_rows(positive: PositiveFigures) -> list[tuple[str, str, str, str]]:
    """Return the rows of `figure_rows` for p(positive)."""
    figures = positive.model_dump()

    def limits(name: str, how: str = "decimal") -> str:
        return span(figures[f"{name}_lower"], figures[f"{name}_upper"], how, 4 if how == "decimal" else fine)

    fine = digits_of_rare(positive.prevalence, positive.mean_probability)
    floor = f"of a calibrated p; up to {decimal(positive.floor_p95, 4)} by chance"
    kind = "width" if positive.binning == "width" else "count"

    def ratio(value: float | None) -> str:
        return "∞" if value is None else f"{value:#.3g}"

    nothing = not positive.expected and not positive.observed
    between = f"{ratio(positive.ratio_lower)} {DASH} {ratio(positive.ratio_upper)}"
    return [
        (f"{positive.label}, share", percent(positive.prevalence, fine), limits("prevalence", "percent"), ""),
        ("mean p", percent(positive.mean_probability, fine), "", "should equal the share"),
        ("expected", decimal(positive.expected, 1), "", f"{positive.observed or 0:,} observed"),
        ("  over observed", DASH if nothing else ratio(positive.ratio), between, ""),
        ("gap, points", signed_points(positive.signed_gap, "", fine), limits("signed_gap", "signed"), ""),
        ("ECE of p", decimal(positive.ece, 4), "", f"{plural(len(positive.bins), 'bin')} of equal {kind}"),
        ("  estimate", decimal(positive.ece_estimate, 4), limits("ece"), "without what chance adds"),
        ("  noise floor", decimal(positive.floor_mean, 4), "", floor),
        ("Brier score of p", decimal(positive.brier, 4), limits("brier"), "0 to 1"),
    ]


def ordered_rows(ordered: OrderedFigures) -> list[tuple[str, str, str, str]]:
    """Return the rows of `figure_rows` for ordered classes."""
    if ordered.rps is None:
        return []
    bias = decimal(ordered.level_bias, 4), span(ordered.level_bias_lower, ordered.level_bias_upper, digits=4)
    return [
        ("RPS, levels", decimal(ordered.rps, 4), span(ordered.rps_lower, ordered.rps_upper, digits=4), "0 is best"),
        ("bias of the level", *bias, "expected - true level"),
    ]


LEVELS = "<>>>>>>><"
"""Sides of the columns of `at_least_rows`."""


def at_least_rows(ordered: OrderedFigures) -> list[tuple[str, ...]]:
    """Return a table of the calibration of each "at least level k". The first row names its columns."""
    head = ("at least", "says", "share", "interval", "gap", "ECE", "interval", "by chance up to", "")
    digits = digits_of_rare(*(share for one in ordered.at_least for share in (one.share, one.mean_probability)))
    rows = [
        (
            one.name,
            percent(one.mean_probability, digits),
            percent(one.share, digits),
            span(one.share_lower, one.share_upper, "percent", digits),
            signed_points(one.signed_gap, "", digits),
            decimal(one.ece),
            span(one.ece_lower, one.ece_upper),
            decimal(one.floor_p95),
            "more than chance" if one.more_than_chance else "",
        )
        for one in ordered.at_least
    ]
    return [head, *rows] if rows else []
