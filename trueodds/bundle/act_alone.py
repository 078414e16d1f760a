"""The promise of a version that acts alone: from which confidence on, and how often it is wrong there at most."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trueodds.errors import ConfigError
from trueodds.files import read_json
from trueodds.sums.inputs import Array
from trueodds.texts import short

Decision = Literal["act", "escalate"]
Confidence = Annotated[float, Field(ge=0, le=1)]
EXAMPLE = "threshold=.93,risk=.05,confidence=.95"
UNTAGGED, UNTAGGED_GROUP = "", "(no tag)"
"""Answers without a tag: among the thresholds of tags, and among the groups of `trueodds threshold --by tag`."""
STATED = ("threshold", "risk", "confidence")
"""The parts of a promise that a text states."""
_COUNTS = ("labels", "acted", "wrong", "share", "share_lower", "share_upper")
_BESIDE = (
    *("answers", "loss", "reason", "more_labels", "tried", "tried_wrong", "group", "groups"),
    *("by", "costs", "made_from", "made_at"),
)
"""Other keys that `trueodds threshold` writes."""


class ActAlone(BaseModel):
    """A promise: of the answers with at least the threshold's confidence, at most the share `risk` is wrong.

    It belongs to one version, and never changes. The counts are its evidence, from `trueodds threshold`.

    >>> promise = trueodds.bundle.ActAlone.of_text("threshold=.93,risk=.05,confidence=.95")
    >>> promise.decision(0.95), promise.decision(0.9)
    ('act', 'escalate')
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold: Confidence | None
    """The answer acts from this confidence on; None: it never acts, unless `tags` has a threshold for it."""
    risk: float = Field(gt=0, lt=1)
    """The largest share of wrong answers among those that act."""
    confidence: float = Field(gt=0, lt=1)
    """The probability, over the labels of the choice, that the promise holds."""
    labels: int | None = Field(None, ge=0)
    """Labelled answers that the threshold was chosen on; None: not stated."""
    acted: int | None = Field(None, ge=0)
    """Those of them at or above the threshold."""
    wrong: int | None = Field(None, ge=0)
    """Wrong ones among these."""
    share: float | None = Field(None, ge=0, le=1)
    """Share of all answers there, labelled or not, that would have acted, with its interval."""
    share_lower: float | None = Field(None, ge=0, le=1)
    share_upper: float | None = Field(None, ge=0, le=1)
    tags: dict[str, Confidence | None] = Field(default_factory=dict)
    """Thresholds of tags in place of `threshold`, under "" that of answers without a tag; None: they never act."""

    @model_validator(mode="after")
    def _acts_somewhere(self) -> Self:
        if self.threshold is None and all(threshold is None for threshold in self.tags.values()):
            raise ValueError(
                "no threshold is certified, so nothing could act; label more answers or accept a larger risk"
            )
        if self.wrong is not None and not self.wrong <= (self.acted or 0) <= (self.labels or 0):
            raise ValueError(f"wrong {self.wrong}, acted {self.acted}, labels {self.labels} must rise in this order")
        return self

    @classmethod
    def read(cls, given: str) -> Self:
        """Read what `--act-alone` takes: a file that `trueodds threshold --out FILE` wrote, or a text.

        Raises:
            ConfigError: neither a promise nor a file that holds one.
        """
        return cls.of_text(given) if "=" in given and not Path(given).exists() else cls.of_file(Path(given))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Read a promise such as `threshold=.93,risk=.05,confidence=.95`.

        Raises:
            ConfigError: another form, a part that is missing or given twice, or a number out of range.
        """
        parts: dict[str, str] = {}
        for part in filter(None, re.split(r"[,\s]+", text.strip())):
            name, equals, value = part.partition("=")
            if not equals or name not in STATED or name in parts:
                raise ConfigError(f"the promise {short(text)} has the part {short(part)}; expected {EXAMPLE}")
            parts[name] = value
        if missing := [name for name in STATED if name not in parts]:
            raise ConfigError(f"the promise {short(text)} lacks {' and '.join(missing)}; expected {EXAMPLE}")
        return cls._of(parts, f"the promise {short(text)}")

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Read the JSON that `trueodds threshold --out FILE` wrote.

        Groups become thresholds of tags only where the file says that they are tags (`"by": "tag"`).

        Raises:
            ConfigError: no such file, another form, or no threshold that is certified.
        """
        try:
            tree = read_json(path)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--act-alone {path} cannot be read ({error}); name a file that `trueodds threshold --out FILE` wrote,"
                f" or say {EXAMPLE}"
            ) from None
        return cls.of_tree(tree, str(path))

    @classmethod
    def of_tree(cls, tree: Any, what: str = "the promise") -> Self:
        """Read the keys of a promise from a tree that may have others too.

        Raises:
            ConfigError: a key that is missing, or a value out of range.
        """
        if not isinstance(tree, Mapping) or (missing := [name for name in STATED if name not in tree]):
            costs = isinstance(tree, Mapping) and "mean_cost" in tree
            if costs:
                raise ConfigError(f"{what} bounds a mean cost; a promise bounds errors: choose it without --costs")
            lacks = "is no object" if not isinstance(tree, Mapping) else f"lacks {' and '.join(missing)}"
            raise ConfigError(
                f"{what} {lacks}; expected threshold, risk and confidence, as `trueodds threshold` writes"
            )
        if strange := [name for name in tree if name not in (*STATED, *_COUNTS, *_BESIDE, "tags")]:
            raise ConfigError(
                f"{what} has the key {short(strange[0])}, which is unknown; allowed are threshold, risk, confidence and"
                " tags, and what `trueodds threshold` of this release writes"
            )
        kept = {name: tree[name] for name in (*STATED, *_COUNTS) if tree.get(name) is not None}
        tags = tree.get("tags") or {}
        if by := tree.get("by"):
            if by != "tag":
                cure = "choose it without --by"
                if by == "question":
                    cure += ", or send each answer's question as its tag and choose it with --by tag"
                raise ConfigError(
                    f"{what} has thresholds by {by}; allowed are one of all answers, and those by tag: {cure}"
                )
            try:
                groups = {row["group"]: row["threshold"] for row in tree["groups"]}
            except (LookupError, TypeError):
                raise ConfigError(
                    f"{what} is by tag, and its groups have no names or thresholds; make it anew"
                ) from None
            tags = {UNTAGGED if name == UNTAGGED_GROUP else name: threshold for name, threshold in groups.items()}
        return cls._of({"threshold": None, **kept, "tags": tags}, what)

    @classmethod
    def _of(cls, parts: Mapping[str, Any], what: str) -> Self:
        try:
            return cls.model_validate(parts)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(f"{what}: {f'{where}: ' if where else ''}{first['msg']}; expected {EXAMPLE}") from None

    def decision(self, confidence: float, tag: str | None = None) -> Decision:
        """Decide on one answer by its confidence and its tag."""
        threshold = self.tags.get(tag or UNTAGGED, self.threshold)
        return "act" if threshold is not None and confidence >= threshold else "escalate"

    def acts(self, confidence_N: Array, tags_N: Sequence[str | None] | None = None) -> npt.NDArray[np.bool_]:
        """Say of each answer whether it acts, as `decision` does."""
        threshold = np.inf if self.threshold is None else self.threshold
        if not self.tags or tags_N is None:
            acts_N: npt.NDArray[np.bool_] = confidence_N >= threshold
            return acts_N
        by_tag = self._by_tag
        return confidence_N >= np.array([by_tag.get(tag or UNTAGGED, threshold) for tag in tags_N], np.float64)

    @cached_property
    def _by_tag(self) -> dict[str, float]:
        return {tag: np.inf if threshold is None else threshold for tag, threshold in self.tags.items()}

    def states_as(self, other: Self) -> bool:
        """Whether the other states the same thresholds, risk and confidence, whatever either rests on."""
        return all(getattr(self, name) == getattr(other, name) for name in (*STATED, "tags"))

    @property
    def short(self) -> str:
        """The promise in a few words."""
        where = "by thresholds of tags" if self.threshold is None else f"from {self.threshold:.6g} on"
        return f"acts alone {where} (at most {100 * self.risk:.3g}% wrong)"

    @property
    def words(self) -> str:
        """The promise in one sentence."""
        where = "" if self.threshold is None else f" from a confidence of {self.threshold:.6g} on"
        tags = " by thresholds of their tags" if self.tags and self.threshold is None else ""
        and_tags = " (some tags have thresholds of their own)" if self.tags and self.threshold is not None else ""
        return (
            f"Answers act alone{where}{tags}{and_tags}: at most {100 * self.risk:.3g}% of them are wrong, with"
            f" {100 * self.confidence:.4g}% confidence."
        )

    @property
    def evidence(self) -> str:
        """Name the evidence of the promise in one sentence."""
        if self.labels is None or self.acted is None or self.wrong is None:
            return "It was stated by hand: what it rests on, this version does not know."
        share = ""
        if self.share is not None:
            share = f" {100 * self.share:.3g}% of all answers acted"
            if self.share_lower is not None and self.share_upper is not None:
                share += f" (interval {100 * self.share_lower:.3g}% to {100 * self.share_upper:.3g}%)"
            share += "."
        return (
            f"It was chosen on {self.labels:,} labelled answers: {self.acted:,} of them acted, {self.wrong:,} of these"
            f" were wrong.{share}"
        )
