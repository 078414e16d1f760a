"""Settings of conformal sets: in params.yaml, in `trueodds import` and in `trueodds calibrate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from trueodds.calibrators.conformal.rule import Level
from trueodds.errors import ConfigError, nearest
from trueodds.processes.choices import SET_LEVEL, SET_METHODS, SetMethod


class SetSettings(BaseModel):
    """Settings of conformal sets.

    Examples:
        >>> conformal.SetSettings.of("lac", {"levels": [0.9, 0.95]}).levels
        (0.9, 0.95)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: SetMethod
    levels: tuple[Level, ...] = Field((SET_LEVEL,), min_length=1, max_length=10)
    """Levels in the card, which the report watches. raps chooses its penalty at the first."""
    confidence: Level | None = None
    """Share of calibrations in which the coverage reaches the level; None: it does on average over calibrations."""
    share: Level = 0.5
    """Share of the validation rows that gives the thresholds. The others fit the calibrator."""
    seed: int = Field(0, ge=0)
    """Seed of the split of the rows."""

    @field_validator("levels")
    @classmethod
    def _once(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(levels)) < len(levels):
            raise ValueError("a level occurs twice")
        return levels

    @classmethod
    def of(cls, method: str, options: Mapping[str, Any] | None = None, source: str = "conformal") -> Self:
        """Read settings from a method's name and options.

        Raises:
            ConfigError: A name or option is unknown, or a value is not allowed.
        """
        given = {"method": method, **(options or {})}
        for key in options or {}:
            if key not in cls.model_fields or key == "method":
                names = [name for name in cls.model_fields if name != "method"]
                raise ConfigError(f"{source} has the option {key!r}; allowed: {', '.join(names)}.{nearest(key, names)}")
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            where = first["loc"][0]
            hint = (
                f" Allowed: {', '.join(SET_METHODS)}.{nearest(str(method), SET_METHODS)}" if where == "method" else ""
            )
            raise ConfigError(f"{source}: {where} = {first['input']!r}: {first['msg']}.{hint}") from None
