"""The label queue: drawing answers to label, leasing them to people, and storing what they say."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.errors import Refusal, ServiceError
from service.http.error_answers import RefusedRowsError
from service.http.parameters import Moment, moment_of, unix_ms
from service.http.signed_body import Name
from service.labels import imports
from service.runtime import Runtime
from service.store import MAX_LAST
from service.store.label_rules import RefusedLabelsError
from service.store.queue_rows import ClosedAnswer, Drawable, LabelDraw, OverlapError, QueueCounts, QueuedAnswer
from service.store.rows import Label, LabelBlock, Version
from trueodds.metrics import WorstChance, draw_labels, label_propensities, worst_chances
from trueodds.processes.choices import LABEL_FLOOR, MOST_NAMED, LabelGoal
from trueodds.sums.inputs import Array
from trueodds.texts import plural, short

MOST_ANSWERS = 1_000_000
"""Largest number of answers from which one sample is drawn. Reading them takes a few seconds."""
MOST_CLOSED = 1_000
MOST_LEASED = 1_000
"""Largest number of answers that one person has at a time."""
MINUTES = 15
"""Default length of a lease."""
MOST_MINUTES = 14 * 24 * 60
Show = Literal["input", "prediction", "probabilities"]
"""Parts of an answer that a labeller sees. The prediction may sway people, so it is hidden by default."""
Time = Annotated[Moment, Field(strict=False)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    model: Name | None = Field(None, description="Name of the model. Default: the served one.")
    version: Name | None = Field(None, description="Its version. Default: the served one.")
    who: Name = Field(description="Name of the person or program that acts.")


class LabelDrawBody(_Body):
    """Sample of answers to label: its size and its goal."""

    model_config = ConfigDict(title="LabelDraw")

    budget: int = Field(description="Expected number of answers to draw.", ge=1, le=MOST_ANSWERS)
    goal: LabelGoal = Field("ece", description="Figure that the sample makes precise.")
    threshold: float | None = Field(
        None, description="For the goal threshold: confidence from which on answers act alone."
    )
    tag: str | None = Field(
        None,
        description="For the goal group: the only tag to label, beside the floor. Default: the tags that may be the"
        " worst, by the labels so far.",
    )
    floor: float = Field(LABEL_FLOOR, description="Smallest propensity, as a share of that in a plain sample.")
    since: Time | None = Field(
        None, description="Only answers given since then. Default: the end of the last draw's window."
    )
    until: Time | None = Field(None, description="Only answers given before then. Default: now.")


class LeaseBody(_Body):
    """Request for the next answers to label."""

    model_config = ConfigDict(title="LabelLease")

    count: int = Field(1, description="Number of answers.", ge=1, le=MOST_LEASED)
    minutes: int = Field(MINUTES, description="Time after which others get them.", ge=1, le=MOST_MINUTES)
    show: Show = Field("input", description="What the answers show: predictions may sway people.")


class GivenAnswer(BaseModel):
    """Label of a drawn answer, as a name or an index, or the word that a person skips it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str
    label: str | int | None = None
    index: int | None = None
    skip: bool = False


class AnswersBody(_Body):
    """Labels of drawn answers."""

    model_config = ConfigDict(title="LabelQueueAnswers")

    answers: list[GivenAnswer] = Field(min_length=1, max_length=10_000)


class AnswerForm(_Body):
    """One answer of the page's form; without an id it only asks for the next answer."""

    id: str | None = None
    label: str | None = None
    skip: str | None = None
    show: Show = "input"


class SuspectedTag(BaseModel):
    """Tag of the answers from which was drawn, with its chance to be the worst one by the labels before the draw."""

    tag: str | None = Field(description="Null: answers without a tag.")
    chance: float = Field(description="Probability that no other tag has a larger signed gap.")
    labels: int = Field(description="Labels before the draw that count.")
    signed_gap: float | None = Field(description="Accuracy minus mean confidence of these labels; null without any.")


class LabelDrawn(BaseModel):
    """A draw."""

    model: str
    version: str
    draw: int = Field(description="Number of the draw.")
    answers: int = Field(description="Answers without a label and without a propensity, from which it was drawn.")
    sample_size: int = Field(description="Number of drawn answers.")
    smallest_propensity: float | None = Field(description="Smallest propensity of all these answers.")
    largest_propensity: float | None
    since: datetime
    until: datetime
    suspects: list[SuspectedTag] = Field(
        default_factory=list,
        description="For the goal group without a tag: up to 5 tags that are most likely the worst. Empty without"
        " earlier labels.",
        exclude_if=lambda value: not value,
    )


class AnswerToLabel(BaseModel):
    """Drawn answer that waits for its label."""

    id: str
    time: datetime
    tag: str | None
    propensity: float
    input: Any = Field(description="Input of a decision model, if the service keeps inputs (`--keep-inputs`).")
    input_digest: str | None = Field(description="Digest of the input in hex, if the id is the caller's own.")
    predicted: str | None = Field(description="Predicted class. Null: hidden.")
    confidence: float | None = Field(description="Its probability. Null: hidden.")
    probabilities: list[float] | None = Field(description="One per class. Null: hidden, or not known.")
    leased_until: datetime


class QueueState(BaseModel):
    """Numbers of drawn answers."""

    sample_size: int = Field(description="Number of drawn answers.")
    labelled: int
    skips: int = Field(description="Drawn answers that people could not label.")
    waiting: int
    maturing: int = Field(description="Drawn answers whose label counts when their window closes.")


class LabelledBy(BaseModel):
    """Drawn answer that was labelled or skipped."""

    id: str
    who: str | None = Field(
        description="Person who labelled or skipped it in the queue. Null: its label came from elsewhere, such as POST"
        " /feedback, which keeps no names."
    )
    at: datetime = Field(description="Time of its label; without one, of its skip.")
    is_skip: bool = Field(description="A person skipped it, and it has no label.")
    skipped_by: str | None = Field(description="Person who skipped it, whether or not it was labelled later.")
    skipped_at: datetime | None
    corrected_at: datetime | None = Field(description="Time at which a correction replaced its label.")
    import_id: str | None = Field(description="Import of the label that holds now, which you can void.")

    @classmethod
    def of(cls, answer: ClosedAnswer) -> LabelledBy:
        """Convert a row of the store."""
        return cls(
            id=answer.id,
            who=answer.who,
            at=moment_of(answer.at_ms),
            is_skip=answer.is_skip,
            skipped_by=answer.skipped_by,
            skipped_at=None if answer.skipped_ms is None else moment_of(answer.skipped_ms),
            corrected_at=None if answer.corrected_ms is None else moment_of(answer.corrected_ms),
            import_id=answer.import_id,
        )


class LabelQueue(BaseModel):
    """State of the queue of a version, and the answers that are leased to one person."""

    model: str
    version: str
    classes: list[str]
    state: QueueState
    answers: list[AnswerToLabel]
    closures: list[LabelledBy] = Field(
        default_factory=list,
        description="With `closures`: the drawn answers that were labelled or skipped last, the newest first.",
        exclude_if=lambda value: not value,
    )


class AnswersStored(BaseModel):
    """Counts of what was stored."""

    stored: int
    already_known: int
    skips: int
    import_id: str | None = Field(description="Import of the labels, which you can void; null without labels.")


B = TypeVar("B", bound=_Body)


def read(form: type[B], tree: Any, expectation: str) -> B:
    """Validate a body.

    Raises:
        ServiceError: 422 with the first wrong field and the expected fields.
    """
    try:
        return form.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        problem = first["msg"].removeprefix("Value error, ")
        raise ServiceError(422, "invalid_body", f"{where}: {problem}; expected {expectation}") from None


async def draw(runtime: Runtime, body: LabelDrawBody) -> LabelDrawn:
    """Draw answers of a version and put them into its queue, in random order.

    Each answer is drawn on its own (Poisson sampling), as the alarm's evidence assumes.

    Raises:
        ServiceError: 409 if the window overlaps with an earlier draw or has no answers; 413 if it has too many; 422 for
            options that do not fit together.
    """
    version, store = await runtime.version(body.model, body.version), runtime.store
    now, end = time.time_ns() // 1_000_000, await store.read_last_draw_end(*version.key)
    since_ms = end if body.since is None else max(unix_ms(body.since), 0)
    until_ms = now if body.until is None else unix_ms(body.until)
    if until_ms > now:
        message = f"until is {body.until}, in the future; leave it out to draw from all answers"
        raise ServiceError(422, "invalid_body", message)
    if since_ms < end:
        raise _overlap(end)
    if body.since is not None and since_ms >= until_ms:
        said = "now" if body.until is None else f"until, {body.until}"
        message = f"since is {body.since}, which is not before {said}; give an earlier time, or leave it out"
        raise ServiceError(422, "invalid_body", message)
    # Read before the answers: one that is still without a label then has no label among these
    evidence = (
        await store.read_labels(*version.key, last=MAX_LAST) if body.goal == "group" and body.tag is None else None
    )
    rows = await store.read_drawable(*version.key, since_ms, until_ms, MOST_ANSWERS + 1)
    if len(rows) > MOST_ANSWERS:
        message = f"the window has more than {MOST_ANSWERS:,} answers without a label; draw from a shorter one (until)"
        raise ServiceError(413, "too_many_answers", message)
    if not rows:
        message = (
            f"{version.model}/{version.version} has no answer without a label and a propensity from"
            f" {moment_of(since_ms).isoformat()} on; draw again when there are new answers"
        )
        raise ServiceError(409, "nothing_to_draw", message)
    try:
        propensity_N, drawn, suspects = await asyncio.to_thread(sample, rows, body, evidence)
    except ValueError as error:
        raise ServiceError(422, "invalid_body", str(error)) from None
    made = LabelDraw(
        at_ms=now,
        since_ms=since_ms,
        until_ms=until_ms,
        goal=body.goal,
        threshold=body.threshold,
        tag=body.tag,
        floor=body.floor,
        budget=body.budget,
        answers=len(rows),
        who=body.who,
    )
    try:
        number = await store.put_label_draw(*version.key, made, drawn)
    except OverlapError as error:
        raise _overlap(error.until_ms) from None
    return LabelDrawn(
        model=version.model,
        version=version.version,
        draw=number,
        answers=len(rows),
        sample_size=len(drawn),
        smallest_propensity=float(propensity_N.min()),
        largest_propensity=float(propensity_N.max()),
        since=moment_of(since_ms),
        until=moment_of(until_ms),
        suspects=[
            SuspectedTag(tag=one.group, chance=one.chance, labels=one.labels, signed_gap=one.signed_gap)
            for one in suspects[:MOST_NAMED]
        ],
    )


def sample(
    rows: list[Drawable], body: LabelDrawBody, evidence: LabelBlock | None
) -> tuple[Array, list[tuple[str, float]], list[WorstChance]]:
    """Return all propensities, the drawn ids with theirs in random order, and the tags that may be the worst.

    Labelling may stop anywhere, because the order is random. The propensities depend on earlier labels at most: a label
    of an answer that can be drawn, such as one that was voided meanwhile, does not count.
    """
    suspects, tags = list[WorstChance](), [row.tag for row in rows]
    if evidence is not None and len(evidence):
        own = {row.id for row in rows}
        earlier_L = np.array([id_ not in own for id_ in evidence.ids], np.bool_)
        if earlier_L.any():
            suspects = worst_chances(
                evidence.confidence_L[earlier_L],
                evidence.correct_L[earlier_L],
                [tag for tag, is_earlier in zip(evidence.tags, earlier_L.tolist(), strict=True) if is_earlier],
                tags,
                propensity_N=evidence.propensity_L[earlier_L],
            )
    propensity_N = label_propensities(
        [row.confidence for row in rows],
        body.budget,
        goal=body.goal,
        threshold=body.threshold,
        groups_N=tags if body.goal == "group" else None,
        group=body.tag,
        chances={one.group: one.chance for one in suspects} or None,
        floor=body.floor,
    )
    drawn = np.random.default_rng().permutation(draw_labels(propensity_N, method="poisson")).tolist()
    return propensity_N, [(rows[k].id, float(propensity_N[k])) for k in drawn], suspects


def _overlap(end_ms: int) -> ServiceError:
    end = moment_of(end_ms).isoformat()
    message = f"answers before {end} were in an earlier draw; their propensities are fixed. Draw with since={end}"
    return ServiceError(409, "overlapping_draw", message)


async def queue_of(runtime: Runtime, version: Version, answers: list[QueuedAnswer], show: Show) -> LabelQueue:
    """Return the state of a version's queue with some of its answers."""
    counts = await runtime.store.read_queue_counts(*version.key) or QueueCounts()
    kept = [await runtime.store.read_input(version.model, answer.id) for answer in answers]
    return LabelQueue(
        model=version.model,
        version=version.version,
        classes=list(version.classes),
        state=QueueState(
            sample_size=counts.sample_size,
            labelled=counts.right + counts.wrong,
            skips=counts.skips,
            waiting=counts.waiting,
            maturing=counts.maturing,
        ),
        answers=[_answer_to_label(answer, text, version, show) for answer, text in zip(answers, kept, strict=True)],
    )


def _answer_to_label(answer: QueuedAnswer, kept_input: str | None, version: Version, show: Show) -> AnswerToLabel:
    probabilities = None
    if show == "probabilities" and answer.logits:
        logits_1C = np.frombuffer(answer.logits, "<f4").reshape(1, len(version.classes))
        probabilities = version.calibrator(logits_1C, groups=[answer.tag])[0].tolist()
    return AnswerToLabel(
        id=answer.id,
        time=moment_of(answer.created_ms),
        tag=answer.tag,
        propensity=answer.propensity,
        input=None if kept_input is None else orjson.loads(kept_input),
        input_digest=None if answer.digest is None else answer.digest.hex(),
        predicted=None if show == "input" else version.classes[answer.predicted],
        confidence=answer.confidence if show == "probabilities" else None,
        probabilities=probabilities,
        leased_until=moment_of(answer.lease_until_ms),
    )


async def lease(runtime: Runtime, version: Version, body: LeaseBody) -> LabelQueue:
    """Lease the next answers to a person. Nobody else gets them before the lease ends."""
    until_ms = time.time_ns() // 1_000_000 + 60_000 * body.minutes
    answers = await runtime.store.lease_answers(*version.key, body.who, until_ms, body.count)
    return await queue_of(runtime, version, answers, body.show)


async def store_answers(runtime: Runtime, version: Version, who: str, answers: list[GivenAnswer]) -> AnswersStored:
    """Store the labels of drawn answers, all or none, and record who gave them or skipped them, and when.

    Sending the same answers again has no effect.

    Raises:
        RefusedRowsError: Some answers were not drawn, have neither label nor index nor skip, or have another label.
    """
    drawn = await runtime.store.read_queue_ids(*version.key, [answer.id for answer in answers])
    problems = [refusal for row, answer in enumerate(answers) if (refusal := _problem(row, answer, drawn))]
    if problems:
        raise RefusedRowsError(problems, len(answers))
    given = [answer for answer in answers if not answer.skip]
    labels = [
        Label(answer.id, answer.index if answer.index is not None else str(answer.label), model=version.model)
        for answer in given
    ]
    counts, import_id = None, imports.new() if labels else None
    if labels:
        try:
            counts = await runtime.store.put_labels(labels, import_id)
        except RefusedLabelsError as error:
            rows = [row for row, answer in enumerate(answers) if not answer.skip]
            refusals = [Refusal(rows[one.row], one.id, one.code, _message(one)) for one in error.refusals]
            raise RefusedRowsError(refusals, len(answers)) from error
        runtime.telemetry.labels(asdict(counts))
    for is_skip in (False, True):
        if ids := [answer.id for answer in answers if answer.skip == is_skip]:
            await runtime.store.close_answers(*version.key, ids, who, is_skip=is_skip)
    return AnswersStored(
        stored=counts.stored if counts else 0,
        already_known=counts.already_known if counts else 0,
        skips=len(answers) - len(given),
        import_id=import_id,
    )


def _message(refusal: Refusal) -> str:
    """Return the message with the place of the cure: the queue takes no corrections."""
    where = " in POST /feedback" if refusal.message.endswith("to replace it") else ""
    return refusal.message + where


def _problem(row: int, answer: GivenAnswer, queue: set[str]) -> Refusal | None:
    """Return the problem of an answer, or None."""
    given = sum((answer.label is not None, answer.index is not None, answer.skip))
    if given != 1:
        message = f"{plural(given, 'value')} of label, index and skip for {short(answer.id)}; give exactly one of them"
        return Refusal(row, answer.id, "invalid_row", message)
    if answer.id not in queue:
        message = f"{short(answer.id)} is not in the label queue; send its label to POST /feedback"
        return Refusal(row, answer.id, "unknown_id", message)
    return None
