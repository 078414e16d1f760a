"""Choices and defaults of options, and roles of versions. Help texts show them, so this module imports no package."""

from __future__ import annotations

from typing import Literal, get_args

TOLERANCE = 0.02
"""Largest acceptable calibration error (ECE) if no alarm names its own."""
MOST_RATIO = 1.2
"""Largest acceptable expected / observed positives, or observed / expected, if no alarm names its own."""
ALERT_THRESHOLD = 0.5
"""p(positive) above which an alert is given, if no setting names another."""
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Thresholds of p(positive) in a table of alerts."""
SMALLEST_PROPENSITY = 0.05
"""Smallest propensity of a label that counts; labels with a smaller one are left out."""
LABEL = "label"
"""Column of the labels in a table."""
TABLES = (
    "an .npz with probabilities (or logits) and labels, or with confidence and correct; a .csv or .parquet table with a"
    " column for each class, with its name, and one for the labels, or with confidence, predicted and label; or an .npy"
    " of probabilities together with --labels"
)
"""Allowed forms of a table, for messages."""
SERVICE, URL = "TRUEODDS_SERVICE", "http://127.0.0.1:8000"
"""Environment variable with the URL of the service that commands use, and its default."""
MODELS = "TRUEODDS_MODELS"
"""Environment variable with the folder or bucket of the published models."""
ADMIN_KEY, ADMIN_KEY_FILE = "TRUEODDS_ADMIN_KEY", "TRUEODDS_ADMIN_KEY_FILE"
"""Environment variables with the admin key, and with the path of a file that holds it."""
ADMIN_KEY_HASH = "TRUEODDS_ADMIN_KEY_HASH"
"""Environment variable with the hash of the admin key, for the service."""
Binning = Literal["width", "mass"]
"""Bins of equal width, or of equal mass: each has about the same number of answers."""
ReportBy = Literal["class", "tag", "confidence_source"]
"""Groups of a report's additional table."""
TrendUnit = Literal["minute", "hour", "day", "month", "auto"]
"""Unit of a report's trend. auto: the finest one with at most 120 points."""
ActingBy = Literal["question", "tag", "class"]
"""Groups that each have their own threshold for acting alone."""

DEFAULT: Literal["default"] = "default"
"""Role of the version that answers requests."""
SHADOW: Literal["shadow"] = "shadow"
"""Role of a net that is scored on the same inputs without answering."""
RECALIBRATED: Literal["recalibrated"] = "recalibrated"
"""Role of a calibrator that is applied to the served net's logits without answering."""
WAITING: Literal["waiting"] = "waiting"
"""Role of the net that becomes the shadow when that place is free."""

Role = Literal["default", "shadow", "recalibrated", "waiting"]
"""Role of a version.

default: it answers. shadow: a net under judgement. recalibrated: a calibrator for the served net, under judgement.
waiting: the net that becomes the shadow when that place is free.
"""
ROLES: tuple[Role, ...] = get_args(Role)
Slot = Literal["shadow", "recalibrated"]
"""Roles that are judged beside the served version."""
SLOTS: tuple[Slot, ...] = get_args(Slot)
"""The roles of `Slot`."""

SetMethod = Literal["lac", "aps", "raps", "class"]
SET_METHODS: dict[SetMethod, str] = {
    "lac": "all classes whose probability is at least one threshold: the smallest sets on average",
    "aps": "the most probable classes until their sum reaches a threshold, with a random last one",
    "raps": "aps with a penalty for many classes, which makes large sets smaller",
    "class": "lac with a threshold for each class, so that each class is covered",
}
"""Methods of conformal sets, with what each one does."""
SET_LEVEL = 0.9
"""Default level of conformal sets: the share of them that hold the true class."""

LabelGoal = Literal["ece", "threshold", "group", "plain"]
LABEL_GOALS: dict[LabelGoal, str] = {
    "ece": "the calibration error of all answers",
    "threshold": "the share of wrong answers among those that act alone, from --threshold on",
    "group": "the calibration of the tags that may be the worst by the labels so far (without any: of every tag equally"
    " well), or of one tag",
    "plain": "no particular figure: every answer has the same chance",
}
"""Goals of a sample of answers to label, with the figure that each one makes precise."""
MOST_NAMED = 5
"""Number of tags that a draw names as possibly the worst."""
LABEL_FLOOR = 0.5
"""Smallest propensity of an answer, as a share of that in a plain sample of the same size."""
SamplingMethod = Literal["systematic", "poisson"]
SAMPLING_METHODS: tuple[SamplingMethod, ...] = get_args(SamplingMethod)
"""Methods of drawing a sample with given propensities."""
