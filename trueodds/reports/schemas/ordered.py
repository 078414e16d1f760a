"""Figures of ordered classes: the ranked probability score, the bias of the level, and each "at least level k"."""

from __future__ import annotations

from pydantic import BaseModel, Field

from trueodds.reports.schemas.labelling import LOWER, UPPER


class AtLeastFigures(BaseModel):
    """Calibration of "at least this level", a binary question. Its probability is that of the level and of those above.

    The numbers are those of a positive class with this probability (`PositiveFigures`).
    """

    name: str = Field(description="name of the level")
    mean_probability: float = Field(description="mean of the labelled answers; should equal the share")
    share: float = Field(description="share of the labels that are this level or a higher one")
    share_lower: float = Field(description="exact binomial (Clopper-Pearson)")
    share_upper: float
    signed_gap: float = Field(description="share - mean probability; negative: the probabilities are too high")
    signed_gap_lower: float = Field(description="see the report's `signed_gap_lower`")
    signed_gap_upper: float
    ece: float = Field(description="plug-in: mean |share - mean probability| over bins")
    ece_lower: float = Field(description=LOWER)
    ece_upper: float = Field(description=UPPER)
    floor_mean: float = Field(description="mean ECE of perfectly calibrated probabilities on as many answers")
    floor_p95: float = Field(description="95th percentile of that ECE")
    p_value: float = Field(description="p-value at one look; null hypothesis: every probability is the true one")
    more_than_chance: bool = Field(
        description="by the p-values of all levels together (Holm): if all are calibrated, any is marked in at most 5%"
        " of looks"
    )


class OrderedFigures(BaseModel):
    """Figures of classes that are levels. Null without labels."""

    levels: list[str] = Field(description="names of the levels, the lowest first")
    rps: float | None = Field(
        None,
        description="ranked probability score: mean of the sum over k of (P(level >= k) - [level >= k])^2, in levels",
    )
    rps_lower: float | None = Field(None, description="with `rps_upper`: limits at `level`, for one look")
    rps_upper: float | None = None
    rps_scale: str = Field(description="scale of `rps`, which is not divided by the number of levels")
    level_bias: float | None = Field(
        None, description="mean of expected level - true level, in levels; above 0: levels are predicted too high"
    )
    level_bias_lower: float | None = Field(
        None, description="valid after every label; in a window or for a table, for one look"
    )
    level_bias_upper: float | None = None
    expected_level: float | None = Field(None, description="mean expected level; the lowest level counts 0")
    observed_level: float | None = Field(None, description="mean true level; the lowest level counts 0")
    at_least: list[AtLeastFigures] = Field(
        default_factory=list, description="one entry per level but the lowest: calibration of `at least this level`"
    )
    reading: str = Field("", description="the figures in plain words")
