"""The part of a report on the resolution of its probabilities, and the limits of their NLL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trueodds import metrics
from trueodds.reports.schemas.figures import Rounding
from trueodds.reports.words import decimal
from trueodds.sums.losses import WORST_NLL, rounded_losses
from trueodds.sums.rounding import EXACT, Resolution, ruled_out
from trueodds.sums.steps import possible_step
from trueodds.sums.sums import CalibrationSums
from trueodds.texts import capitalise, plural

HOW = "--resolution 0.01 or --resolution exact (in Python: resolution=0.01 or 'exact')"
"""Options that state the resolution."""


@dataclass(frozen=True)
class RoundedFigures:
    """The part of a report on the resolution, and the limits of the NLL that follow from it."""

    rounding: Rounding
    limits: Mapping[str, float | None]
    """Figures that replace those of exact probabilities: `nll_lower`, `nll_upper` and `nll_unseen`. Empty if exact."""


def rounded_figures(
    probabilities_NC: npt.NDArray[np.floating],
    labels_N: npt.NDArray[np.intp],
    resolution: Resolution,
    level: float,
) -> RoundedFigures:
    """Describe the resolution of labelled rows.

    A rounded zero of the true class bounds the NLL only from below. With such zeros, the lower limit of the NLL is that
    of the least NLL that the rows allow, and there is no upper limit.

    Args:
        probabilities_NC: Probabilities of the labelled rows, shape (N, C). Without rows only the resolution is stated.
        labels_N: True classes, shape (N,).
        resolution: Resolution of the whole table.
        level: Confidence level of the limits.
    """
    if not len(labels_N):
        return RoundedFigures(
            Rounding(step=resolution.step, source=resolution.source, reading=read_as_words(resolution)), {}
        )
    if resolution.step is None:
        return RoundedFigures(_of_exact(probabilities_NC, labels_N, resolution), {})
    zeros = ruled_out(probabilities_NC, labels_N)
    if not resolution.has_nll:
        reading = (
            f"{read_as_words(resolution)} This is too coarse for an NLL, and each confidence is off by up to"
            f" {resolution.half:g}. Take values with two decimals or more."
        )
        rounding = Rounding(step=resolution.step, source=resolution.source, zeros=zeros, reading=reading)
        return RoundedFigures(rounding, {})
    losses = rounded_losses(probabilities_NC, labels_N, resolution.step)
    zero_N = probabilities_NC[np.arange(len(labels_N)), labels_N] <= 0
    zeros_read_as = float(np.exp(-losses.nll_N[zero_N].mean())) if zeros else None
    right_N = probabilities_NC.argmax(axis=1) == labels_N
    top_N = np.minimum(probabilities_NC.max(axis=1).astype(np.float64), 1.0)
    least = CalibrationSums.from_top(top_N, right_N, nll_N=losses.least_N, brier_N=losses.brier_N)
    gave = f"{plural(zeros, 'answer')} of {len(labels_N):,} gave the true class a 0"
    return _of_zeros(least, float(losses.least_N.mean()), zeros, zeros_read_as, gave, resolution, level)


def rounded_figures_of_sums(
    sums: CalibrationSums, labelled: int, resolution: Resolution | None, level: float
) -> RoundedFigures:
    """Describe the resolution of labelled answers of which only sums are known; see `rounded_figures`.

    Args:
        sums: Sums over rounded answers, and exact ones whose true class has probability 0. "correct" is whether the
            true class has probability 0, "nll" the lower bound of the NLL, and "brier" the NLL of a zero.
        labelled: Number of labelled answers.
        resolution: Resolution of the answers; None if nothing has decided it.
        level: Confidence level of the limits.
    """
    read_as = resolution or EXACT
    zeros = round(float(sums.total("correct")))
    if read_as.step is None:
        reading = ""
        if zeros:
            reading = (
                f"The model ruled out what happened: {plural(zeros, 'answer')} of {labelled:,} gave the true class"
                f" probability 0. Each counts as {WORST_NLL:.1f} nats in the NLL."
            )
            if resolution is None:
                reading += " If the probabilities are rounded, send their step as `resolution` with a new version."
        return RoundedFigures(Rounding(source=read_as.source, ruled_out=zeros, reading=reading), {})
    reading = read_as_words(read_as)
    if not read_as.has_nll:
        reading += f" This is too coarse for an NLL, and each confidence is off by up to {read_as.half:g}."
        return RoundedFigures(Rounding(step=read_as.step, source=read_as.source, zeros=zeros, reading=reading), {})
    if not sums.n:
        return RoundedFigures(Rounding(step=read_as.step, source=read_as.source, reading=reading), {})
    zeros_read_as = float(np.exp(-sums.total("brier") / zeros)) if zeros else None
    gave = f"{plural(zeros, 'answer')} of {labelled:,} gave what happened a 0"
    return _of_zeros(sums, sums.total("nll") / sums.n, zeros, zeros_read_as, gave, read_as, level)


def _of_zeros(
    least: CalibrationSums,
    at_least: float,
    zeros: int,
    zeros_read_as: float | None,
    gave: str,
    resolution: Resolution,
    level: float,
) -> RoundedFigures:
    """Describe rounded answers, some of which may have a zero that came true. `least` are sums with the least NLL."""
    reading = read_as_words(resolution)
    shown = Rounding(step=resolution.step, source=resolution.source, nll_at_least=at_least, reading=reading)
    if zeros_read_as is None:
        return RoundedFigures(shown, {})
    reading += (
        f" {gave}. These zeros are read as {zeros_read_as:.2g} (geometric mean). The NLL is at least"
        f" {decimal(at_least, 4)}. It has no upper limit, because a zero bounds it only from below."
    )
    lower = metrics.score_interval(least, score="nll", level=level).lower
    update = {"zeros": zeros, "zeros_read_as": zeros_read_as, "reading": reading}
    limits = {"nll_lower": lower, "nll_upper": None, "nll_unseen": None}
    return RoundedFigures(shown.model_copy(update=update), limits)


def read_as_words(resolution: Resolution) -> str:
    """Return the sentences on the step; empty without one."""
    if not resolution.words:
        return ""
    cure = ' If they are not rounded, set the resolution to "exact".' if resolution.source == "inferred" else ""
    return f"{capitalise(resolution.words)}.{cure}"


def _of_exact(
    probabilities_NC: npt.NDArray[np.floating], labels_N: npt.NDArray[np.intp], resolution: Resolution
) -> Rounding:
    """Count the classes that were ruled out and happened. If the values may be rounded, give the other NLL too."""
    count = ruled_out(probabilities_NC, labels_N)
    if not count:
        return Rounding(source=resolution.source)
    reading = (
        f"The model ruled out what happened: {plural(count, 'answer')} of {len(labels_N):,} gave the true class"
        f" probability 0. Each counts as {WORST_NLL:.1f} nats in the NLL."
    )
    step = possible_step(probabilities_NC) if resolution.source == "inferred" else None
    if step is None:
        return Rounding(source=resolution.source, ruled_out=count, reading=reading)
    losses = rounded_losses(probabilities_NC, labels_N, step)
    nll, at_least = float(losses.nll_N.mean()), float(losses.least_N.mean())
    coarse = not Resolution(step).has_nll
    if_rounded = "there is no NLL" if coarse else f"the NLL is about {decimal(nll, 4)}, at least {decimal(at_least, 4)}"
    reading += (
        f" But all values are multiples of {step:g}, and every row sums to 1. So they are shares of votes, or rounded."
        f" If they are rounded, {if_rounded}. Say which: {HOW}."
    )
    return Rounding(
        source=resolution.source,
        ruled_out=count,
        possible_step=step,
        nll_if_rounded=None if coarse else nll,
        nll_if_rounded_at_least=None if coarse else at_least,
        reading=reading,
    )
