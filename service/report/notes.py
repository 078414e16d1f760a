"""Notes of the report that come from the store, in addition to those about its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from service.http.parameters import moment_of
from service.store.queue_rows import QueueCounts
from service.store.rows import HeldLabels, LabelSelection, MaturedCounts, Settlement, Version, Voiding
from trueodds.bundle.contents import shadowed_by
from trueodds.reports.schemas import Held, LabelQueueFigures, Maturing, WeightedFigures
from trueodds.sums.hours import HOUR_MS
from trueodds.sums.maturity import Matures, Maturity
from trueodds.texts import plural


def voiding_note(voidings: list[Voiding]) -> str:
    """Describe the last voiding of a version's labels and its effect on the evidence; "" if there is none."""
    if not voidings:
        return ""
    last, earlier = voidings[-1], len(voidings) - 1
    before = f" Before, labels were voided {plural(earlier, 'time')}." if earlier else ""
    return (
        f"{last.who} voided {plural(last.counts.labels, 'label')} of this version on {_time(last.at_ms)}"
        f" ({_which(last.selection)}): {last.why.rstrip('.')}. Every number uses the remaining labels, and the alarm's"
        " evidence was recomputed from them. Its guarantee holds if the choice of labels did not depend on what they"
        f" say about the model.{before}"
    )


def doubtful_note(doubtful: int, settlements: list[Settlement]) -> str:
    """Return a caution if labels wait to be settled, and a sentence on the last settlement; "" if there is neither."""
    notes = []
    if doubtful:
        notes.append(
            f"{plural(doubtful, 'label')} of this version are in no number here: an integer may have been sent as an"
            " index or as a class name, and an older release read it as an index in JSON and as a name in CSV. Decide"
            " which it was with `trueodds store settle` or POST /admin/labels/settle (decision as_stored, as_names or"
            " void)."
        )
    if settlements:
        last = settlements[-1]
        how = {"as_stored": "confirmed as they were stored", "as_names": "read as names", "void": "voided"}
        notes.append(
            f"{last.who} settled {plural(last.labels, 'label')} that had been doubtful on {_time(last.at_ms)}"
            f" ({how[last.decision]}): {last.why.rstrip('.')}."
        )
    return " ".join(notes)


def queue_figures_of(counts: QueueCounts | None, weighted: Sequence[WeightedFigures]) -> LabelQueueFigures | None:
    """Describe the drawn answers. Skipped ones bound the accuracy, because weights cannot correct for them.

    With s the weighted share of skipped answers among the labelled and skipped ones and a the accuracy of the labelled
    ones, the accuracy of all is between a (1 - s) and a (1 - s) + s. The report's own estimate is a, where it has one:
    an estimate outside its bounds would contradict them.

    Args:
        counts: Drawn answers of the version; None before a draw.
        weighted: The report's weighted figures of all answers; empty for a report of a part of them.
    """
    if counts is None:
        return None
    labelled = counts.right + counts.wrong
    of_labelled = counts.right_weight + counts.wrong_weight
    known = of_labelled + counts.skip_weight
    lowest = highest = None
    if known:
        estimates = [one.accuracy for one in weighted if one.how == "propensity"]
        own = [counts.right_weight / of_labelled] if of_labelled else [0.0]
        lowest = (estimates or own)[0] * of_labelled / known
        highest = lowest + counts.skip_weight / known
    reading = (
        f"Of {plural(counts.sample_size, 'answer')} drawn for labelling, {labelled:,} have a label, {counts.skips:,}"
        f" {'was' if counts.skips == 1 else 'were'} skipped and {counts.waiting:,} wait."
    )
    if counts.maturing:
        reading += f" {plural(counts.maturing, 'label counts', 'labels count')} when their windows close."
    if counts.skips and lowest is not None and highest is not None:
        reading += (
            " Weighted figures hold only if skipping does not depend on whether the answer is right. If all skipped"
            f" answers were wrong, {lowest:.1%} of all answers would be right; if all were right, {highest:.1%}."
        )
    return LabelQueueFigures(
        sample_size=counts.sample_size,
        labelled=labelled,
        skips=counts.skips,
        waiting=counts.waiting,
        maturing=counts.maturing,
        lowest_accuracy=lowest,
        highest_accuracy=highest,
        reading=reading,
    )


def held_of(labels: HeldLabels | None) -> Held | None:
    """Return the report's field on held labels."""
    if labels is None:
        return None
    return Held(labels=labels.count, oldest=moment_of(labels.oldest_ms))


def held_note(labels: HeldLabels | None, now_ms: int) -> str:
    """Return a caution if labels of the model have waited for their predictions for over an hour; else ""."""
    if labels is None or now_ms - labels.oldest_ms < HOUR_MS:
        return ""
    have = "has" if labels.count == 1 else "have"
    return (
        f"{plural(labels.count, 'label')} of this model {have} arrived for ids without a prediction so far, the oldest"
        f" on {_time(labels.oldest_ms)}. Send predictions and labels with the same ids."
    )


def maturing_of(version: Version, counts: MaturedCounts | None, answers: int, matures: Matures) -> Maturing | None:
    """Build the report's field on maturing. `answers` counts all of the version; `matures` is the setting."""
    maturity = version.maturity
    if maturity is None or counts is None:
        return None
    waiting = max(answers - counts.answers, 0)
    verb = "is" if waiting == 1 else "are"
    parts = [
        f"{plural(waiting, 'answer')} of this version {verb} maturing: an answer counts {maturity.window} after it was"
        f" given, with the label that it has by then. A missing label means {_meaning(version, maturity)}.",
        f"{counts.answers:,} have matured, {counts.assumed:,} of them without a label."
        if maturity.unlabelled_means == "ok"
        else f"{counts.answers:,} have matured.",
    ]
    if counts.late:
        parts.append(f"{plural(counts.late, 'label')} arrived after the window.")
    return Maturing(
        window=maturity.window,
        unlabelled_means=maturity.unlabelled_means,
        maturing=waiting,
        matured=counts.answers,
        assumed=counts.assumed,
        after_window=counts.late,
        reading=" ".join([*parts, *filter(None, [window_note(version, matures)])]),
    )


def window_note(version: Version, matures: Matures) -> str:
    """Return a caution if the setting has another window than the version; else ""."""
    begun, now = version.maturity, dict(matures).get(shadowed_by(version.model))
    if begun == now:
        return ""
    new = "none" if now is None else f"{now}"
    kept = "counts labels as they arrive" if begun is None else f"keeps {begun}"
    return (
        f"The setting TRUEODDS_MATURES has changed since this version began (now: {new}). This version {kept}, because"
        " all its evidence must follow one rule. The next version will use the new setting."
    )


def _meaning(version: Version, maturity: Maturity) -> str:
    if maturity.unlabelled_means == "unknown":
        return "nothing"
    if positive := version.positive_class:
        return version.classes[1 - positive.index]
    return "that the answer was right"


def _which(selection: LabelSelection) -> str:
    parts = []
    if selection.import_id is not None:
        parts.append(f"of the import {selection.import_id}")
    if selection.since_ms is not None:
        parts.append(f"that arrived since {_time(selection.since_ms)}")
    if selection.until_ms is not None:
        parts.append(f"that arrived before {_time(selection.until_ms)}")
    return ", ".join(parts)


def _time(ms: int) -> str:
    return f"{moment_of(ms):%Y-%m-%d %H:%M:%S} UTC"
