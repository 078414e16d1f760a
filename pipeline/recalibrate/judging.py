"""Judges the versions beside the served one: the evidence about each, and the decision that it allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pipeline.choices import SLOT_WORDS
from pipeline.recalibrate.candidate_comparison import CandidateComparison, compare
from pipeline.recalibrate.candidate_numbers import candidate_number
from pipeline.recalibrate.label_comparison import compare_labels
from pipeline.recalibrate.model_state import JudgedVersion, ModelState
from pipeline.recalibrate.request import Decision, DisagreementError, Judgement, Recalibration
from trueodds.bundle import DEFAULT, RECALIBRATED, SHADOW, Bundle, BundleError, LabelBundle, Slot
from trueodds.client import Client, Labelled
from trueodds.client.label_truths import LabelTruths
from trueodds.errors import UserError
from trueodds.texts import quotes

Call = Callable[..., Any]
"""Function that calls a step: call(function, *arguments). A flow makes the step a task."""


def directly(step: Callable[..., Any], *arguments: Any) -> Any:
    """Call a step directly."""
    return step(*arguments)


OPTIONS: dict[Slot, str] = {SHADOW: "--promote-net", RECALIBRATED: "--promote"}


def fetch_labels(
    client: Client,
    name: str,
    served: Bundle,
    last: int | None,
    since_ms: int | None = None,
    shadow: str | None = None,
) -> Labelled:
    """Fetch the labelled answers of the served version; with `shadow`, only those that this version scored as well.

    Raises:
        DisagreementError: The answers have another number of classes than the version's card.
        CallError: The service does not answer, or refuses.
    """
    since = None if since_ms is None else datetime.fromtimestamp(since_ms / 1000, UTC)
    rows = client.labelled(name, served.version, last=last, since=since, shadow=shadow)
    classes = len(served.card.classes)
    if len(rows) and rows.logits_NC.shape[1] != classes:
        raise DisagreementError(
            f"the service's labels of {name}/{served.version} have {rows.logits_NC.shape[1]} classes, but its card in"
            f" {served.directory} has {classes}; give the service's own model directory: --models"
        )
    return rows


def fetch_truths(
    client: Client, name: str, served: LabelBundle, last: int | None, since_ms: int | None = None
) -> LabelTruths:
    """Fetch the labelled answers of the served version of a model of independent labels.

    Raises:
        DisagreementError: The answers have other labels than the version's card.
        CallError: The service does not answer, or refuses.
    """
    since = None if since_ms is None else datetime.fromtimestamp(since_ms / 1000, UTC)
    rows = client.label_truths(name, served.version, last=last, since=since)
    if len(rows) and rows.labels != tuple(served.card.classes):
        raise DisagreementError(
            f"the service's answers of {name}/{served.version} have the labels {quotes(rows.labels)}, but its card in"
            f" {served.directory} has {quotes(served.card.classes)}; give the service's own model directory: --models"
        )
    return rows


def evidence_about(
    request: Recalibration, state: ModelState, candidate: JudgedVersion, call: Call = directly
) -> Judgement:
    """Return the evidence about a version under judgement until now, without deciding.

    A version with the served net is compared on all labels of the served version, by the logits that both share.
    Another net is compared on the answers that the service scored with both. Only answers count that were given after
    the candidate entered its slot and after the served version took over.

    Raises:
        BundleError: Its inputs or classes are not those of the served version, or its calibrator is for another net.
        CallError: The service does not answer, or refuses.
        DisagreementError: The answers have another number of classes than the version's card.
    """
    name, served, bundle = state.name, state.served, candidate.bundle
    cure = f"end its judgement: {end_command(name, candidate.slot)}"
    if (bundle.card.input, bundle.card.classes) != (served.card.input, served.card.classes):
        raise BundleError(
            f"{name}/{bundle.version} takes other inputs or has other classes than {served.version}, so it cannot be"
            f" judged beside it; {cure}"
        )
    paired = bundle.version if state.has_another_net(bundle) else None
    if paired and candidate.slot == RECALIBRATED:
        raise BundleError(f"{name}/{paired} has another net than {served.version} and cannot recalibrate it; {cure}")
    rules = replace(request.rules, candidate=candidate_number(request.models.changes(name), bundle.version))
    if isinstance(served, LabelBundle) or isinstance(bundle, LabelBundle):
        if paired or not (isinstance(served, LabelBundle) and isinstance(bundle, LabelBundle)):
            raise BundleError(
                f"{name}/{bundle.version} has another net than {served.version}; independent labels are judged"
                f" beside its own net only; {cure}"
            )
        began_ms = time.time_ns() // 1_000_000  # a label that comes during the download must not find its answer closed
        truths: LabelTruths = call(fetch_truths, request.client, name, served, None, candidate.since_ms)
        now_ms = began_ms + truths.ahead_ms
        found: CandidateComparison = call(compare_labels, served.calibrator, bundle.calibrator, truths, rules, now_ms)
        return Judgement(candidate.slot, bundle.version, found)
    rows: Labelled = call(fetch_labels, request.client, name, served, None, candidate.since_ms, paired)
    both = (served.calibrator, bundle.calibrator)
    comparison: CandidateComparison = call(
        compare, *both, rows.logits_NC, rows.labels_N, rows.shadow_logits_NC, rules, rows.propensities_N, rows.tags_N
    )
    return Judgement(candidate.slot, bundle.version, comparison)


def settle(request: Recalibration, state: ModelState, judgement: Judgement, call: Call) -> Judgement:
    """Do what the verdict and the request's `promote` for the slot allow, and log the evidence as the reason.

    If somebody has changed the roles in the meantime, nothing is done.
    """
    models, name, slot, version = request.models, state.name, judgement.slot, judgement.version
    served, verdict, promote = state.served.version, judgement.comparison.verdict, request.promote_of(slot)
    decision: Decision = "stays"
    if promote == "now" or (promote == "when-better" and verdict == "better"):
        decision = "promoted"
    elif promote == "when-better" and verdict == "worse":
        decision = "withdrawn"
    why, evidence = request.reason(judgement.comparison.evidence()), judgement.comparison.words()
    if decision == "promoted":
        why += ends(request, state, call, but=slot)  # done first, because the service may take a while to answer
    if (models.version_of(name, DEFAULT), models.version_of(name, slot)) != (served, version):
        words = f"{name}/{version} is no longer {SLOT_WORDS[slot]} beside {served}: somebody else decided."
        return replace(judgement, decision="gone", words=words)
    if decision == "promoted":
        models.promote(name, version, why=why, who=request.who, beside=served)
        words = f"{name}/{version} answers now. {evidence}"
    elif decision == "withdrawn":
        models.withdraw(name, slot, why=why, who=request.who)
        words = f"{name}/{version} was withdrawn. {evidence}"
    else:
        stays = f"{name}/{version} stays {SLOT_WORDS[slot]}. {evidence} {_rule(request, slot)}"
        words = f"{stays} {commands(name, slot, version)}"
    if decision != "stays" and slot == SHADOW and (follower := models.version_of(name, SHADOW)) is not None:
        words += f" {name}/{follower}, which waited, is the shadow now."
    return replace(judgement, decision=decision, words=words)


def judge_slot(request: Recalibration, slot: Slot, call: Call) -> Judgement | None:
    """Judge the version in a slot and decide; None if the slot is empty. Raises like `evidence_about`."""
    state = ModelState.of(request)
    if (candidate := state.candidates.get(slot)) is None:
        return None
    return settle(request, state, evidence_about(request, state, candidate, call), call)


def ends(request: Recalibration, state: ModelState, call: Call, but: Slot | None = None) -> str:
    """Return the evidence that ends when another version is served, for all slots `but` one, for the audit log.

    This evidence compares with the version served until now, and starts again. "" without any.
    """
    parts = []
    for slot, candidate in state.candidates.items():
        if slot == but:
            continue
        try:
            evidence = evidence_about(request, state, candidate, call).comparison.evidence()
        except UserError as error:
            evidence = f"unknown ({error})"
        parts.append(f"; ends the evidence about {candidate.bundle.version}: {evidence}")
    return "".join(parts)


def commands(name: str, slot: Slot, version: str) -> str:
    """Return the commands that promote a version or end its judgement, in words."""
    return f"Promote it: trueodds promote {name} {version}. End it: {end_command(name, slot)}"


def end_command(name: str, slot: Slot) -> str:
    """Return the command that empties a slot."""
    return f"trueodds shadow {name} none{'' if slot == SHADOW else f' --slot {slot}'}"


def _rule(request: Recalibration, slot: Slot) -> str:
    """Return who decides about a slot, and when."""
    if request.promote_of(slot) == "when-better":
        return "The verdict better promotes it, worse withdraws it."
    return f"A person decides ({OPTIONS[slot]} when-better lets the verdict decide)."
