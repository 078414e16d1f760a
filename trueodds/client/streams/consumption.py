"""The consumer: reads batches, sends them, commits what is stored, and keeps labels whose answers are not there yet."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trueodds.client.streams import StreamError
from trueodds.client.streams.broker import ClusterAwayError, DeadLetters, GroupMember, Place
from trueodds.client.streams.messages import Door, Item, Message, item_of
from trueodds.client.streams.offsets import Offsets
from trueodds.client.streams.sender import Sender, StoppedError
from trueodds.client.streams.telemetry import Telemetry
from trueodds.texts import plural

POLL = 0.5
"""Longest time in seconds that a batch waits to be filled."""
PAUSE_AFTER = 2.0
"""Seconds of a request after which the partitions are paused, so that the consumer stays in its group."""
STOP_SECONDS = 10.0
"""Seconds for which a stop waits for the request that is on its way."""
MOST_WAITING = 20_000
"""Messages of labels that wait. While there are as many, no labels are read."""
RETRY = 1.0
"""Shortest time in seconds between two tries of labels that wait."""
RETRY_SHARE = 10
"""Ratio of that time to the time that a try takes."""
LAG_SECONDS = 5.0
"""Seconds between two measurements of the lag."""


@dataclass(frozen=True)
class ConsumerPlan:
    """Options of a consumer."""

    batch: int = 1000
    """Largest number of messages in a batch."""
    label_wait: float = 60.0
    """Seconds for which a label waits for its answer."""
    every: float = 10.0
    """Seconds between two lines of progress."""
    until_end: bool = False
    """Whether to end when the messages that were there at the start are finished."""
    label_model: str | None = None
    """Model of labels that name none."""


@dataclass(eq=False)
class _Waiting:
    """A message with a label whose answer is not there yet."""

    item: Item
    since: float
    ends: dict[Place, int] | None
    """Ends of the topics of answers when it was read. None if the cluster did not answer then."""


class Consumption:
    """One consumer from start to stop."""

    def __init__(
        self,
        member: GroupMember,
        sender: Sender,
        doors: Mapping[str, Door],
        dead_letters: DeadLetters | None,
        plan: ConsumerPlan,
        telemetry: Telemetry,
        say: Callable[[str], None],
        is_stopped: Callable[[], bool],
        *,
        begins_at_end: bool = False,
    ) -> None:
        """Prepare the consumer.

        Args:
            member: The member of the group.
            sender: The client of the service.
            doors: Routes by topic.
            dead_letters: Receives refused messages. Without it the consumer ends at the first one.
            plan: The options.
            telemetry: Receives the counts.
            say: Receives lines for the user.
            is_stopped: Returns whether to stop.
            begins_at_end: Whether a new group skips the messages that are there.
        """
        self._member, self._sender, self._doors, self._dead = member, sender, dict(doors), dead_letters
        self._plan, self._telemetry, self._say, self._is_stopped = plan, telemetry, say, is_stopped
        self._begins_at_end = begins_at_end
        self._label_topics = [topic for topic, door in doors.items() if door.is_of_labels]
        self._answer_topics = [topic for topic, door in doors.items() if not door.is_of_labels]
        self._offsets: dict[Place, Offsets] = {}
        self._backlog = list[Message]()
        """Messages that were read while a request was on its way."""
        self._waiting = list[_Waiting]()
        self._waiting_ids = Counter[str]()
        self._retry_at = 0.0
        self._holds_labels = False
        self._ends_at: tuple[float, dict[Place, int] | None] = (0.0, None)
        self._goal: dict[Place, int] | None = None
        self._goal_at = 0.0
        self.messages = self.dead = 0
        self._lag: dict[Place, int] | None = None
        self._lag_at = self._line_at = 0.0
        self._last_line = (0, 0, 0, -1)
        self._line_messages, self._line_since = 0, time.monotonic()

    def run(self) -> None:
        """Consume until a stop, or until the end if the plan says so.

        Raises:
            StreamError: The consumer cannot go on. What is stored is committed.
            CallError: The service refuses the key.
        """
        try:
            if self._member.wait_for_topics(self._doors, self._is_stopped):
                self._goal = self._member.ends(self._doors) if self._plan.until_end else None
                self._member.subscribe(self._doors, self._take_places, self._return_places, self._forget_places)
            while not self._is_stopped() and not self._is_done():
                self._handle(*self._next())
            if not self._is_stopped():
                self._lag_at = 0.0
                self._tick()
        except StoppedError:
            pass
        finally:
            self._commit()
            self._member.close()
            self._line()

    def _take_places(self, places: Sequence[Place]) -> None:
        for place in places:
            self._offsets[place] = Offsets()
        if self._holds_labels:  # by a cooperative assignment, partitions that stay here keep their pause
            self._member.resume(self._label_topics)
            self._holds_labels = False
        self._lag_at = 0.0

    def _return_places(self, places: Sequence[Place]) -> None:
        self._commit(places)
        self._forget_places(places)

    def _forget_places(self, places: Sequence[Place]) -> None:
        """Forget partitions that another member has now. It reads what is not committed again."""
        for place in places:
            if (offsets := self._offsets.pop(place, None)) is not None:
                offsets.is_lost = True
        gone = set(places)
        self._backlog = [message for message in self._backlog if (message.topic, message.partition) not in gone]
        self._keep_waiting([one for one in self._waiting if _place(one.item) not in gone])

    def _keep_waiting(self, waiting: list[_Waiting]) -> None:
        self._waiting = waiting
        self._waiting_ids = Counter(id_ for one in waiting for id_ in one.item.ids)

    def _next(self) -> tuple[list[Item], list[Item]]:
        """Return labels that waited and are due, and new messages."""
        due = [one.item for one in self._waiting] if time.monotonic() >= self._retry_at else []
        messages, ends = self._backlog[: self._plan.batch], dict[Place, int]()
        self._backlog = self._backlog[self._plan.batch :]
        if not messages:
            messages, ends = self._member.read(self._plan.batch, 0.0 if due else POLL)
        new = list[Item]()
        for message in messages:
            offsets = self._offsets.get((message.topic, message.partition))
            if offsets is None:  # revoked meanwhile
                continue
            offsets.begin(message.offset)
            item = item_of(message, self._doors[message.topic], offsets, self._plan.label_model)
            if any(id_ in self._waiting_ids for id_ in item.ids):  # after an earlier label of the same answer
                self._wait([item])
            else:
                new.append(item)
        for place, end in ends.items():
            if place in self._offsets:
                self._offsets[place].reach_end(end)
        return due, new

    def _handle(self, due: Sequence[Item], new: Sequence[Item]) -> None:
        """Send labels that waited and new messages, note which are finished, and commit."""
        if items := [*due, *new]:
            began = time.monotonic()
            self._in_background(lambda: self._sender.send(items))
            if due:
                now = time.monotonic()
                self._retry_at = now + max(RETRY, RETRY_SHARE * (now - began))
            self._settle([item for item in items if not item.offsets.is_lost])
        self._commit()
        self._hold_labels()
        self._tick()

    def _settle(self, items: Sequence[Item]) -> None:
        """Finish the messages whose rows are stored. Others wait, or become dead letters."""
        known = {id(one.item): one for one in self._waiting}
        dead = [item for item in items if item.problems and not item.waits]
        wait = [item for item in items if item.waits]
        old = [one for item in wait if (one := known.get(id(item)))]
        expired = self._overdue(old)
        dead += [one.item for one in old if one in expired]
        sent = set(map(id, items))
        stay = {id(item) for item in wait} - {id(one.item) for one in expired}
        for item in items:
            if not item.problems:
                self._finish(item, dead=False)
        self._keep_waiting([one for one in self._waiting if id(one.item) not in sent or id(one.item) in stay])
        self._wait([item for item in wait if id(item) not in known])
        if not dead:
            return
        if self._dead is None:
            first = dead[0]
            raise StreamError(
                f"the service refuses {first.message.place}: {first.reason} ({first.problems[0].code})."
                " Correct it, or name a topic for such messages: --dead-letters"
            )
        letters = self._dead
        self._in_background(lambda: letters.send(dead))
        for item in dead:
            self._finish(item, dead=True)

    def _wait(self, items: Sequence[Item]) -> None:
        """Keep messages with labels until their answers are there."""
        if items:
            now, ends = time.monotonic(), self._answers_end()
            self._waiting += [_Waiting(item, now, ends) for item in items]
            self._waiting_ids.update(id_ for item in items for id_ in item.ids)

    def _answers_end(self) -> dict[Place, int] | None:
        """Return the ends of the topics of answers, as they were at most a second ago."""
        at, ends = self._ends_at
        if time.monotonic() - at > 1 or ends is None:
            try:
                ends = self._member.ends(self._answer_topics)
            except ClusterAwayError:
                ends = None
            self._ends_at = time.monotonic(), ends
        return ends

    def _overdue(self, waiting: Sequence[_Waiting]) -> list[_Waiting]:
        """Return the labels that have waited long enough, after all earlier answers of the topics were stored."""
        now = time.monotonic()
        over = [one for one in waiting if now - one.since >= self._plan.label_wait]
        if not over:
            return []
        for one in over:
            one.ends = self._answers_end() if one.ends is None else one.ends
        try:
            reached = self._member.committed_offsets({place for one in over for place in one.ends or ()})
        except ClusterAwayError:
            return []
        return [one for one in over if one.ends is not None and self._has_passed(one.ends, reached)]

    def _has_passed(self, ends: Mapping[Place, int], positions: Mapping[Place, int]) -> bool:
        """Return whether the group has committed everything before some ends."""
        none = max(ends.values(), default=0) if self._begins_at_end else -1
        return all(positions.get(place, none) >= end for place, end in ends.items())

    def _is_done(self) -> bool:
        """Return whether the group has finished what was there at the start."""
        if self._goal is None or self._backlog or time.monotonic() < self._goal_at:
            return False
        self._goal_at = time.monotonic() + POLL
        try:
            return self._has_passed(self._goal, self._member.committed_offsets(self._goal))
        except ClusterAwayError:
            return False

    def _finish(self, item: Item, *, dead: bool) -> None:
        item.offsets.finish(item.message.offset)
        self.messages += 1
        self.dead += dead
        self._telemetry.count_message(item, dead=dead)

    def _commit(self, places: Sequence[Place] | None = None) -> None:
        """Commit the positions of partitions that have moved: all, or some."""
        chosen = (
            self._offsets
            if places is None
            else {place: self._offsets[place] for place in places if place in self._offsets}
        )
        moved = {place: one.next_commit for place, one in chosen.items() if one.next_commit is not None}
        if moved and self._member.commit(moved):
            for place, position in moved.items():
                if place in self._offsets:
                    self._offsets[place].last_commit = position

    def _hold_labels(self) -> None:
        """Read no labels while too many wait."""
        if not self._holds_labels and len(self._waiting) >= MOST_WAITING:
            self._say(
                f"{plural(len(self._waiting), 'message')} with labels wait for their answers; reading no more labels"
            )
            self._member.pause(self._label_topics)
            self._holds_labels = True
        elif self._holds_labels and len(self._waiting) < MOST_WAITING // 2:
            self._member.resume(self._label_topics)
            self._holds_labels = False

    def _in_background(self, work: Callable[[], None]) -> None:
        """Run work in a thread. If it takes long, pause the partitions and keep the place in the group meanwhile.

        Raises:
            StoppedError: A stop was requested, and the work did not end in time.
            Exception: The error of the work.
        """
        done, errors = threading.Event(), list[BaseException]()

        def run() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)
            finally:
                done.set()

        threading.Thread(target=run, daemon=True).start()
        if not done.wait(PAUSE_AFTER):
            self._member.pause(self._doors)
            stop_at: float | None = None
            while not done.wait(0.1):
                messages, _ = self._member.read(self._plan.batch, 0)
                if messages:  # of partitions that were assigned meanwhile
                    self._backlog += messages
                    self._member.pause(self._doors)
                self._tick()
                if self._is_stopped():
                    stop_at = stop_at or time.monotonic() + STOP_SECONDS
                    if time.monotonic() > stop_at:
                        raise StoppedError
            self._member.resume(self._doors)
            self._holds_labels = False
        if errors:
            raise errors[0]

    def _tick(self) -> None:
        """Measure the lag and print a line of progress, where it is time."""
        now = time.monotonic()
        if now - self._lag_at >= LAG_SECONDS:
            self._lag_at = now
            try:
                ends = self._member.own_ends(self._doors)
                reached = {place: one.position for place, one in self._offsets.items()}
                missing = [place for place, position in reached.items() if position is None]
                before = self._member.committed_offsets(missing)
                self._lag = {
                    place: max(0, end - (reached.get(place) or before.get(place, 0))) for place, end in ends.items()
                }
            except ClusterAwayError:
                self._lag = None
        self._telemetry.state(self._lag, len(self._waiting), self._sender.is_away)
        if now - self._line_at >= self._plan.every:
            self._line()

    def _line(self) -> None:
        """Print a line of progress, unless nothing has changed."""
        lag = -1 if self._lag is None else sum(self._lag.values())
        line = (self.messages, self.dead, len(self._waiting), lag)
        now = time.monotonic()
        self._line_at = now
        if line == self._last_line or not (self.messages or self._offsets):
            return
        rate = (self.messages - self._line_messages) / max(now - self._line_since, 1e-3)
        self._last_line, self._line_messages, self._line_since = line, self.messages, now
        parts = [f"{plural(self.messages, 'message')} ({rate:,.0f}/s)", plural(self.dead, "dead letter")]
        if self._waiting:
            parts.append(f"{len(self._waiting):,} with labels waiting")
        if lag >= 0:
            parts.append(f"lag {lag:,} in {plural(len(self._lag or ()), 'partition')}")
        self._say(", ".join(parts))


def _place(item: Item) -> Place:
    return item.message.topic, item.message.partition
