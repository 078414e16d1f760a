"""Prefect's process worker with two fixes for a retry right after a crash (Prefect 3.8).

Prefect's worker marks a run whose process died as CRASHED, runs its hooks, and marks it again seconds later. A retry
that was requested in between is then marked as crashed before it starts. This worker reports a death once.

Until the second report the run holds its place in the worker. If the worker receives the retry in that time, it exits
with "this borrower is already holding one of this CapacityLimiter's tokens". This worker leaves the run for its next
poll or another worker.

`python -m pipeline.flows.worker [options of prefect worker start]` runs one flow at a time of the pool gpu by default.
"""

from __future__ import annotations

import runpy
import signal
import sys
from typing import TYPE_CHECKING, Any

from prefect.client.schemas.objects import StateType
from prefect.workers.process import ProcessWorker, ProcessWorkerResult

from pipeline.flows.server import POOL

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun
    from prefect.client.schemas.responses import WorkerFlowRunResponse

OPTIONS = ["--pool", POOL, "--type", "process", "--limit", "1"]


def is_known_dead(before: FlowRun, now: FlowRun) -> bool:
    """Return whether the death of an attempt is already recorded.

    The run may then wait for another attempt, or be in one.

    Args:
        before: The run as the worker received it, pending.
        now: The run on the server after the attempt's process ended.
    """
    kind = None if now.state is None else now.state.type
    begun = now.run_count - before.run_count
    if kind == StateType.PENDING:  # both for an attempt that died before it started and for the next one
        return begun > 0
    return kind not in (StateType.RUNNING, StateType.CANCELLING) or begun > 1


def report_once() -> None:
    """Make the workers of this process skip a second report of the same death."""
    run = ProcessWorker.run

    async def run_and_look(self: ProcessWorker, flow_run: FlowRun, *rest: Any, **options: Any) -> ProcessWorkerResult:
        result = await run(self, flow_run, *rest, **options)
        if result.status_code and is_known_dead(flow_run, await self.client.read_flow_run(flow_run.id)):
            return ProcessWorkerResult(status_code=0, identifier=result.identifier)
        return result

    ProcessWorker.run = run_and_look  # type: ignore[method-assign]


def leave_held() -> None:
    """Make the workers of this process skip runs that still hold a place in them."""
    submit = ProcessWorker._submit_scheduled_flow_runs

    async def submit_others(self: ProcessWorker, flow_run_response: list[WorkerFlowRunResponse]) -> list[FlowRun]:
        held = self._limiter.statistics().borrowers if self._limiter else ()
        return await submit(self, [one for one in flow_run_response if one.flow_run.id not in held])

    ProcessWorker._submit_scheduled_flow_runs = submit_others  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    # Prefect ends a worker by SIGINT. Background jobs of a shell script ignore it, and so do the processes they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    report_once()
    leave_held()
    sys.argv = ["prefect", "worker", "start", *OPTIONS, *sys.argv[1:]]
    runpy.run_module("prefect", run_name="__main__", alter_sys=True)
