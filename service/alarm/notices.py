"""Notices about questions of decision models: their readings, and their delivery to webhooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, get_args

from service.alarm.evidence import Delivery
from service.alarm.watch import Deliverable, Key, Watch
from service.alarm.webhooks import QUESTION, id_of, message
from service.settings import Settings, Webhook
from service.store import Store
from service.store.decision_rows import Notice, NoticeKind
from service.telemetry.metrics import Telemetry
from trueodds.texts import short

KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)


def reading_of(notice: Notice, question: str) -> str:
    """Return a notice as sentences. `question` is the name of the question as it was sent."""
    before, now, which = notice.details["before"], notice.details["now"], f"the question {short(question)}"
    if notice.kind == "served_model_changed":
        return (
            f"The served model of {which} has changed from {short(before)} to {short(now)}. Its report and its alarm"
            f" begin anew as version {notice.version}."
        )
    if notice.kind == "wording_changed":
        return (
            f"The type, instructions or options of {which} have changed, under the same name. Its report and its alarm"
            f" begin anew as version {notice.version}. If it is another question, give it another name."
        )
    level = f"{notice.details['alpha']:.0%}"
    return (
        f"The host declines {which} more often: in {now:.1%} of the requests, before in {before:.1%}. If requests are"
        f" independent and the share is constant, at most {level} of questions ever get this notice, however often one"
        " looks."
    )


@dataclass(frozen=True)
class NoticeState:
    """Notice with its deliveries, as `Watch` needs it. A notice is there from the start and is never acknowledged."""

    notice: Notice
    acknowledged: None = None

    @property
    def paging(self) -> NoticeState:
        return self

    @property
    def deliveries(self) -> dict[str, Delivery]:
        """Deliveries by webhook."""
        return {name: Delivery.model_validate(tree) for name, tree in self.notice.deliveries.items()}


class NoticeWatch(Watch):
    """Watch over the notices of one kind. Recalibration is no answer to a notice, so it starts no run."""

    STARTS_RUNS = False

    def __init__(self, store: Store, settings: Settings, telemetry: Telemetry, kind: NoticeKind) -> None:
        super().__init__(store, settings, telemetry)
        self.NAME = self._kind = kind
        self._notices: dict[Key, Notice] = {}

    async def _progress(self) -> list[tuple[str, str, int, int]]:
        if not self._webhooks:
            return []
        notices = await self._store.read_notices()
        self._notices = {(one.model, one.version): one for one in notices if one.kind == self._kind}
        return [(*key, 0, 0) for key in self._notices]

    async def _update(self, key: Key, last_label: int, last_taken: int) -> None:
        if key in self._seen and not self._is_due(key):
            return
        self._seen[key] = last_label
        self._due.pop(key, None)
        self._begin(key, NoticeState(self._notices[key]))

    async def _change(self, key: Key, hook: Webhook, change: Callable[[Delivery], Delivery]) -> Deliverable:
        notice = self._notices[key]

        def step(deliveries: dict[str, Any]) -> dict[str, Any]:
            tree = deliveries.get(hook.key)
            before = Delivery(fired_ms=notice.at_ms) if tree is None else Delivery.model_validate(tree)
            return {**deliveries, hook.key: change(before).tree()}

        return NoticeState(replace(notice, deliveries=await self._store.change_deliveries(notice.key, step)))

    async def _news(self, key: Key, state: Deliverable) -> dict[str, Any]:
        notice = self._notices[key]
        names = {question.of.model: question.of.name for question in await self._store.read_questions()}
        question = names.get(notice.model, notice.model)
        numbers = {
            "notice": notice.kind,
            "question": question,
            "noticed_at": datetime.fromtimestamp(notice.at_ms / 1000, UTC).isoformat(),
            **notice.details,
        }
        beside = {"address": self._settings.address, "id_": id_of(*notice.key, notice.at_ms)}
        return message(QUESTION, *key, reading_of(notice, question), **beside, numbers=numbers)
