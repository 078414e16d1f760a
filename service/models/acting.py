"""Decisions of versions with a promise to act alone, and the audit of the answers that act."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from typing_extensions import TypedDict

from trueodds.bundle import ActAlone, Decision
from trueodds.sums.inputs import Array

_PERSON = b"trueodds audit"
"""Keeps the draw apart from other draws by a hash of the same id."""


class Acting(TypedDict, total=False):
    """The keys of an answer that speak of acting alone."""

    decision: Decision
    audit: bool


def is_audited(id_: str, share: float) -> bool:
    """Draw whether an acting answer is audited: with the probability `share`, and always the same for one id."""
    digest = hashlib.blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=8, person=_PERSON).digest()
    return int.from_bytes(digest, "big") < share * 2.0**64


def propensities(
    promise: ActAlone | None,
    share: float,
    confidence_N: Array,
    tags: Sequence[str | None],
    given: Sequence[float | None],
) -> list[float | None]:
    """Give each answer its chance of a label: its caller's, else 1 where it escalates and `share` where it acts.

    A share of 0, or no promise: only the caller's.
    """
    if promise is None or not share:
        return list(given)
    acts = promise.acts(confidence_N, tags).tolist()
    return [(share if acting else 1.0) if own is None else own for acting, own in zip(acts, given, strict=True)]


def acting_of(
    promise: ActAlone, share: float, id_: str, confidence: float, tag: str | None, propensity: float | None
) -> Acting:
    """Say of one stored answer whether it acts, and of one that acts under the audit whether its label is asked for.

    An answer is under the audit where its propensity is the audit's `share`; a caller's own propensity means that the
    caller chooses the labels.
    """
    decision = promise.decision(confidence, tag)
    if decision == "act" and share and propensity == share:
        return {"decision": decision, "audit": is_audited(id_, share)}
    return {"decision": decision}
