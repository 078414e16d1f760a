"""Models that another server serves. Nothing is published; a calibrator is written to a file for that server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.recalibrate.calibrator_choice import CalibratorChoice, choose
from pipeline.recalibrate.candidate_comparison import CandidateComparison, compare
from pipeline.recalibrate.candidate_numbers import pair_number
from pipeline.recalibrate.prior_shift import correction, read_shares
from pipeline.recalibrate.request import FewLabelsError, Judgement, NoTagsError, Recalibration, RecalibrationOutcome
from trueodds.bundle import SHADOW
from trueodds.bundle.contents import shadow_of
from trueodds.calibrators import Calibrator, Identity
from trueodds.client import Client, Labelled
from trueodds.errors import ConfigError, unknown
from trueodds.files import FileError, write_json
from trueodds.sums.rounding import Resolution

POLL_SECONDS = 2.0
"""Seconds between two looks of a wait for a verdict."""
Call = Callable[..., Any]
"""Function that calls a step: call(function, *arguments). A flow makes the step a task."""


@dataclass(frozen=True)
class RemoteModel:
    """A model whose answers another server sends to the service."""

    name: str
    versions: tuple[str, ...]
    """Versions in the order of their first answers."""
    shadows: tuple[str, ...]
    """Versions whose would-be answers are sent as a shadow, in the same order."""

    @classmethod
    def of(cls, request: Recalibration) -> RemoteModel | None:
        """Return the requested model if another server serves it, otherwise None.

        A version that both servers have counts as the service's.

        Raises:
            CallError: The service does not answer, or is not TrueOdds.
        """
        if request.model is None:
            return None
        listing = request.client.versions()
        versions = listing.observed.get(request.model, ())
        is_published = request.model in {one.model for one in listing.models}
        if not versions or (is_published and request.version not in versions):
            return None
        return cls(request.model, versions, listing.observed.get(shadow_of(request.model), ()))

    def version(self, name: str | None) -> str:
        """Return the named version, or the newest without a name.

        Raises:
            ConfigError: There is no version of that name.
        """
        return _named_or_newest(self.name, "version", name, self.versions)

    def check(self, request: Recalibration, *, waits: bool) -> None:
        """Check that the request has no option that changes what the other server serves, or that has no effect.

        Args:
            request: The request.
            waits: Whether there is a verdict to wait for.

        Raises:
            ConfigError: It promotes or displaces a version, or waits for a verdict where none will come.
        """
        given = [
            option
            for option, is_given in {
                f"promote={request.promote}": request.promote not in (None, "never"),
                f"promote_net={request.promote_net}": request.promote_net != "never",
                "displace": request.displace,
            }.items()
            if is_given
        ]
        if given:
            raise ConfigError(
                f"{' and '.join(given)} given; allowed only for a model of this service. Another server serves"
                f" {self.name}, so nothing can be promoted or displaced here: leave it out, and load the calibrator or"
                " the better version on that server"
            )
        if request.wait_seconds and not waits:
            raise ConfigError(
                f"wait={request.wait_seconds:g} given; allowed only where there is a verdict to wait for. Another"
                f" server serves {self.name}, so its calibrator is written to a file and not judged here: leave it out"
            )

    def shadow(self, name: str | None) -> str:
        """Return the named shadow, or the newest without a name.

        Raises:
            ConfigError: The model has no shadow, or none of that name.
        """
        if not self.shadows:
            cure = "send the answers that another version would give, with the same ids: POST /observe?shadow=true"
            raise ConfigError(f"{self.name} has no shadow to judge; {cure}")
        return _named_or_newest(self.name, "shadow", name, self.shadows)


def recalibrate(request: Recalibration, model: RemoteModel, call: Call) -> RecalibrationOutcome:
    """Fit a calibrator on the live labels of a version, and write it to the request's file if it is better.

    Raises:
        FewLabelsError: There are fewer than 200 labels.
        NoTagsError: `request.groups` is "tag", and no labelled answer has a tag.
        CallError: The service does not answer or refuses, or stores only the predicted classes of its answers.
        ConfigError: A candidate is unknown.
        FitError: No candidate can be fitted.
    """
    version = model.version(request.version)
    rows: Labelled = call(fetch_labels, request.client, model.name, version, request.labels)
    FewLabelsError.check(len(rows), f"{model.name}/{version}")
    if request.groups:
        NoTagsError.check(rows, f"{model.name}/{version}")
    settings, positive, ordered, groups_N = None, None, False, rows.tags_N if request.groups else None
    how = request.candidates, settings, positive, ordered, rows.resolution, groups_N
    fit = Identity(), rows.logits_NC, rows.labels_N, *how
    choice: CalibratorChoice = call(choose, *fit)
    if not choice.better:
        words = f"Nothing written: {choice.rows:,} labels do not distinguish the best candidate from the answers as is."
        return RecalibrationOutcome("kept", model.name, version, None, words, choice)
    words = f"{choice.best.name}: NLL {choice.gain:.4f} nats a label lower (cross-validated)."
    words += _save(request.out, model.name, choice.calibrator, rows.resolution)
    return RecalibrationOutcome("fitted", model.name, version, None, words, choice)


def correct(request: Recalibration, model: RemoteModel, call: Call) -> RecalibrationOutcome:
    """Write a correction for the class shares of answers without labels to the request's file, if they have changed.

    Raises:
        NoClassSharesError: The class shares are not known, refused, or withdrawn by labels.
        CallError: The service does not answer, or refuses.
    """
    version = model.version(request.version)
    _, shares = call(read_shares, request, model.name, version, False)
    if not shares.changed_classes:
        return RecalibrationOutcome("kept", model.name, version, None, f"Nothing written: {shares.reading}")
    calibrator = correction([one.name for one in shares.classes], Identity(), shares)
    rows: Labelled = call(fetch_labels, request.client, model.name, version, 1)
    words = f"{shares.reading}{_save(request.out, model.name, calibrator, rows.resolution)}"
    return RecalibrationOutcome("fitted", model.name, version, None, words)


def judge(request: Recalibration, model: RemoteModel, call: Call) -> RecalibrationOutcome:
    """Compare a shadow with the served version on all labels of answers that both gave.

    The evidence is valid if the shadow was made without these labels. With `wait_seconds`, an undecided comparison is
    repeated until there is a verdict or the time is over.

    Raises:
        CallError: The service does not answer, or refuses.
        ConfigError: An unknown version or shadow, no shadow, or a slot for a calibrator.
    """
    end = time.monotonic() + request.wait_seconds
    outcome = _judge(request, model, call)
    while outcome.is_undecided and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, POLL_SECONDS))
        outcome = _judge(request, model, call)
    return outcome


def _judge(request: Recalibration, model: RemoteModel, call: Call) -> RecalibrationOutcome:
    """Compare a shadow with the served version once."""
    if request.slot not in (None, SHADOW):
        raise ConfigError(f"slot is {request.slot!r}; {model.name} is served elsewhere and only has a shadow")
    version, shadow = model.version(request.version), model.shadow(request.shadow)
    rows: Labelled = call(fetch_labels, request.client, model.name, version, None, shadow)
    same = Identity()
    number = pair_number(model.versions.index(version), model.shadows.index(shadow))
    rules = replace(request.rules, candidate=number)
    comparison: CandidateComparison = call(
        compare, same, same, rows.logits_NC, rows.labels_N, rows.shadow_logits_NC, rules, rows.propensities_N
    )
    words = (
        f"{model.name}/{shadow} beside {version}. {comparison.words()} Nothing changes here: promote or withdraw it on"
        f" the server of {model.name}."
    )
    return RecalibrationOutcome(
        "waits", model.name, version, shadow, words, judgements=(Judgement(SHADOW, shadow, comparison),)
    )


def fetch_labels(client: Client, name: str, version: str, last: int | None, shadow: str | None = None) -> Labelled:
    """Fetch the labelled answers of a version; with `shadow`, only those that the shadow answered as well."""
    return client.labelled(name, version, last=last, shadow=shadow)


def _named_or_newest(model: str, what: str, name: str | None, names: tuple[str, ...]) -> str:
    """Return the named version, or the newest without a name."""
    if name is not None and name not in names:
        raise unknown(f"{what} of {model}", name, names)
    return name or names[-1]


def _save(out: Path | None, model: str, calibrator: Calibrator, resolution: Resolution) -> str:
    """Write a calibrator to a file, if there is one, and return the words that say how to apply it."""
    if out is None:
        return ""
    try:
        write_json(out, calibrator.to_json())
    except OSError as error:
        raise FileError(f"{out} cannot be written: {error.strerror}; give another file: --out") from None
    words = (
        f" {out} holds it; on the server of {model}, load it with calibrators.from_json and apply it to logits (for"
        f" probabilities: trueodds.logits_of{_with(resolution)})."
    )
    if calibrator.known_groups:
        words += " Give it the tags of the rows: calibrator(logits, groups=tags)."
    return words


def _with(resolution: Resolution) -> str:
    """Return the words that name a step; "" if the probabilities are exact."""
    return f" with resolution={resolution.step:g}" if resolution.step is not None else ""
