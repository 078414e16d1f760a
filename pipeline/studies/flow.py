"""The Prefect flow `study`: `prefect deployment run study/own -p study=losses.yaml`, once per worker that shares it."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import State, flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.runtime import flow_run
from prefect.states import Completed

from pipeline.flows.train import slot
from pipeline.studies import OUT
from trueodds.errors import UserError
from trueodds.processes import binding
from trueodds.texts import plural

if TYPE_CHECKING:
    from pipeline.studies.runs import Place

GPU = "gpu"
"""Tag of a run, and name of the concurrency limit in which it takes a slot."""


@task(persist_result=False, tags=[GPU])
def run_one(home: Path, place: Place) -> None:
    """Carry out one run of a study in a slot of the limit `gpu`."""
    from pipeline.studies import running

    with slot(GPU):
        running.run_one(home, place, get_run_logger().info)


def run_name() -> str:
    """Return the name of the study, such as `losses.yaml`."""
    return str((flow_run.get_parameters() or {}).get("study", "study"))


@flow(name="study", flow_run_name=run_name, persist_result=False, log_prints=False)
def study(study: str, out: str = str(OUT), kept_runs: str | None = None, code: Sequence[str] = ()) -> State[Any]:
    """Run a study. Each run is a task. Finished runs, and runs that another worker works on, are not started.

    Args:
        study: Path of its .yaml file in the checkout, or a paper's study such as focal/table1.
        out: Folder for the table, figures and page.
        kept_runs: Folder that keeps finished runs; those in it are done.
        code: Commits, as for `trueodds study --code`.
    """
    from pipeline.studies import format as study_format  # registering the flow needs none of these: seconds of work
    from pipeline.studies import measuring, reporting, running
    from pipeline.studies.kept_runs import of_arguments

    home, log = Path.cwd(), get_run_logger()
    if "PREFECT__FLOW_RUN_ID" in os.environ:  # started by a worker: stop when the worker stops
        binding.die_with_parent(signal.SIGTERM, os.getppid())

    def make(home: Path, place: Place) -> None:
        state = run_one.with_options(name=place.run.name, task_run_name=place.run.name)(home, place, return_state=True)
        if state.is_failed():
            error = state.result(raise_on_failure=False)
            raise error if isinstance(error, UserError) else running.RunError(f"{place.run.name}: {error}")
        state.result()

    read = study_format.read(study)
    folder_of_kept = of_arguments(kept_runs, code)
    run = partial(running.run_all, make=make, kept_runs=folder_of_kept)
    done = running.carry_out(read, home / "params.yaml", home, log.info, run, folder_of_kept)
    folder = Path(out) / Path(study).with_suffix("").name
    log.info(reporting.report(read, done, folder))
    cells = reporting.cells(read, measuring.rows_of(done.places, read.calibrators))
    words = [f"# {read.title}", "", read.about, "", *reporting.markdown(cells)]
    create_markdown_artifact("\n".join(words), key="study", description=f"{(folder / reporting.PAGE).resolve()}")
    done.check()
    return Completed(message=f"{plural(len(done.places), 'run')}; {(folder / reporting.PAGE).resolve()}")


logging.getLogger("pipeline").setLevel(logging.INFO)
