"""The loop from labels to a served version: fits a calibrator if none is under judgement, and carries out verdicts."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from pipeline.choices import SLOT_WORDS
from pipeline.export.trial import try_bundle
from pipeline.recalibrate import observed
from pipeline.recalibrate.calibrator_choice import CalibratorChoice, choose, origin_of, settings_of, write_candidate
from pipeline.recalibrate.judging import (
    Call,
    commands,
    directly,
    ends,
    evidence_about,
    fetch_labels,
    fetch_truths,
    judge_slot,
    settle,
)
from pipeline.recalibrate.label_choice import LabelChoice, choose_labels, write_label_candidate
from pipeline.recalibrate.model_state import LOCK, JudgedVersion, ModelState, check_folder
from pipeline.recalibrate.observed import RemoteModel
from pipeline.recalibrate.prior_shift import read_shares, write_correction
from pipeline.recalibrate.request import (
    FewLabelsError,
    Judgement,
    NoClassSharesError,
    NoTagsError,
    Recalibration,
    RecalibrationOutcome,
    Status,
)
from pipeline.recalibrate.set_rows import divide, has_different_chances, labels_are_chosen
from trueodds.bundle import DEFAULT, RECALIBRATED, SHADOW, Bundle, BundleError, BusyError, LabelBundle, Slot
from trueodds.calibrators import MultilabelPlatt
from trueodds.client import Labelled
from trueodds.client.label_truths import LabelTruths
from trueodds.errors import ConfigError, UserError
from trueodds.logits import Logits
from trueodds.reports.schemas import ClassShares, Report
from trueodds.sums.rounding import EXACT

USED_UP = 10_000
"""Fresh labels after which an undecided calibrator gives way to a new fit, or as many labels as it was fitted on.

A calibrator that so many labels cannot distinguish from the served one is of little use. If it gave way earlier, each
alarm would reset its evidence to zero.
"""


def recalibrate(request: Recalibration, call: Call = directly) -> RecalibrationOutcome:
    """Fit a calibrator on the live labels and put it under judgement; then judge the net that is the shadow, if any.

    A calibrator that is already under judgement is judged first. It is promoted, withdrawn, or stays. If it stays,
    nothing is fitted, so that its evidence grows. It gives way to a better fit if its verdict is "worse", after
    `USED_UP` labels without a verdict, or if the request has `displace`. The log then records its evidence, and its
    version stays published.

    `request.promote` applies to calibrators; with "now" the fitted one is served at once. `request.promote_net` applies
    to nets. Only one process works on a model at a time; if another one does, nothing is done. For a model that another
    server serves, a better calibrator is written to `request.out`.

    Raises:
        FewLabelsError: There are fewer than 200 labels.
        NoTagsError: `request.groups` is "tag", and no labelled answer has a tag.
        NoClassSharesError: `request.prior_shift` is set, and the class shares are not known, refused or withdrawn.
        BundleError: There is no such model or version, or the calibrator under judgement is for another net.
        CallError: The service does not answer, or refuses.
        DisagreementError: The service serves another folder, or has labels of other classes.
        ConfigError: A candidate is unknown, or an option promotes, displaces or waits for a version of another server.
        FitError: No candidate can be fitted.
    """
    if model := RemoteModel.of(request):
        model.check(request, waits=False)
        return (observed.correct if request.prior_shift else observed.recalibrate)(request, model, call)
    check_folder(request)
    name = request.model_name()
    try:
        with request.models.lock(name, LOCK):
            outcome = _judge_or_fit(request, ModelState.of(request), call)
    except BusyError:
        served = request.models.version_of(name, DEFAULT) or ""
        words = f"Another recalibration of {name} is running; nothing was done."
        return RecalibrationOutcome("nothing", name, served, None, words)
    return _wait(request, outcome, call) if outcome.status == "published" else outcome


def judge(request: Recalibration, call: Call = directly) -> RecalibrationOutcome:
    """Judge the versions beside the served one on labels of later answers: both slots, or `request.slot`.

    A calibrator is promoted at "better" and withdrawn at "worse", unless `request.promote` says otherwise. A person
    decides about a net, unless `request.promote_net` says otherwise. See `evidence_about`.

    Raises:
        BundleError: Nothing is under judgement, or a candidate has other inputs or classes.
        ConfigError: A version or shadow is given for a model of this service. Or a slot, or an option that promotes or
            displaces, is given for a model of another server.
        CallError: The service does not answer, or refuses.
        DisagreementError: The service serves another folder, or has labels of other classes.
    """
    if model := RemoteModel.of(request):
        model.check(request, waits=True)
        return observed.judge(request, model, call)
    if given := [name for name in ("version", "shadow") if getattr(request, name) is not None]:
        raise ConfigError(
            f"{' and '.join(given)} given; allowed only for a model that another server serves. This model's slots"
            " decide what is judged: leave it out, or give a slot"
        )
    check_folder(request)
    name = request.model_name()
    waiting = "another recalibration of this model is running: waiting"
    with request.models.lock(name, LOCK, lambda: request.say(waiting)):
        outcome = _judge(request, call)
    return _wait(request, outcome, call)


def _judge(request: Recalibration, call: Call) -> RecalibrationOutcome:
    """Judge the calibrator first. If it is promoted, the net is compared with it from then on."""
    slots: Iterable[Slot] = (request.slot,) if request.slot else (RECALIBRATED, SHADOW)
    judgements: list[Judgement] = []
    name, problem = request.model_name(), ""
    for slot in slots:
        try:
            judgements += filter(None, [judge_slot(request, slot, call)])
        except UserError as error:
            if not judgements:
                raise
            problem = f"\n{error}"  # earlier decisions stand and are reported
    if not judgements:
        missing = " and ".join(SLOT_WORDS[slot].replace("the", "no", 1) for slot in slots)
        raise BundleError(
            f"{name} has {missing} to judge; make one: trueodds recalibrate, or trueodds publish --role shadow"
        )
    outcome = _outcome(name, request.models.version_of(name, DEFAULT) or "", judgements)
    return replace(outcome, words=outcome.words + problem)


def _judge_or_fit(request: Recalibration, state: ModelState, call: Call) -> RecalibrationOutcome:
    """Judge the calibrator under judgement, or fit a new one, and judge the net."""
    name, served = state.name, state.served.version
    if request.version not in (None, served):
        words = f"{name}/{request.version} is no longer served, {served} is: nothing to recalibrate."
        return RecalibrationOutcome("nothing", name, served, None, words)
    outcome, previous = None, None
    if (candidate := state.candidates.get(RECALIBRATED)) and request.promote != "now":
        judgement = evidence_about(request, state, candidate, call)
        if _gives_way(request, candidate, judgement):
            previous = judgement
        elif (judgement := settle(request, state, judgement, call)).decision == "withdrawn":
            request.say(judgement.words)
        else:
            stays = "\nNo other calibrator is fitted, so that its evidence grows (--displace ends it)."
            words = judgement.words + stays * (judgement.decision == "stays")
            outcome = _outcome(name, request.models.version_of(name, DEFAULT) or "", [replace(judgement, words=words)])
    make = _correct if request.prior_shift else _fit
    return _with_net(request, outcome or make(request, state, call, previous), call)


def _gives_way(request: Recalibration, candidate: JudgedVersion, judgement: Judgement) -> bool:
    """Return whether a better fit may replace a calibrator under judgement."""
    if request.displace:
        return True
    verdict, origin = judgement.comparison.verdict, origin_of(candidate.bundle.card)
    if verdict == "undecided":
        return judgement.comparison.labels >= max(USED_UP, origin[1] if origin else 0)
    return verdict == "worse" and request.promote == "never"


def _with_net(request: Recalibration, outcome: RecalibrationOutcome, call: Call) -> RecalibrationOutcome:
    """Add the judgement of the net that is the shadow to an outcome. The net does not block a calibrator."""
    try:
        net = judge_slot(request, SHADOW, call)
    except UserError as error:
        return replace(outcome, words=f"{outcome.words}\nThe shadow could not be judged: {error}")
    if net is None:
        return outcome
    joined = _outcome(outcome.model, outcome.served, [net])
    status = outcome.status if net.decision == "stays" else joined.status
    words, judgements = f"{outcome.words}\n{net.words}", (*outcome.judgements, net)
    return replace(
        outcome, status=status, words=words, judgements=judgements, candidate=outcome.candidate or net.version
    )


def _fit(request: Recalibration, state: ModelState, call: Call, previous: Judgement | None) -> RecalibrationOutcome:
    """Fit a calibrator, and publish it if it is better than the served one.

    Tags are the groups of candidates if the request says so, or if the served calibrator has groups.
    """
    name, served = state.name, state.served
    if isinstance(served, LabelBundle):
        return _fit_labels(request, state, served, call, previous)
    rows: Labelled = call(fetch_labels, request.client, name, served, request.labels)
    positive = served.card.positive_class()
    needs_sample = served.card.sets is not None or positive is not None
    are_chosen = needs_sample and call(labels_are_chosen, request.client, name, served.version)
    if request.groups:
        NoTagsError.check(rows, f"{name}/{served.version}")
    by_tag = bool(request.groups or served.calibrator.known_groups)
    fitting, apart = divide(served, rows, are_chosen=are_chosen, by_tag=by_tag)
    half = "" if apart is None else ", without the half that its conformal sets need,"
    FewLabelsError.check(len(fitting.labels_N), f"{name}/{served.version}{half}")
    settings = settings_of(served.card)
    choice: CalibratorChoice = call(
        choose,
        served.calibrator,
        fitting.logits_NC,
        fitting.labels_N,
        request.candidates,
        settings,
        positive,
        served.card.ordered,
        EXACT,
        fitting.groups_N,
    )
    if are_chosen or has_different_chances(rows):
        choice = choice.without_rows_by_class()
    if not choice.better:
        words = f"Nothing published: {choice.rows:,} labels do not distinguish the best candidate from the served one."
        if previous is not None:
            words += f" {name}/{previous.version} stays the recalibrated version. {previous.comparison.words()}"
        return RecalibrationOutcome("kept", name, served.version, None, words, choice)
    lower = f"{choice.best.name}: NLL {choice.gain:.4f} nats a label lower"

    def publish(instead: str) -> str:
        return str(call(publish_candidate, request, state, choice, rows, instead, apart))

    outcome = _put_forward(request, state, call, previous, publish, lower, "cross-validated")
    return replace(outcome, choice=choice)


def _fit_labels(
    request: Recalibration, state: ModelState, served: LabelBundle, call: Call, previous: Judgement | None
) -> RecalibrationOutcome:
    """Fit the curves of independent labels, and publish them if they are better than the served ones.

    Raises:
        ConfigError: The request has options of exclusive classes.
    """
    name, kind = state.name, MultilabelPlatt.name
    if request.groups or set(request.candidates) - {kind}:
        given = f"groups {request.groups!r}" if request.groups else f"candidates {', '.join(request.candidates)}"
        raise ConfigError(f"{given} given, and {name} has independent labels; allowed is {kind} without groups")
    rows: LabelTruths = call(fetch_truths, request.client, name, served, request.labels)
    FewLabelsError.check(len(rows), f"{name}/{served.version}")
    choice: LabelChoice = call(choose_labels, served.calibrator, rows.logits_NL, rows.truth_NL)
    if not choice.better:
        words = (
            f"Nothing published: {choice.rows:,} labelled answers do not distinguish new curves from the served ones."
        )
        if previous is not None:
            words += f" {name}/{previous.version} stays the recalibrated version. {previous.comparison.words()}"
        return RecalibrationOutcome("kept", name, served.version, None, words, choice)

    def publish(instead: str) -> str:
        return str(call(publish_labels, request, state, served, choice, rows, instead))

    lower = f"{kind}: log loss {choice.gain:.4f} nats a label lower"
    outcome = _put_forward(request, state, call, previous, publish, lower, "cross-validated")
    return replace(outcome, choice=choice)


def _correct(request: Recalibration, state: ModelState, call: Call, previous: Judgement | None) -> RecalibrationOutcome:
    """Correct the served calibrator for the class shares of answers without labels, and publish it if they changed."""
    name, served = state.name, state.served
    if isinstance(served, LabelBundle):
        raise NoClassSharesError(
            f"{name}/{served.version} has independent labels, and class shares are of exclusive classes; recalibrate on"
            " labels: leave --prior-shift out"
        )
    reference = served.card.reference
    is_in_card = reference is not None and reference.rows_by_class is not None
    report, shares = call(read_shares, request, name, served.version, is_in_card)
    if not shares.changed_classes:
        words = f"Nothing published: {shares.reading}"
        return RecalibrationOutcome("kept", name, served.version, None, words)
    about = f"corrected for the class shares of {shares.answers:,} answers"

    def publish(instead: str) -> str:
        return str(call(publish_correction, request, state, served, report, shares, instead))

    outcome = _put_forward(request, state, call, previous, publish, about, "without labels")
    return replace(outcome, words=f"{shares.reading}\n{outcome.words}")


def _put_forward(
    request: Recalibration,
    state: ModelState,
    call: Call,
    previous: Judgement | None,
    publish: Callable[[str], str],
    about: str,
    how: str,
) -> RecalibrationOutcome:
    """Publish a calibrator, and promote it at once or put it under judgement."""
    name, served = state.name, state.served.version
    if request.promote == "now":
        version = publish("")
        why = request.reason(about) + ends(request, state, call)
        request.models.promote(name, version, why=why, who=request.who, beside=served)
        return RecalibrationOutcome("promoted", name, served, version, f"{name}/{version} answers now. {about}.")
    instead = f"; displaces {previous.version}: {previous.comparison.evidence()}" if previous else ""
    version = publish(instead)
    words = (
        f"{name}/{version} is published as the recalibrated version, {about} ({how}){instead}. Labels"
        f" of later answers decide: trueodds judge. {commands(name, RECALIBRATED, version)}"
    )
    return RecalibrationOutcome("published", name, served, version, words)


def publish_candidate(
    request: Recalibration,
    state: ModelState,
    choice: CalibratorChoice,
    rows: Labelled,
    instead: str = "",
    apart: Logits | None = None,
) -> str:
    """Publish the chosen calibrator as a version, and put it under judgement unless it will be served at once."""
    served = state.served
    assert isinstance(served, Bundle)
    with tempfile.TemporaryDirectory(prefix="trueodds-recalibrate-") as folder:
        bundle = write_candidate(served, choice, Path(folder) / "bundle", apart)
        # The fit knows no later answer by the service's clock, and none of its own rows whatever the clocks say.
        since_ms = max(time.time_ns() // 1_000_000 + rows.ahead_ms, int(rows.created_ms_N.max()) + 1)
        return _publish(request, state, bundle, f"recalibrated on {choice.rows:,} labels{instead}", since_ms)


def publish_labels(
    request: Recalibration,
    state: ModelState,
    served: LabelBundle,
    choice: LabelChoice,
    rows: LabelTruths,
    instead: str = "",
) -> str:
    """Publish the fitted curves of independent labels, as `publish_candidate` does."""
    with tempfile.TemporaryDirectory(prefix="trueodds-recalibrate-") as folder:
        bundle = write_label_candidate(served, choice, Path(folder) / "bundle")
        since_ms = max(time.time_ns() // 1_000_000 + rows.ahead_ms, int(rows.created_ms_N.max()) + 1)
        words = f"recalibrated on {choice.rows:,} labelled answers{instead}"
        return _publish(request, state, bundle, words, since_ms)


def publish_correction(
    request: Recalibration, state: ModelState, served: Bundle, report: Report, shares: ClassShares, instead: str = ""
) -> str:
    """Publish the served calibrator, corrected for class shares, as `publish_candidate` does."""
    # The shares use no labels. But labels could have withdrawn them, so only labels of later answers are evidence.
    rows = fetch_labels(request.client, state.name, served, 1)
    now_ms = time.time_ns() // 1_000_000 + rows.ahead_ms
    with tempfile.TemporaryDirectory(prefix="trueodds-recalibrate-") as folder:
        bundle = write_correction(served, report, shares, Path(folder) / "bundle", now_ms)
        words = f"corrected for the class shares of {shares.answers:,} answers{instead}"
        return _publish(request, state, bundle, words, now_ms)


def _publish(request: Recalibration, state: ModelState, bundle: Bundle | LabelBundle, words: str, since_ms: int) -> str:
    """Publish a bundle with the served net, and put it under judgement unless it will be served at once."""
    if note := try_bundle(bundle.directory):
        request.say(note)
    version = request.models.publish(bundle.directory, None).name
    if request.promote != "now":
        why, who, beside = request.reason(words), request.who, state.served.version
        request.models.shadow(
            state.name, version, slot=RECALIBRATED, why=why, who=who, since_ms=since_ms, beside=beside
        )
    return version


def _outcome(name: str, served: str, judgements: list[Judgement]) -> RecalibrationOutcome:
    """Join the outcomes of judged versions, one line each."""
    words = "\n".join(one.words for one in judgements)
    return RecalibrationOutcome(
        _status(judgements), name, served, judgements[0].version, words, judgements=tuple(judgements)
    )


def _status(judgements: list[Judgement]) -> Status:
    """Return the status for several decisions."""
    decisions = [one.decision for one in judgements]
    if set(decisions) == {"gone"}:
        return "nothing"
    return "promoted" if "promoted" in decisions else "withdrawn" if "withdrawn" in decisions else "waits"


def _wait(request: Recalibration, outcome: RecalibrationOutcome, call: Call) -> RecalibrationOutcome:
    """Wait for a verdict and return the outcome. The lock is released between two attempts."""
    end, published = time.monotonic() + request.wait_seconds, outcome.status == "published"
    while (outcome.is_undecided or outcome.status == "published") and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, observed.POLL_SECONDS))
        with request.models.lock(outcome.model, LOCK, lambda: None):
            again = replace(request, model=outcome.model, slot=RECALIBRATED if published else request.slot)
            try:
                later = _judge(again, call)
            except BundleError as error:
                words = f"The wait ended without a verdict, because the published versions changed: {error}"
                return _after(outcome, replace(outcome, words=words, judgements=()))
        outcome = _after(outcome, replace(later, choice=outcome.choice))
    return outcome


def _after(earlier: RecalibrationOutcome, outcome: RecalibrationOutcome) -> RecalibrationOutcome:
    """Return the outcome of a later attempt with the decisions of earlier ones."""
    decided = [one for one in earlier.judgements if one.decision != "stays"]
    judgements = [*decided, *outcome.judgements]
    words = "\n".join([*(one.words for one in decided), outcome.words])
    status = _status(judgements) if judgements else "nothing"
    candidate = decided[0].version if decided else outcome.candidate
    return replace(outcome, status=status, candidate=candidate, words=words, judgements=tuple(judgements))
