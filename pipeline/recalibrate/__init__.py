"""Recalibration of a served model: fit a calibrator on live labels, publish it beside the served version, judge it.

The net stays the same, so the logits that the service has stored score any calibrator exactly. A recalibrated version
is judged beside the served version without being served, and so may another net be. Labels of later answers decide by a
verdict; see `compare` and `judging`. MODELS/<name>/history.jsonl records every change of the served version with its
reason.
"""

from typing import TYPE_CHECKING

from trueodds.processes.lazy import at_first_use

if TYPE_CHECKING:
    from pipeline.recalibrate.calibrator_choice import (
        CalibratorChoice,
        CandidateScore,
        choose,
        origin_of,
        write_candidate,
    )
    from pipeline.recalibrate.candidate_comparison import CandidateComparison, Rules, compare
    from pipeline.recalibrate.judgement_loop import judge, recalibrate
    from pipeline.recalibrate.label_choice import LabelChoice
    from pipeline.recalibrate.model_state import check_folder, rehearse
    from pipeline.recalibrate.observed import RemoteModel
    from pipeline.recalibrate.request import (
        LEAST_LABELS,
        DisagreementError,
        FewLabelsError,
        Judgement,
        NoClassSharesError,
        Recalibration,
        RecalibrationOutcome,
    )
else:
    __getattr__ = at_first_use(
        __name__,
        {
            "pipeline.recalibrate.calibrator_choice": "CalibratorChoice CandidateScore choose origin_of"
            " write_candidate",
            "pipeline.recalibrate.candidate_comparison": "CandidateComparison Rules compare",
            "pipeline.recalibrate.judgement_loop": "judge recalibrate",
            "pipeline.recalibrate.label_choice": "LabelChoice",
            "pipeline.recalibrate.model_state": "check_folder rehearse",
            "pipeline.recalibrate.observed": "RemoteModel",
            "pipeline.recalibrate.request": "LEAST_LABELS DisagreementError FewLabelsError Judgement"
            " NoClassSharesError Recalibration RecalibrationOutcome",
        },
    )

__all__ = [
    "LEAST_LABELS",
    "CandidateScore",
    "CalibratorChoice",
    "CandidateComparison",
    "DisagreementError",
    "FewLabelsError",
    "NoClassSharesError",
    "Judgement",
    "LabelChoice",
    "RemoteModel",
    "RecalibrationOutcome",
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
