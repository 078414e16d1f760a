"""How pytest-xdist hands out the tests: a file at a time, the walk of a page by itself, what takes minutes first."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

MINUTES = (
    "tests/flows/test_deaths.py",
    "tests/flows/test_recalibrate.py",
    "tests/methods/test_training.py",  # this and the next need no `dvc repro`, which the others wait for
    "tests/service/test_faults.py",
    "tests/docs/test_pages.py::test_every_block_in_order[training]",
    "tests/docs/test_pages.py::test_every_block_in_order[scheduling]",
    "tests/docs/test_pages.py::test_every_block_in_order[data]",
    "tests/docs/test_pages.py::test_cifar100_by_the_command_of_its_page",
    "tests/docs/test_pages.py::test_every_block_in_order[recalibration]",
)
"""Begun last, each would leave the other processes idle at the end; the longest first."""
SECONDS = (
    "tests/docs/test_readme.py",
    "tests/test_stages.py",
    "tests/service/test_process.py",
    "tests/service/test_openapi.py",
    "tests/test_training_model.py",
    "tests/flows/test_workspace.py",
    "tests/test_recalibrate.py",
    "tests/test_vector_training.py",
)
"""Files whose fast tests take ten seconds of a processor and more, by `make test`'s table in docs/developing.md."""
SHARED = {"tests/flows/test_train.py": "tests/flows/test_recalibrate.py"}
"""A file -> the one whose process runs it as well: for both it starts one Prefect server."""


class Distribution(LoadFileScheduling):  # type: ignore[misc]
    """`--dist loadfile`, but for the walks, of which each has a copy of the repository."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return nodeid if "::test_every_block_in_order[" in nodeid else SHARED.get(file, file)


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts in place; what MINUTES and SECONDS do not name keeps its order."""
    places = {name: place for place, name in enumerate((*MINUTES, *SECONDS))}
    items.sort(key=lambda item: places.get(item.nodeid, places.get(item.nodeid.split("::")[0], len(places))))
