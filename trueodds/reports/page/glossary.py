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
    Term("", "Confidence", "The probability that the model gives to its predicted class."),
    Term("", "Calibrated", "90% of the answers with 90% confidence are right, and the same holds at every percentage."),
    Term("accuracy", "Accuracy", "The share of labelled answers that are right."),
    Term("mean_confidence", "Mean confidence", "The model's average confidence. It should equal the accuracy."),
    Term("signed_gap", "Gap", "Accuracy minus mean confidence. Below zero, the model is over-confident."),
    Term(
        "ece",
        "ECE",
        "Expected calibration error. Answers are grouped into ranges of confidence. The distance between confidence and"
        " accuracy in each range is averaged over all answers. 0 is perfect, 0.05 is five points off.",
    ),
    Term(
        "ece_estimate",
        "Best estimate",
        "The ECE without the part that chance adds. If few ranges are off, it is more often too high than too low.",
    ),
    Term("ece_lower", "Interval", "Contains the true ECE with the confidence level, at one look."),
    Term(
        "floor_mean",
        "Noise floor",
        "The ECE that a perfectly calibrated model shows on the same number of labels, by chance alone.",
    ),
    Term(
        "",
        "More than chance",
        "For rows of versions, tags or classes: p is the chance that a perfectly calibrated model shows an ECE this"
        " large on the same number of labels. Rows are marked together (Benjamini-Hochberg): on average at most 5% of"
        " the marked rows are calibrated. If all rows are calibrated, any is marked in at most 1 look in 20.",
    ),
    Term("smooth_ece", "Smooth ECE", "The ECE without ranges: neighbouring confidences are averaged smoothly."),
    Term(
        "mce",
        "Worst range (MCE)",
        "The largest distance in a single range. With few labels in the range it means little.",
    ),
    Term(
        "ks",
        "KS",
        "The largest cumulative difference of confidence and accuracy, from the lowest confidence on, without ranges.",
    ),
    Term("nll", "NLL", "Negative log-likelihood of the true class, in nats. Smaller is better."),
    Term("brier", "Brier score", "Squared error of all probabilities, 0 to 2. Smaller is better."),
    Term(
        "",
        "Evidence",
        "An e-value. A model whose error on the labelled answers stays within the tolerance at every label reaches 20"
        " or more in at most 1 of 20 cases, at any number of looks. So the alarm may check after every label. The"
        " evidence is about all answers only if it is weighted by their propensities.",
    ),
    Term("coverage", "Coverage", "The share of answers whose true label is known by now."),
    Term("labelling.weighted", "Weighted", "Labelled answers counted so that together they look like all answers."),
    Term(
        "labelling.expected_accuracy",
        "Expected accuracy",
        "The accuracy of the answers without a label, if they are calibrated.",
    ),
    Term("labelling.sensitivity", "What if", "The figures if wrong answers got labels more often than right ones."),
    Term("population", "All answers", "The answers that the numbers are about, labelled or not."),
    Term("", "Shadow", "A version that is scored on the same inputs, whose answers nobody gets."),
)

OF_POSITIVE = Term(
    "positive",
    "p(positive)",
    "The probability of the positive one of two classes. Its figures over all of 0 to 100% show errors that cancel in"
    " the confidence: if p is too high everywhere, the model is over-confident above one half, under-confident below.",
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
