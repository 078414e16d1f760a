"""Live labels for the conformal sets of a recalibrated version: rows apart from those that fit its calibrator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trueodds.bundle import Bundle
from trueodds.calibrators.conformal import SetSettings, rows_apart
from trueodds.client import Client, Labelled
from trueodds.logits import Logits


class DividedLabels(NamedTuple):
    """Live labels that fit the calibrator, and those that give the thresholds of its sets."""

    fitting: Logits
    sets: Logits | None
    """None if the served version has no sets, or if the labels are no random sample of the answers."""


def settings_of_sets(served: Bundle) -> SetSettings | None:
    """Return the settings of the served version's sets; None if it has none."""
    if served.card.sets is None:
        return None
    rules = served.card.sets.rules
    levels = tuple(rule.level for rule in rules)
    return SetSettings(method=rules[0].method, levels=levels, confidence=rules[0].confidence)


def divide(served: Bundle, labelled: Labelled, *, are_chosen: bool = False, by_tag: bool = False) -> DividedLabels:
    """Divide live labels at random into halves, if the served version has sets that can be fitted again.

    `are_chosen` says that the labelled answers differ from all answers in their confidence; see `labels_are_chosen`.
    `by_tag` keeps the tags as the rows' groups.
    """
    groups_N = labelled.tags_N if by_tag else None
    rows, settings = Logits(labelled.logits_NC, labelled.labels_N, groups_N), settings_of_sets(served)
    if settings is None or are_chosen or has_different_chances(labelled):
        return DividedLabels(rows, None)
    return DividedLabels(*rows_apart(rows, settings))


def has_different_chances(labelled: Labelled) -> bool:
    """Return whether the labelled answers had different propensities, so that they are no random sample."""
    if labelled.propensities_N is None:
        return False
    return len(np.unique(np.nan_to_num(labelled.propensities_N, nan=-1.0))) > 1


def labels_are_chosen(client: Client, name: str, version: str) -> bool:
    """Ask the service whether the labelled answers of a model's version differ from all in their confidence.

    Raises:
        CallError: The service does not answer, or refuses.
    """
    choice = client.report(model=name, version=version).labelling.choice
    return choice is not None and choice.warning
