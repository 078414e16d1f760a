"""The promise of a version that acts alone: a confidence threshold, and a bound on the errors above it."""

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
from trueodds.texts import promise_text, short

Decision = Literal["act", "escalate"]
"""Decision on one answer: it acts alone, or a person decides."""
Confidence = Annotated[float, Field(ge=0, le=1)]
EXAMPLE = "threshold=.93,risk=.05,confidence=.95"
"""Example of a promise, for messages."""
UNTAGGED, UNTAGGED_GROUP = "", "(no tag)"
"""Names of answers without a tag: among thresholds of tags, and among groups of `trueodds threshold --by tag`."""
STATED = ("threshold", "risk", "confidence")
"""Required parts of a promise."""
_COUNTS = ("labels", "acted", "wrong", "share", "share_lower", "share_upper")
"""Optional parts of a promise: the evidence that `trueodds threshold` found."""
_BESIDE = (
    *("answers", "loss", "reason", "more_labels", "tried", "tried_wrong", "group", "groups"),
    *("by", "costs", "made_from", "made_at"),
)
"""Other keys that `trueodds threshold` writes."""


class ActAlone(BaseModel):
    """Promise of a version: of the answers with at least the threshold's confidence, at most the share `risk` is wrong.

    It belongs to one version and never changes. The counts are its evidence, from `trueodds threshold`.

    Examples:
        >>> promise = trueodds.bundle.ActAlone.of_text("threshold=.93,risk=.05,confidence=.95")
        >>> promise.decision(0.95), promise.decision(0.9)
        ('act', 'escalate')
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold: Confidence | None
    """Confidence from which on an answer acts. None: it never acts, unless `tags` has a threshold for it."""
    risk: float = Field(gt=0, lt=1)
    """Largest share of wrong answers among those that act."""
    confidence: float = Field(gt=0, lt=1)
    """Probability, over the labels that the threshold was chosen on, that the promise holds."""
    labels: int | None = Field(None, ge=0)
    """Number of labelled answers that the threshold was chosen on. None: not stated."""
    acted: int | None = Field(None, ge=0)
    """Number of these answers at or above the threshold."""
    wrong: int | None = Field(None, ge=0)
    """Number of wrong answers at or above the threshold."""
    share: float | None = Field(None, ge=0, le=1)
    """Share of all answers, labelled or not, that would have acted."""
    share_lower: float | None = Field(None, ge=0, le=1)
    """Lower end of the share's interval."""
    share_upper: float | None = Field(None, ge=0, le=1)
    """Upper end of the share's interval."""
    tags: dict[str, Confidence | None] = Field(default_factory=dict)
    """Thresholds of tags, which replace `threshold`. "" stands for answers without a tag. None: answers never act."""

    @model_validator(mode="after")
    def _acts_somewhere(self) -> Self:
        if self.threshold is None and all(threshold is None for threshold in self.tags.values()):
            raise ValueError(
                "no threshold is certified, so no answer could act; label more answers or accept a larger risk"
            )
        if self.wrong is not None and not self.wrong <= (self.acted or 0) <= (self.labels or 0):
            raise ValueError(
                f"wrong {self.wrong}, acted {self.acted}, labels {self.labels} must increase in this order"
            )
        return self

    @classmethod
    def read(cls, source: str) -> Self:
        """Read the value of `--act-alone`: a file that `trueodds threshold --out FILE` wrote, or a text.

        Raises:
            ConfigError: The value is neither a promise nor a file that holds one.
        """
        return cls.of_text(source) if "=" in source and not Path(source).exists() else cls.of_file(Path(source))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Parse a promise such as `threshold=.93,risk=.05,confidence=.95`.

        Raises:
            ConfigError: The text has another form, a part is missing or given twice, or a number is out of range.
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

        Groups become thresholds of tags only if the file says that they are tags (`"by": "tag"`).

        Raises:
            ConfigError: There is no such file, it has another form, or no threshold is certified.
        """
        try:
            tree = read_json(path)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--act-alone {path} cannot be read ({error}); give a file that `trueodds threshold --out FILE` wrote,"
                f" or say {EXAMPLE}"
            ) from None
        return cls.of_tree(tree, str(path))

    @classmethod
    def of_tree(cls, tree: Any, source: str = "the promise") -> Self:
        """Read the keys of a promise from a parsed JSON object, which may have other keys too.

        Raises:
            ConfigError: A key is missing, or a value is out of range.
        """
        if not isinstance(tree, Mapping) or (missing := [name for name in STATED if name not in tree]):
            costs = isinstance(tree, Mapping) and "mean_cost" in tree
            if costs:
                raise ConfigError(
                    f"{source} bounds a mean cost, but a promise bounds the share of errors; choose the threshold"
                    " without --costs"
                )
            lacks = "is not an object" if not isinstance(tree, Mapping) else f"lacks {' and '.join(missing)}"
            raise ConfigError(
                f"{source} {lacks}; expected threshold, risk and confidence, as `trueodds threshold` writes"
            )
        if strange := [name for name in tree if name not in (*STATED, *_COUNTS, *_BESIDE, "tags")]:
            raise ConfigError(
                f"{source} has the key {short(strange[0])}, which is unknown; allowed are threshold, risk, confidence"
                " and tags, and what `trueodds threshold` of this release writes"
            )
        kept = {name: tree[name] for name in (*STATED, *_COUNTS) if tree.get(name) is not None}
        tags = tree.get("tags") or {}
        if by := tree.get("by"):
            if by != "tag":
                cure = "choose it without --by"
                if by == "question":
                    cure += ", or send each answer's question as its tag and choose it with --by tag"
                raise ConfigError(
                    f"{source} has thresholds by {by}; allowed are one threshold for all answers, or one for each tag;"
                    f" {cure}"
                )
            try:
                groups = {row["group"]: row["threshold"] for row in tree["groups"]}
            except (LookupError, TypeError):
                raise ConfigError(
                    f"{source} is by tag, and its groups have no names or thresholds; run `trueodds threshold` again"
                ) from None
            tags = {UNTAGGED if name == UNTAGGED_GROUP else name: threshold for name, threshold in groups.items()}
        return cls._of({"threshold": None, **kept, "tags": tags}, source)

    @classmethod
    def _of(cls, parts: Mapping[str, Any], source: str) -> Self:
        """Validate the parts of a promise.

        Raises:
            ConfigError: A part is not valid.
        """
        try:
            return cls.model_validate(parts)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(f"{source}: {f'{where}: ' if where else ''}{first['msg']}; expected {EXAMPLE}") from None

    def decision(self, confidence: float, tag: str | None = None) -> Decision:
        """Return the decision on one answer by its confidence and its tag."""
        threshold = self.tags.get(tag or UNTAGGED, self.threshold)
        return "act" if threshold is not None and confidence >= threshold else "escalate"

    def acts(self, confidence_N: Array, tags_N: Sequence[str | None] | None = None) -> npt.NDArray[np.bool_]:
        """Return whether each answer acts, as `decision` does."""
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
        """Return whether the other promise has the same thresholds, risk and confidence, whatever the evidence."""
        return all(getattr(self, name) == getattr(other, name) for name in (*STATED, "tags"))

    @property
    def short(self) -> str:
        """The promise in a few words."""
        return promise_text(self.threshold, self.risk)

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
            return "It was stated by hand, without evidence."
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
