"""Recalibration of what is served: live labels -> a new calibrator -> a version beside the served one -> evidence.

The net stays the same file, so the logits that the service has stored score any calibrator exactly. A recalibrated
version is judged beside it without answering, and so may a net be. Labels of answers given later decide, by their
verdict: see `compare` and `judging`. MODELS/<name>/history.jsonl keeps who answered when and why, for the way back.
"""

from pipeline.recalibrate.choice import CandidateScore, Choice, choose, origin_of, write_candidate
from pipeline.recalibrate.comparison import Comparison, Rules, compare
from pipeline.recalibrate.loop import judge, recalibrate
from pipeline.recalibrate.observed import ObservedModel
from pipeline.recalibrate.request import (
    LABELS,
    LEAST_LABELS,
    PROMOTE,
    DisagreementError,
    FewLabelsError,
    Judged,
    Outcome,
    Promote,
    Recalibration,
)
from pipeline.recalibrate.state import check_folder, rehearse

__all__ = [
    "LABELS",
    "LEAST_LABELS",
    "CandidateScore",
    "Choice",
    "Comparison",
    "DisagreementError",
    "PROMOTE",
    "FewLabelsError",
    "Judged",
    "ObservedModel",
    "Outcome",
    "Promote",
    "Recalibration",
    "Rules",
    "check_folder",
    "choose",
    "compare",
    "judge",
    "origin_of",
    "recalibrate",
    "rehearse",
    "write_candidate",
]
