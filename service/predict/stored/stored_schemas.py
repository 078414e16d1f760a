"""Answers of the routes of stored predictions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from service.http.parameters import moment_of
from service.models.acting import Acting, acting_of
from service.store.rows import StoredPrediction, Version
from trueodds.bundle import Decision
from trueodds.inputs.sources import ConfidenceSource


class StoredAnswer(BaseModel):
    """Stored prediction with its current label."""

    id: str
    time: datetime
    model: str
    version: str
    tag: str | None
    predicted: str = Field(description="Most probable class.")
    confidence: float = Field(description="Calibrated probability of that class.")
    label: str | None = Field(description="True class, as currently known.")
    label_time: datetime | None = Field(
        description="Time at which the label arrived. Null although there is a label: the maturity window closed"
        " without one, and the model's default label applies."
    )
    corrected: bool | None = Field(description="Whether the label has replaced another one.")
    import_id: str | None = Field(description="Import of the label, which you can void.")
    matures: datetime | None = Field(
        None,
        description="Time from which the answer counts, with the label that it then has. Null: it counts already.",
    )
    propensity: float | None = Field(
        description="Chance of getting a label: sent with the input, or the audit share of answers that act alone."
    )
    confidence_source: ConfidenceSource | None = Field(None, description="Source of the confidence, if it is known.")
    judge_label: str | None = Field(None, description="Label of a judge, which counts nowhere as a human one.")
    set: list[str] | None = Field(
        None,
        description="Conformal set that another server gave with the answer, in the order of the classes. It may be"
        " empty. Null: the answer has none.",
    )
    decision: Decision | None = Field(None, description="Present for a version with a promise to act alone.")
    audit: bool | None = Field(
        None, description="For an audited answer with decision `act`: whether its true label is requested."
    )
    group: str | None = Field(
        None,
        description="Tag whose calibration the answer has. Left out: that of all answers.",
        exclude_if=lambda value: value is None,
    )
    classes: list[str]
    probabilities: list[float] | None = Field(description="One per class. Null if only the confidence is known.")
    input: Any = Field(
        None,
        description="Input of a decision model, if the service keeps inputs (`--keep-inputs`).",
        exclude_if=lambda value: value is None,
    )


class PredictionDeleted(BaseModel):
    """Counts of the deleted rows."""

    predictions: int = Field(description="The answer, and a shadow's answer to the same input.")
    labels: int
    held: int = Field(description="Labels that were waiting for a prediction with this id.")


def stored_answer(row: StoredPrediction, version: Version, audit_share: float = 0.0) -> StoredAnswer:
    """Convert a stored row to its answer. `audit_share` is the audited share of the answers that act alone."""
    acting = acting_of_row(row, version, audit_share)
    classes = version.classes
    probabilities = None
    if row.logits:
        logits_1C = np.frombuffer(row.logits, "<f4").reshape(1, len(classes))
        probabilities = version.calibrator(logits_1C, groups=[row.tag])[0].tolist()
    return StoredAnswer(
        **columns_of_row(row, version),
        matures=None if row.due_ms is None else moment_of(row.due_ms),
        decision=acting.get("decision"),
        audit=acting.get("audit"),
        set=set_of_row(row, version),
        group=None if row.tag is None else version.calibrator.groups_of([row.tag])[0],
        classes=list(classes),
        probabilities=probabilities,
    )


def columns_of_row(row: StoredPrediction, version: Version) -> dict[str, Any]:
    """Return the values of a stored row by the names of a table's columns, in the table's order."""
    classes = version.classes
    return {
        "id": row.id,
        "time": moment_of(row.created_ms),
        "model": row.model,
        "version": row.version,
        "tag": row.tag,
        "predicted": classes[row.predicted],
        "confidence": row.confidence,
        "label": None if row.label is None else classes[row.label],
        "label_time": None if row.labelled_ms is None else moment_of(row.labelled_ms),
        "corrected": row.corrected,
        "import_id": row.import_id,
        "propensity": row.propensity,
        "confidence_source": row.confidence_source,
        "judge_label": None if row.judge_label is None else classes[row.judge_label],
    }


def set_of_row(row: StoredPrediction, version: Version) -> list[str] | None:
    """Return the conformal set that another server gave with a stored answer. None: it has none."""
    return None if row.members is None else version.unpacked_set(row.members)


def acting_of_row(row: StoredPrediction, version: Version, audit_share: float) -> Acting:
    """Return decision and audit of a stored row; an empty dict if its version has no promise."""
    if version.act_alone is None:
        return {}
    return acting_of(version.act_alone, audit_share, row.id, row.confidence, row.tag, row.propensity)
