"""Glossary of the page's terms."""

from __future__ import annotations

from dataclasses import dataclass

from trueodds.reports.schemas import Report


@dataclass(frozen=True)
class Term:
    """A term, its meaning, and the estimand of its number."""

    key: str
    """Field of the report whose estimand belongs to the term."""
    name: str
    text: str
    estimand: str = ""


TERMS = (
    Term("", "Confidence", "The probability that the model gives to the class it answers."),
    Term("", "Calibrated", "Of the answers given with 90% confidence 90% are right, and so at every percentage."),
    Term("accuracy", "Accuracy", "The share of labelled answers that are right."),
    Term("mean_confidence", "Mean confidence", "What the model says on average; it should equal the accuracy."),
    Term("signed_gap", "Gap", "Accuracy minus mean confidence. Below zero the model claims more than it keeps."),
    Term(
        "ece",
        "ECE",
        "Expected calibration error: answers are put into ranges of confidence, and the distance between what is"
        " claimed and what is kept in each range is averaged over all answers. 0 is perfect, 0.05 is five points off.",
    ),
    Term(
        "ece_estimate",
        "Best estimate",
        "The ECE without the part that chance adds. Where the error lies in few ranges, it is more often too large than"
        " too small.",
    ),
    Term("ece_lower", "Interval", "Where the true ECE lies, as often as the level says, if one looks once."),
    Term(
        "floor_mean",
        "Noise floor",
        "The ECE that a perfectly calibrated model shows on as many labels, by chance alone.",
    ),
    Term(
        "",
        "More than chance",
        "Of versions, tags or classes beside each other: p is the chance that a perfectly calibrated model shows an ECE"
        " as large on as many labels. Rows are marked together (Benjamini-Hochberg): of many marked rows 5% at most are"
        " calibrated, and where all are, any is marked at 1 look in 20 at most.",
    ),
    Term("smooth_ece", "Smooth ECE", "The same idea without ranges: neighbouring confidences are averaged smoothly."),
    Term("mce", "Worst range (MCE)", "The largest distance of a single range. With few labels in it, it says little."),
    Term(
        "ks", "KS", "The largest distance between claimed and kept, summed up from the lowest confidence on; no ranges."
    ),
    Term("nll", "NLL", "Negative log-likelihood: the surprise at the true class, in nats. Smaller is better."),
    Term("brier", "Brier score", "Squared error of all probabilities, 0 to 2. Smaller is better."),
    Term(
        "",
        "Evidence",
        "An e-value. A model whose error, in the answers that get labels, is within the tolerance at every label"
        " reaches 20 or more in at most 1 of 20 cases, however often one looks: that is why the alarm may watch after"
        " every label. It speaks of all answers only where it is weighted by the propensities that came with them.",
    ),
    Term("coverage", "Coverage", "The share of answers whose true label is known by now."),
    Term("labelling.weighted", "Weighted", "Labelled answers counted so that together they look like all answers."),
    Term("labelling.expected_accuracy", "Expected accuracy", "What the confidences of unlabelled answers promise."),
    Term("labelling.sensitivity", "What if", "What would be true if wrong answers got their labels more often."),
    Term("population", "All answers", "What the numbers want to speak of, labelled or not."),
    Term("", "Shadow", "A version that is scored on the same inputs without being answered."),
)

OF_POSITIVE = Term(
    "positive",
    "p(positive)",
    "The probability of the one of two classes that the model is asked about. Over all of 0 to 100% errors show that"
    " cancel in the confidence: a p that is too high everywhere is too sure above one half, not sure enough below it.",
)
OF_A_SERVER = ("Evidence", "Shadow")
"""Terms that the report of a table does not use."""
ESTIMANDS_ELSEWHERE = ("error_rate", "ece_upper", "floor_p95", "ks_p_value", "calibration_p_value", "bins.accuracy")
"""Estimands of numbers that the page shows beside another number."""


def glossary(report: Report) -> list[Term]:
    """Return the terms with the estimand of each number. Estimands without a term follow at the end."""
    left = {key: text for key, text in report.estimands.items() if key not in ESTIMANDS_ELSEWHERE}
    every = TERMS if report.positive is None else (OF_POSITIVE, *TERMS)
    known = [term for term in every if not (report.one_look and term.name in OF_A_SERVER)]
    terms = [Term(term.key, term.name, term.text, left.pop(term.key, "")) for term in known]
    return terms + [Term(key, key.replace("_", " "), "", text) for key, text in left.items()]
