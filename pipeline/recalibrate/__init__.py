"""Recalibration of what is served: live labels -> a new calibrator -> a version beside the served one -> evidence.

The net stays the same file, so the logits that the service has stored score any calibrator exactly. A recalibrated
version is published without answering, as the model's shadow. Labels of answers given later are the evidence for a
person, who promotes it or does not: see `compare`. MODELS/<name>/history.jsonl keeps who answered when and why, for the
way back.
"""

from pipeline.recalibrate.choice import CandidateScore, Choice, choose, origin_of, write_candidate
from pipeline.recalibrate.client import UNDECIDED, AnswerError, AwayError, Client, Labelled, client_of
from pipeline.recalibrate.comparison import Comparison, Rules, compare
from pipeline.recalibrate.loop import judge, recalibrate
from pipeline.recalibrate.observed import ObservedModel
from pipeline.recalibrate.request import LABELS, LEAST_LABELS, FewLabelsError, Outcome, Recalibration
from pipeline.recalibrate.state import check_folder, rehearse

__all__ = [
    "LABELS",
    "LEAST_LABELS",
    "UNDECIDED",
    "AnswerError",
    "AwayError",
    "CandidateScore",
    "Choice",
    "Client",
    "Comparison",
    "FewLabelsError",
    "Labelled",
    "ObservedModel",
    "Outcome",
    "Recalibration",
    "Rules",
    "check_folder",
    "choose",
    "client_of",
    "compare",
    "judge",
    "origin_of",
    "recalibrate",
    "rehearse",
    "write_candidate",
]
