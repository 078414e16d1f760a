"""Figures of one of several independent labels."""

from __future__ import annotations

from pydantic import BaseModel, Field

from trueodds.reports.schemas.labelling import LOWER, UPPER


class LabelFigures(BaseModel):
    """Figures of one yes/no label, over the rows whose truth is known. Null if there are none.

    Each interval is at the report's level for this label alone.
    """

    name: str
    labelled: int = Field(description="rows whose truth is known")
    positives: int = Field(description="rows of them in which the label is true")
    prevalence: float | None = Field(None, description="share of these rows")
    prevalence_lower: float | None = Field(None, description="exact binomial (Clopper-Pearson)")
    prevalence_upper: float | None = None
    mean_probability: float | None = Field(None, description="should equal the prevalence")
    signed_gap: float | None = Field(None, description="prevalence - mean probability; negative: p is too high")
    nll: float | None = Field(None, description="log loss in nats; null also if the probabilities are too coarse")
    nll_lower: float | None = None
    nll_upper: float | None = None
    brier: float | None = Field(None, description="mean of (p - [label is true])^2, 0 to 1")
    brier_lower: float | None = None
    brier_upper: float | None = None
    ece: float | None = Field(None, description="plug-in: mean |share of true labels - mean probability| over bins")
    ece_estimate: float | None = Field(None, description="ECE without the part that chance adds")
    ece_lower: float | None = Field(None, description=LOWER)
    ece_upper: float | None = Field(None, description=UPPER)
    floor_mean: float | None = Field(None, description="mean ECE of a calibrated label on the same rows")
    floor_p95: float | None = Field(None, description="95th percentile of that ECE")
    p_value: float | None = Field(None, description="probability of such an ECE if the label is calibrated")
    more_than_chance: bool = Field(
        False,
        description="whether the label is off by more than chance: Holm's procedure on the p-values of all labels, 5%",
    )
