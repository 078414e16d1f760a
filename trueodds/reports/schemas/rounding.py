"""Part of a report on the resolution of its probabilities, and on classes that came true with probability 0."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Rounding(BaseModel):
    """Resolution of a table's probabilities, and its zeros for classes that came true."""

    step: float | None = Field(None, description="step of rounded probabilities, such as 0.01; null: read as exact")
    source: Literal["given", "inferred"] = Field(
        "inferred", description="whether the user gave the resolution, or the rows themselves decided"
    )
    zeros: int = Field(0, description="labelled answers whose true class has a rounded 0: below half a step")
    zeros_read_as: float | None = Field(None, description="geometric mean of the readings of these zeros in the NLL")
    nll_at_least: float | None = Field(
        None, description="lower bound of the NLL: no probabilities that round to these have less"
    )
    ruled_out: int = Field(
        0, description="labelled answers whose true class has probability 0 at full resolution: a sure, wrong answer"
    )
    possible_step: float | None = Field(
        None, description="if some are ruled out: step of which all values are multiples although every row sums to 1"
    )
    nll_if_rounded: float | None = Field(None, description="NLL if the values were rounded to `possible_step`")
    nll_if_rounded_at_least: float | None = Field(None, description="lower bound of that NLL")
    reading: str = Field("", description="what was assumed, and what follows, in plain words")
