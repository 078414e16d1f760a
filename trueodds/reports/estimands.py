"""Estimands: the quantity that each number of a report estimates, in one plain sentence each."""

from __future__ import annotations

from trueodds.reports.options import ReportOptions
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import CELLS

_PLAIN = {
    "error_rate": "the share of answers that are wrong",
    "accuracy": "the share of answers that are right; the limits are the exact binomial ones (Clopper-Pearson)",
    "mean_confidence": "the mean probability that the model gives to its own answer",
    "signed_gap": "accuracy minus mean confidence",
    "ece": "the mean distance between confidence and accuracy over the bins, as measured; chance makes it too large",
    "ece_estimate": "the ECE of the population in the same bins; if few bins are off, more often too high than too low",
    "ece_lower": "with ece_upper, limits of the population's ECE in the same bins, for one look at this many labels;"
    " the confidence level holds for both limits together, not for one alone",
    "ece_upper": "with ece_lower, limits of the population's ECE in the same bins, for one look at this many labels;"
    " the confidence level holds for both limits together, not for one alone",
    "floor_mean": "the ECE that a perfectly calibrated model would show on average on the same number of answers",
    "floor_p95": "the ECE that a perfectly calibrated model exceeds in 5% of such samples, in fewer with few errors",
    "smooth_ece": "the distance from calibration without bins, at the resolution that balances noise and detail",
    "mce": "the largest gap of a bin, as measured; with few answers in that bin it is mostly chance",
    "ks": "the largest cumulative gap over the answers up to some confidence, as a share of all answers",
    "ks_p_value": "the probability that a perfectly calibrated model shows a ks this large",
    "nll": "the mean of -log(probability of the true class), in nats; its limits allow for errors not seen yet",
    "rounding": "how the model's probabilities are read: their step, and their zeros for classes that came true",
    "brier": "the mean squared error of all class probabilities, 0 to 2; its limits are like those of nll",
    "bins.accuracy": "the share of right answers in a bin; the limits are exact binomial ones",
    "labelling.weighted": "the same figures for ALL answers, if getting a label depends only on the weighting quantity",
    "labelling.expected_accuracy": "the accuracy on the answers without a label, if they are calibrated",
    "labelling.sensitivity": "the figures for ALL answers, if wrong answers were labelled more often",
}


OF_POSITIVE = {
    "positive": "the same quantities for p(positive) over all of [0, 1], with the share of positive labels instead of"
    " the accuracy",
    "positive.ratio": "expected positives by p(positive) over observed positives; its limits are exact, for one look"
    " at this many labels",
}


OF_ORDERED = {
    "ordered.rps": "the mean squared error of the probabilities of `at least level k`, summed over k, in levels; its"
    " limits are for one look",
    "ordered.level_bias": "the mean of the expected level minus the true level, in levels",
    "ordered.at_least": "the quantities of p(positive), for the probability of this level or a higher one",
}


def estimands(
    sums: AnswerSums, options: ReportOptions, *, positive: bool = False, ordered: bool = False
) -> dict[str, str]:
    """Return the estimand of each number by its name.

    The entry "population" says which answers the numbers are about.

    Args:
        sums: Sums of the answers.
        options: Window and cells of the report.
        positive: Add the estimands of the figures of p(positive).
        ordered: Add the estimands of the figures of ordered classes.
    """
    window = options.window
    population = f"all answers {window.words}".strip()
    if window.last is not None:
        population = f"answers like the {sums.labelled.n:,} whose labels arrived last"
    condition = ""
    if sums.labelled.n < sums.answers:
        condition = f", if the {sums.labelled.n:,} labelled ones are a random sample of them (see labelling)"
    limits = "are valid after every label, unless labels are corrected"
    if options.one_look or not window.is_everything:
        limits = "are exact binomial ones, for one look at this many labels"
    gap = f"{_PLAIN['signed_gap']}; its limits {limits}"
    grid = f"; smooth_ece and ks use only {options.cells} cells of confidence" if options.cells < CELLS else ""
    test = {
        "calibration_p_value": "the probability that a perfectly calibrated model shows gaps this large, at one look"
    }
    return {
        "population": f"{population}{condition}{grid}",
        **_PLAIN,
        "signed_gap": gap,
        **(test if options.one_look else {}),
        **(OF_POSITIVE if positive else {}),
        **(OF_ORDERED if ordered else {}),
    }
