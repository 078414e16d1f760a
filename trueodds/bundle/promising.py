"""A bundle with a promise to act alone: the same model in a new version."""

from __future__ import annotations

from pathlib import Path

from trueodds.bundle.act_alone import ActAlone
from trueodds.bundle.bundle import Bundle


def with_act_alone(bundle: Bundle, promise: ActAlone | None, out: Path) -> Bundle:
    """Write a bundle to the folder `out` whose card has the promise, or none; all else stays.

    A published version never changes, so a promise makes a new version: its rollback, its evidence and its alarm are
    its own.

    Raises:
        BundleError: the bundle is damaged.
        OSError: `out` cannot be written.
    """
    return Bundle.write(
        out,
        bundle.model_path,
        bundle.calibrator,
        bundle.card.model_copy(update={"act_alone": promise}),
        golden_input=bundle.golden_input()[0],
        golden_logits=bundle.card.golden.logits,
        reference=bundle.card.reference,
    )
