"""Decisions of versions with a promise to act alone, and the audit of answers that act."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from typing_extensions import TypedDict

from trueodds.bundle import ActAlone, Decision
from trueodds.sums.inputs import Array

_PERSON = b"trueodds audit"
"""Personalisation of the hash, which keeps this draw independent of other draws with the same id."""


class Acting(TypedDict, total=False):
    """Keys of an answer about acting alone."""

    decision: Decision
    audit: bool


def is_audited(id_: str, share: float) -> bool:
    """Draw whether an acting answer is audited, with probability `share`. The result is always the same for an id."""
    digest = hashlib.blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=8, person=_PERSON).digest()
    return int.from_bytes(digest, "big") < share * 2.0**64


def propensities(
    promise: ActAlone | None,
    share: float,
    confidence_N: Array,
    tags: Sequence[str | None],
    own_propensities: Sequence[float | None],
) -> list[float | None]:
    """Return each answer's probability of getting a label.

    It is the caller's own if given, else 1 for an answer that escalates and `share` for one that acts. With a share of
    0, or without a promise, it is only the caller's.
    """
    if promise is None or not share:
        return list(own_propensities)
    acts = promise.acts(confidence_N, tags).tolist()
    return [
        (share if acting else 1.0) if own is None else own for acting, own in zip(acts, own_propensities, strict=True)
    ]


def acting_of(
    promise: ActAlone, share: float, id_: str, confidence: float, tag: str | None, propensity: float | None
) -> Acting:
    """Return whether a stored answer acts and, for an audited one, whether its label is requested.

    An answer is under the audit if its propensity equals the audit's `share`. A caller's own propensity means that the
    caller chooses the labels.
    """
    decision = promise.decision(confidence, tag)
    if decision == "act" and share and propensity == share:
        return {"decision": decision, "audit": is_audited(id_, share)}
    return {"decision": decision}
