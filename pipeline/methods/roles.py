"""Roles of the parts of a method, and the options that all parts of a role have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Role = Literal["primary", "penalty", "labels", "views", "meta", "outer"]
When = Literal["joint", "separate", "interleaved"]
Schedule = Literal["constant", "ramp", "decay"]
WEIGHTING = ("beta", "start", "when", "every", "schedule", "relative")
"""Options that every penalty has besides its own: its weight, and when it acts."""
LOOKING_AHEAD = ("outer", "outer_weight", "lookahead", "rate", "optimizer", "every", "variant")
"""Options that every meta part has besides its own: its outer loss, and how its parameters learn."""
SHARED: Mapping[Role, tuple[str, ...]] = {"penalty": WEIGHTING, "meta": LOOKING_AHEAD}
"""Role -> options that all parts of the role have."""
