"""Which tests are fast ones, and how pytest-xdist hands them out: a file at a time.

First what takes minutes, by itself if it shares nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

import pytest
from xdist.scheduler import LoadFileScheduling

T = TypeVar("T")

MINUTES = (
    "tests/methods/test_training.py",  # this one needs no `dvc repro`, which the others wait for
    "tests/flows/test_recalibrate.py",
    "tests/warehouse/test_engines.py",  # waits for Spark
    "tests/warehouse/test_database_days.py",  # so does this one
    "tests/flows/test_train.py",
    "tests/flows/test_study.py",
    "tests/flows/test_remote.py",
    "tests/flows/test_deaths.py",
    "tests/docs/test_pages.py::test_every_block_in_order[tutorials/pipeline]",
    "tests/streams/test_kills.py",
    "tests/docs/test_pages.py::test_every_block_in_order[how-to/run-a-study]",
    "tests/docs/test_pages.py::test_every_block_in_order[how-to/train]",
    "tests/docs/test_site.py",
    "tests/studies/test_study.py",
    "tests/docs/test_pages.py::test_every_block_in_order[how-to/import-a-model]",
    "tests/docs/test_pages.py::test_cifar100_by_the_command_of_its_page",
    "tests/test_training_model.py",
    "tests/docs/test_pages.py::test_every_block_in_order[how-to/text-models]",
    "tests/test_stages.py",
    "tests/test_starter.py",
    "tests/test_export.py",
    "tests/docs/test_pages.py::test_every_block_in_order[tutorials/fine-tune-photos]",
    "tests/service/test_faults.py::test_kills",
    "tests/service/test_faults.py::test_killed_publishers",
    "tests/service/test_faults.py::test_publishing_",
    "tests/service/test_faults.py::test_clock_jumps",
    "tests/service/test_faults.py::test_two_replicas_whose_clocks_disagree",
    "tests/service/test_faults.py",
    "tests/service/test_bucket.py",
    "tests/docs/test_readme.py::test_make_run",
    "tests/service/test_alarm_process.py",
    "tests/service/test_page_browser.py",
    "tests/docs/test_pages.py::test_every_block_in_order[how-to/use-your-data]",
    "tests/test_shift.py",
    "tests/test_plan.py",
    "tests/test_speed.py",
    "tests/test_nets.py",
    "tests/test_examples.py",
    "tests/calibrators/test_calibrated.py",
    "tests/studies/test_papers.py",
    "tests/test_rare_positives.py",
    "tests/client/test_calls.py",
    "tests/test_wheel.py",
    "tests/service/test_alarm_streams.py",
    "tests/test_training_processes.py",
    "tests/service/store/test_killed.py",
    "tests/service/store/test_archive.py",
    "tests/test_model_folder.py",
    "tests/test_train.py",
    "tests/test_live_demo.py",
    "tests/test_recalibrate.py",
    "tests/docs/test_pages.py::test_every_block_in_order",
    "tests/test_nets_command.py",
    "tests/studies/test_drawing.py",
    "tests/service/test_decision_models.py",
    "tests/test_curves.py",
)
"""Begun last, each would leave the other processes idle at the end; those that wait most first."""
SECONDS = (
    "tests/test_stages.py",
    "tests/warehouse/test_partitions.py",
    "tests/warehouse/test_equality.py",
    "tests/warehouse/test_bucket_tables.py",
    "tests/service/test_openapi.py",
    "tests/test_starting.py",
    "tests/flows/test_workspace.py",
    "tests/streams/test_consume.py",
    "tests/service/store/test_maturing.py",
    "tests/test_recalibrate_prior_shift.py",
    "tests/metrics/test_sequential.py",
    "tests/metrics/test_ece_interval.py",
    "tests/service/test_process.py",
    "tests/test_recalibrate.py",
    "tests/methods/test_meta_training.py",
    "tests/calibrators/test_calibrators.py",
    "tests/test_ensembles.py",
    "tests/service/test_observe.py",
    "tests/test_layers.py",
    "tests/warehouse/test_command.py",
    "tests/warehouse/test_table_objects.py",
    "tests/test_vector_training.py",
)
"""Files whose fast tests take ten seconds of a processor and more, by `make test`'s table in docs/how-to/develop.md."""
ONE_SERVER = {
    "tests/flows/test_recalibrate.py": ("flows/test_train", "flows/test_study", "flows/test_remote"),  # Prefect's
    "tests/client/test_calls.py": (
        *("client/test_admin", "client/test_decisions", "client/test_inputs", "client/test_judge"),
        *("client/test_label_queue", "client/test_replay_run", "client/test_retries"),
    ),
}
"""A file -> the files that its process runs as well: for all of them it starts one server."""
SHARED = {f"tests/{name}.py": first for first, names in ONE_SERVER.items() for name in names}
ALONE = tuple(name for name in MINUTES if "::" in name)


class Distribution(LoadFileScheduling):  # type: ignore[misc]
    """`--dist loadfile`, but for tests of MINUTES: they share nothing with their file that would be made twice."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return nodeid if nodeid.startswith(ALONE) else SHARED.get(file, file)


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts in place; what MINUTES and SECONDS do not name keeps its order."""
    names = (*MINUTES, *SECONDS)

    def place(item: pytest.Item) -> int:
        file = item.nodeid.split("::")[0]
        named = (name == file or (name in ALONE and item.nodeid.startswith(name)) for name in names)
        return next((k for k, is_here in enumerate(named) if is_here), len(names))

    items.sort(key=place)


def few_parameters(items: Iterable[pytest.Item]) -> None:
    """Marks as `full` what a test marked `few(n)` has behind the first n of its parameters."""
    counts = Counter[str]()
    for item in items:
        if few := item.get_closest_marker("few"):
            test = item.nodeid.partition("[")[0]
            counts[test] += 1
            if counts[test] > few.args[0]:
                item.add_marker(pytest.mark.full)


def begun_elsewhere(entries: list[T], worker: int, workers: int) -> list[T]:
    """A folder's entries, begun at another one by each process: of two that read a file, the later finds its bytecode.

    pytest's rewriting of asserts takes as long as all imports do. In one order all processes would rewrite every file.
    """
    first = len(entries) * worker // workers
    return entries[first:] + entries[:first]
