"""The flow `report`: sums of the days that ended since the last run, the report of all days, and the alarm.

Each step writes whole files and finds what is done already. So a run that is repeated, or retried after a crash, ends
in the same state, and a run after some missed days makes them all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from prefect import State, Task, flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field

from trueodds.errors import MissingExtraError
from trueodds.files import FileChangedError

T = TypeVar("T")
RETRIES, RETRY_SECONDS = 2, 60
"""Retries of a step after a file that changed while it was read, a database that was away, or an error of the disk."""
SUMS, ALARM, PAGE, NUMBERS = "sums", "alarm.json", "report.html", "report.json"
"""Names in the flow's folder."""


def run_name() -> str:
    """Return the name of a run, such as `answers/*.parquet`."""
    return str((flow_run.get_parameters() or {}).get("answers"))


@flow(name="report", flow_run_name=run_name, persist_result=False, log_prints=False)
def report_on_warehouse(
    answers: str = "answers/*.parquet",
    labels: str | None = None,
    engine: str = "duckdb",
    folder: str = "warehouse",
    id_column: str = "id",
    label: str = "label",
    arrival: str = "",
    classes: list[str] | None = None,
    first_label: Annotated[int, Field(ge=0, le=1)] | None = None,
    positive: str | None = None,
    resolution: str | None = None,
    tolerance: Annotated[float, Field(gt=0, lt=0.5)] | None = None,
    alpha: Annotated[float, Field(gt=0, lt=1)] | None = None,
) -> State[None]:
    """Make the sums of each finished day that has none, report on all days, and let the alarm read the new days.

    The state of the run is *Alarm* if the calibration error has exceeded the tolerance.

    Args:
        answers: Path or pattern of the Parquet files with the answers, or a table of a database. They have a column
            `time`.
        labels: The same of the labels: id, label and `time` of arrival. None: the answers hold them.
        engine: `duckdb` for files, or the address of a database such as `postgres://user@host/logs`. Prefect stores the
            parameters of a run, so give no password: use PGPASSWORD or another source of credentials.
        folder: Folder of the results: sums/, alarm.json, report.html and report.json.
        id_column: Column that both tables share.
        label: Column of the labels.
        arrival: Column of the answers with the arrival of their labels, if there is no table of labels.
        classes: Names of the columns that are classes. None: as the tables show.
        first_label: Number of the first class, where labels are numbers. None: as the labels show.
        positive: The positive class of two.
        resolution: Step of rounded probabilities, or exact. None: as the rows of each day show.
        tolerance: Largest acceptable ECE of the alarm. None: that of its state; 0.02 for a new one.
        alpha: Share of calibrated versions that ever alarm. None: that of its state; 0.05 for a new one.
    """
    try:
        from trueodds.reports.warehouse.daily import describe, make_day, missing_days
        from trueodds.reports.warehouse.partitions import PartitionedTable
    except ModuleNotFoundError as error:
        raise MissingExtraError("report/warehouse", (error.name or "ibis").partition(".")[0], "warehouse") from None
    from trueodds.reports.table.reading import Form
    from trueodds.sums.rounding import Resolution

    log, place = get_run_logger(), Path(folder)
    form = Form(
        label=label,
        classes=tuple(classes or ()),
        first_label=first_label,
        positive=positive,
        resolution=None if resolution is None else Resolution.of(resolution),
    )
    table = PartitionedTable(answers=answers, labels=labels, engine=engine, key=id_column, arrival=arrival, form=form)
    changes = as_task("find missing days", missing_days, table, place / SUMS)
    for change in changes:
        log.info(describe(change, as_task(f"sums of {change.window}", make_day, table, change)))
    paths = sorted((place / SUMS).glob("*.parquet"))
    if not paths:
        return Completed(name="Skipped", message=f"{answers}: no day is finished, so there is nothing to report")
    headline, text = as_task("report", write_report, paths, place, positive)
    is_alarmed, readings = as_task("alarm", advance_alarm, paths, place / ALARM, tolerance, alpha)
    lines = [f"# {answers}", "", *readings, "", "```text", text, "```", ""]
    create_markdown_artifact("\n".join(lines), key="warehouse-report", description=f"{len(paths)} files of sums")
    log.info("%s %s", headline, " ".join(readings))
    return Completed(name="Alarm" if is_alarmed else "Completed", message=" ".join([headline, *readings]))


def write_report(paths: list[Path], folder: Path, positive: str | None) -> tuple[str, str]:
    """Write the report of files of sums as a page and as JSON.

    Returns:
        Its headline, and the whole report as text.
    """
    from trueodds.files import write_text
    from trueodds.reports.display.live import page_of
    from trueodds.reports.table.stored_sums import read_sums
    from trueodds.reports.table.table_report import report_of_table
    from trueodds.reports.table.text import text_of

    report = report_of_table(read_sums(paths)[1], positive=positive, trend="auto")
    write_text(folder / NUMBERS, report.model_dump_json(indent=2) + "\n")
    write_text(folder / PAGE, page_of(report, "--html"))
    return report.headline or report.reading, text_of(report)


def advance_alarm(
    paths: list[Path], state: Path, tolerance: float | None, alpha: float | None
) -> tuple[bool, list[str]]:
    """Let the alarm read the days that it has not read, and return whether it has fired, and its sentences."""
    from trueodds.reports.table.alarm_file import read_alarm, write_alarm
    from trueodds.reports.table.stored_sums import read_partition

    before = read_alarm(state, tolerance, alpha)
    alarm, notes = before.take([read_partition(path) for path in paths])
    if alarm != before or not state.exists():
        write_alarm(state, alarm)
    return alarm.is_alarmed, [*alarm.readings(), *notes]


def as_task(name: str, step: Callable[..., T], *arguments: Any) -> T:
    """Call a step as a Prefect task. It is retried if a file changed meanwhile, or a file or a database was away."""

    def call() -> T:
        return step(*arguments)

    named: Task[[], T] = Task(
        call,
        name=name,
        task_run_name=name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=RETRIES,
        retry_delay_seconds=RETRY_SECONDS,
        retry_condition_fn=lambda _task, _run, state: isinstance(
            state.result(raise_on_failure=False), FileChangedError | OSError
        ),
    )
    return named()
