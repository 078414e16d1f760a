"""The versions under judgement beside the served one, the evidence about each, and the decision that it allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pipeline.recalibrate.comparison import Comparison, compare
from pipeline.recalibrate.request import Decision, DisagreementError, Judged, Recalibration
from pipeline.recalibrate.state import Candidate, ModelState
from pipeline.recalibrate.turns import candidate_number
from trueodds.bundle import DEFAULT, RECALIBRATED, SHADOW, Bundle, BundleError, Slot
from trueodds.client import Client, Labelled
from trueodds.errors import UserError

Call = Callable[..., Any]
"""Calls a step: call(function, *arguments). A flow makes it a task."""


def directly(step: Callable[..., Any], *arguments: Any) -> Any:
    """Call a step as it is."""
    return step(*arguments)


SLOT_WORDS: dict[Slot, str] = {SHADOW: "the shadow", RECALIBRATED: "the recalibrated version"}
OPTIONS: dict[Slot, str] = {SHADOW: "--promote-net", RECALIBRATED: "--promote"}


def fetch_labels(
    client: Client,
    name: str,
    served: Bundle,
    last: int | None,
    since_ms: int | None = None,
    shadow: str | None = None,
) -> Labelled:
    """The labelled answers of the served version; with `shadow`, those that this version has scored as well.

    Raises:
        DisagreementError: they are of another number of classes than its card names.
        CallError: as `Client.labelled`.
    """
    since = None if since_ms is None else datetime.fromtimestamp(since_ms / 1000, UTC)
    rows = client.labelled(name, served.version, last=last, since=since, shadow=shadow)
    classes = len(served.card.classes)
    if len(rows) and rows.logits_NC.shape[1] != classes:
        raise DisagreementError(
            f"the service's labels of {name}/{served.version} are of {rows.logits_NC.shape[1]} classes, its card in"
            f" {served.directory} names {classes}: not the same model; is --models the service's own folder?"
        )
    return rows


def evidence_about(request: Recalibration, state: ModelState, candidate: Candidate, call: Call = directly) -> Judged:
    """The evidence about a version under judgement until now; nothing is decided.

    A version with the served net is compared on all labels of what answers, by the logits that both share; another net
    on those answers that the service has scored with both. Only answers given since the candidate was fixed, and since
    the served version began to answer, count.

    Raises:
        BundleError: its inputs or classes are not those of the served version, or its calibrator is of another net.
        CallError, DisagreementError: as `fetch_labels`.
    """
    name, served, bundle = state.name, state.served, candidate.bundle
    cure = f"end that: {end_command(name, candidate.slot)}"
    if (bundle.card.input, bundle.card.classes) != (served.card.input, served.card.classes):
        raise BundleError(
            f"{name}/{bundle.version} takes other inputs or has other classes than {served.version}, so it cannot be"
            f" judged beside it; {cure}"
        )
    paired = bundle.version if state.has_another_net(bundle) else None
    if paired and candidate.slot == RECALIBRATED:
        raise BundleError(f"{name}/{paired} is no recalibration of {served.version}: it has another net; {cure}")
    rows: Labelled = call(fetch_labels, request.client, name, served, None, candidate.since_ms, paired)
    rules = replace(request.rules, candidate=candidate_number(request.models.changes(name), bundle.version))
    both = (served.calibrator, bundle.calibrator)
    comparison: Comparison = call(
        compare, *both, rows.logits_NC, rows.labels_N, rows.shadow_logits_NC, rules, rows.propensities_N
    )
    return Judged(candidate.slot, bundle.version, comparison)


def settle(request: Recalibration, state: ModelState, judged: Judged, call: Call) -> Judged:
    """Do what the verdict and the request's `promote` of the slot allow, with the evidence as the audit log's reason.

    Nothing is done where somebody has changed the roles since.
    """
    models, name, slot, version = request.models, state.name, judged.slot, judged.version
    served, verdict, promote = state.served.version, judged.comparison.verdict, request.promote_of(slot)
    decision: Decision = "stays"
    if promote == "now" or (promote == "when-better" and verdict == "better"):
        decision = "promoted"
    elif promote == "when-better" and verdict == "worse":
        decision = "withdrawn"
    why, evidence = request.reason(judged.comparison.evidence()), judged.comparison.words()
    if decision == "promoted":
        why += ends(request, state, call, but=slot)  # asks the service, which takes its time
    if (models.version_of(name, DEFAULT), models.version_of(name, slot)) != (served, version):
        words = f"{name}/{version} is no longer {SLOT_WORDS[slot]} beside {served}: somebody else decided."
        return replace(judged, decision="gone", words=words)
    if decision == "promoted":
        models.promote(name, version, why=why, who=request.who, beside=served)
        words = f"{name}/{version} answers now. {evidence}"
    elif decision == "withdrawn":
        models.withdraw(name, slot, why=why, who=request.who)
        words = f"{name}/{version} is withdrawn. {evidence}"
    else:
        stays = f"{name}/{version} stays {SLOT_WORDS[slot]}. {evidence} {_rule(request, slot)}"
        words = f"{stays} {commands(name, slot, version)}"
    if decision != "stays" and slot == SHADOW and (follower := models.version_of(name, SHADOW)) is not None:
        words += f" {name}/{follower}, which waited, is the shadow now."
    return replace(judged, decision=decision, words=words)


def judge_slot(request: Recalibration, slot: Slot, call: Call) -> Judged | None:
    """Judge the version in a slot as it is now, and decide; None without one. Raises as `evidence_about`."""
    state = ModelState.of(request)
    if (candidate := state.candidates.get(slot)) is None:
        return None
    return settle(request, state, evidence_about(request, state, candidate, call), call)


def ends(request: Recalibration, state: ModelState, call: Call, but: Slot | None = None) -> str:
    """The evidence that ends when another version answers, of all slots `but` one, for the audit log; "" without any.

    It is of the version that has answered until now, and begins anew.
    """
    parts = []
    for slot, candidate in state.candidates.items():
        if slot == but:
            continue
        try:
            evidence = evidence_about(request, state, candidate, call).comparison.evidence()
        except UserError as error:
            evidence = f"not known ({error})"
        parts.append(f"; ends the evidence about {candidate.bundle.version}: {evidence}")
    return "".join(parts)


def commands(name: str, slot: Slot, version: str) -> str:
    """Name the commands that promote a version and that end its judgement."""
    return f"Promote it: trueodds promote {name} {version}. End it: {end_command(name, slot)}"


def end_command(name: str, slot: Slot) -> str:
    """The command that leaves a slot empty."""
    return f"trueodds shadow {name} none{'' if slot == SHADOW else f' --slot {slot}'}"


def _rule(request: Recalibration, slot: Slot) -> str:
    """Say who decides about a slot, and when."""
    if request.promote_of(slot) == "when-better":
        return "The verdict better promotes it, worse withdraws it."
    return f"A person decides ({OPTIONS[slot]} when-better: the verdict does)."
