"""Messages as rows: what a message implies is added, and nothing else is changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueodds.client.streams.messages import ANSWERS, DECISIONS, LABELS, Door, Item, Message, item_of
from trueodds.client.streams.offsets import Offsets

TIME = 1_764_162_000_000
ROW = {"id": "m-1", "confidence": 0.9, "predicted": "ham", "time": "2026-01-01"}


def read(value: bytes | None, door: Door = ANSWERS, model: str | None = None, topic: str = "mail") -> Item:
    return item_of(Message(topic, 2, 41, value, time_ms=TIME), door, Offsets(), model)


def rows(item: Item) -> list[Any]:
    return [json.loads(line) for line in item.lines]


def test_a_complete_row_stays_as_it_is() -> None:
    assert rows(read(json.dumps(ROW).encode())) == [ROW]
    assert rows(read(json.dumps(ROW, indent=2).encode())) == [ROW]


def test_adds_an_id_and_the_time() -> None:
    bare = {"confidence": 0.9, "predicted": "ham"}
    added = {"id": "kafka:mail:2:41", "time": TIME}
    assert rows(read(json.dumps(bare).encode())) == [bare | added]
    assert rows(read(json.dumps(bare | {"id": None, "time": None}).encode())) == [bare | added]
    two = read(json.dumps(bare).encode() + b"\n\n" + json.dumps(ROW).encode() + b"\n")
    assert rows(two) == [bare | added | {"id": "kafka:mail:2:41:0"}, ROW]
    listed = read(json.dumps({"observations": [bare, ROW, 3], "model": "mail"}).encode())
    assert listed.tree == {"observations": [bare | added | {"id": "kafka:mail:2:41:0"}, ROW, 3], "model": "mail"}


def test_an_id_made_of_a_long_topic_has_an_allowed_length_and_is_the_same_each_time() -> None:
    ids = {rows(read(b'{"confidence": 1}', topic="t" * 249))[0]["id"] for _ in range(2)}
    assert len(ids) == 1
    assert len(ids.pop()) <= 128
    assert rows(read(b'{"confidence": 1}', topic="t" * 249)) != rows(read(b'{"confidence": 1}', topic="u" * 249))


def test_a_pair_keeps_the_id_of_its_response() -> None:
    pair = {"request": {"model": "m"}, "response": {"id": "r-1"}}
    assert rows(read(json.dumps(pair).encode(), DECISIONS)) == [pair | {"time": TIME}]
    without = pair | {"response": {"model": "m"}}
    assert rows(read(json.dumps(without).encode(), DECISIONS))[0]["id"] == "kafka:mail:2:41"


@pytest.mark.parametrize("door", [ANSWERS, DECISIONS, LABELS])
def test_a_json_list_is_told_the_object_that_holds_it(door: Door) -> None:
    item = read(json.dumps([ROW, ROW]).encode(), door)
    assert (item.lines, item.tree) == ([], None)
    assert item.reason.endswith(f'a JSON list; expected one object, JSON lines, or {{"{door.rows}": [...]}}')


def test_a_bad_row_is_named_by_its_line_in_the_message() -> None:
    lines = read(b'{"id": "a"}\n\nno json\n{"id": "b"}')
    lines.refuse(1, "invalid_row", "not JSON")
    assert lines.reason == "line 3: not JSON"
    listed = read(json.dumps({"observations": [ROW, ROW]}).encode())
    listed.refuse(1, "invalid_row", "bad")
    assert listed.reason == "observations[1]: bad"
    alone = read(b"no json")
    alone.refuse(0, "invalid_row", "not JSON")
    assert alone.reason == "not JSON"


def test_labels_get_the_model_and_no_time() -> None:
    label = {"id": "m-1", "label": "ham"}
    assert rows(read(json.dumps(label).encode(), LABELS)) == [label]
    assert rows(read(json.dumps(label).encode(), LABELS, "mail")) == [label | {"model": "mail"}]
    asked = label | {"question": "spam"}
    assert rows(read(json.dumps(asked).encode(), LABELS, "mail")) == [asked]
    several = read(json.dumps({"labels": [label], "question": "spam"}).encode(), LABELS, "mail")
    assert several.tree == {"labels": [label], "question": "spam"}
    assert several.ids == {"m-1"}


@pytest.mark.parametrize("value", [None, b"", b" \n"])
def test_a_message_without_a_value_is_refused(value: bytes | None) -> None:
    item = read(value)
    assert not item.lines
    assert item.tree is None
    assert [problem.code for problem in item.problems] == ["no_value"]


@pytest.mark.parametrize(
    "value", [b"\xff\xfe\x00", b"no json", b'{"id": "a"', b"[" * 100_000, b'{"id": "a", "id": "b"}', b"3"]
)
def test_what_is_not_an_object_is_left_to_the_service(value: bytes) -> None:
    assert read(value).lines == [value]
    assert read(value, LABELS).ids == frozenset()


def test_a_repeated_name_is_not_lost() -> None:
    spread = b'{"id": "a",\n "confidence": 0.1,\n "confidence": 0.9}'
    assert read(spread).lines == [spread.replace(b"\n", b" ")]


@given(
    st.lists(st.integers(0, 30), unique=True, min_size=1).flatmap(
        lambda found: st.tuples(st.just(sorted(found)), st.permutations(found), st.integers(0, len(found)))
    )
)
def test_offsets_are_those_of_a_slow_twin(case: tuple[list[int], list[int], int]) -> None:
    read_offsets, order, count = case
    offsets, finished = Offsets(), set[int]()
    for offset in read_offsets:
        offsets.begin(offset)
    for offset in order[:count]:
        offsets.finish(offset)
        finished.add(offset)
        open_ = [one for one in read_offsets if one not in finished]
        before = [one for one in read_offsets if not open_ or one < open_[0]]
        assert offsets.position == (before[-1] + 1 if before else None)


def test_the_end_counts_only_when_nothing_is_open() -> None:
    offsets = Offsets()
    offsets.begin(3)
    offsets.reach_end(9)
    assert offsets.position is None
    offsets.finish(3)
    offsets.reach_end(9)
    assert offsets.position == 9
