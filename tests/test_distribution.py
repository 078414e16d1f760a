"""tests/distribution.py names tests that are here; a name that is gone would put its test last without a word."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import ROOT, pytest_runtest_setup, pytest_xdist_make_scheduler
from tests.distribution import MINUTES, SECONDS, SHARED, few_parameters


@pytest.mark.parametrize("name", [*MINUTES, *SECONDS, *SHARED, *SHARED.values()])
def test_a_name_is_that_of_a_file_a_test_or_a_page(name: str) -> None:
    file, _, test = name.partition("::")
    function, _, page = test.partition("[")
    assert f"def {function}" in (ROOT / file).read_text(encoding="utf-8")
    assert not page or (ROOT / "docs" / page.rstrip("]")).with_suffix(".md").is_file()


def test_none_is_named_twice() -> None:
    assert len(set(MINUTES)) == len(MINUTES) and len(set(SECONDS)) == len(SECONDS)


class Item:
    """What `few_parameters` sees of a test."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self.marks = nodeid, {mark.name: mark.mark for mark in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks[mark.name] = mark.mark


def test_parameters_behind_the_few_are_full() -> None:
    few = [Item(f"a.py::test[{k}]", pytest.mark.few(2)) for k in range(4)]
    items: Any = [few[0], Item("a.py::other[0]"), *few[1:], Item("b.py::test[0]", pytest.mark.few(1))]
    few_parameters(items)
    assert [item.nodeid for item in items if "full" in item.marks] == ["a.py::test[2]", "a.py::test[3]"]


@pytest.mark.parametrize("until", ["0", "1e12"])
def test_no_long_test_begins_when_the_time_is_over(until: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, long, containers = (
        Item("a.py::test", *marks) for marks in ((), (pytest.mark.full,), (pytest.mark.containers,))
    )
    monkeypatch.setenv("TEST_UNTIL", until)
    begun = []
    for item in (fast, long, containers):
        with suppress(pytest.skip.Exception):
            pytest_runtest_setup(item)  # type: ignore[arg-type]  # a stand-in
            begun.append(item)
    assert begun == ([fast] if until == "0" else [fast, long, containers])


class Process:
    """What the scheduler sees of one of pytest-xdist's processes: it is sent the places of tests in the collection."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.gateway = SimpleNamespace(id="")
        self.shutting_down = False

    def send_runtest_some(self, places: list[int]) -> None:
        self.sent += places

    def shutdown(self) -> None:
        pass


def test_files_begin_in_the_order_of_the_collection_however_many_tests_they_have() -> None:
    option = SimpleNamespace(dist="loadfile", loadscopereorder=True)
    values = {"tx": ["2*popen"], "dist": "loadfile"}
    config: Any = SimpleNamespace(option=option, getvalue=values.__getitem__, getoption=values.__getitem__)
    scheduler = pytest_xdist_make_scheduler(config, None)
    assert scheduler is not None
    collection = [f"long.py::{k}" for k in range(3)] + [f"short.py::{k}" for k in range(5)]
    processes = [Process(), Process()]
    for process in processes:
        scheduler.add_node(process)
    for process in processes:
        scheduler.add_node_collection(process, collection)
    scheduler.schedule()
    assert [process.sent for process in processes] == [[0, 1, 2], [3, 4, 5, 6, 7]]
