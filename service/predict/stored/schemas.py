"""The answers about stored predictions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from service.http.parameters import moment_of
from service.models.acting import Acting, acting_of
from service.store.rows import StoredPrediction, Version
from trueodds.bundle import Decision


class StoredAnswer(BaseModel):
    """What the service answered, and the label that has come since."""

    id: str
    time: datetime
    model: str
    version: str
    tag: str | None
    predicted: str = Field(description="the most probable class")
    confidence: float = Field(description="its calibrated probability")
    label: str | None = Field(description="the true class, as it is known now")
    label_time: datetime | None = Field(
        description="when that label came; null with a label: none came in time, which means it"
    )
    corrected: bool | None = Field(description="whether it has replaced another")
    import_id: str | None = Field(description="the import of the label, by which it can be voided")
    matures: datetime | None = Field(
        None,
        description="when the answer begins to count, with the label that it has then; null: it does, or never waits",
    )
    propensity: float | None = Field(
        description="the chance of getting a label: it came with the input, or is the audit's of answers that act alone"
    )
    decision: Decision | None = Field(None, description="of a version with a promise to act alone")
    audit: bool | None = Field(
        None, description="of an answer that acts, where these are audited: whether its true label is asked for"
    )
    classes: list[str]
    probabilities: list[float] | None = Field(description="of the classes; null: only the confidence is known")


class PredictionDeleted(BaseModel):
    """How much is gone."""

    predictions: int = Field(description="the answer, and what a shadow said about the same input")
    labels: int
    held: int = Field(description="labels that waited for a prediction with this id")


def stored_answer(row: StoredPrediction, version: Version, audit_share: float = 0.0) -> StoredAnswer:
    """A stored row as its answer; `audit_share`: of the answers that act alone."""
    acting = acting_of_row(row, version, audit_share)
    classes = version.classes
    probabilities = None
    if row.logits:
        logits_1C = np.frombuffer(row.logits, "<f4").reshape(1, len(classes))
        probabilities = version.calibrator(logits_1C)[0].tolist()
    return StoredAnswer(
        **columns_of_row(row, version),
        matures=None if row.due_ms is None else moment_of(row.due_ms),
        decision=acting.get("decision"),
        audit=acting.get("audit"),
        classes=list(classes),
        probabilities=probabilities,
    )


def columns_of_row(row: StoredPrediction, version: Version) -> dict[str, Any]:
    """Return what answers and tables say of a stored row, by the names of a table's columns and in their order."""
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
    }


def acting_of_row(row: StoredPrediction, version: Version, audit_share: float) -> Acting:
    """Say of a stored row what its version says of acting alone; nothing without a promise."""
    if version.act_alone is None:
        return {}
    return acting_of(version.act_alone, audit_share, row.id, row.confidence, row.tag, row.propensity)
