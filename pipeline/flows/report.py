"""The flow `calibration-report`, which stores the live report of the last days as an artifact, with a link."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from prefect import State, flow, get_run_logger
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field

from trueodds.client import NO_ANSWER, CallError, Client
from trueodds.processes.choices import SERVICE

PATH = "/calibration-report"
_NUMBERS = {
    "accuracy": "accuracy",
    "mean_confidence": "mean confidence",
    "signed_gap": "accuracy - mean confidence",
    "nll": "NLL (nats)",
    "brier": "Brier score",
    "ece": "ECE",
}


def run_name() -> str:
    """Return the name of a run, such as `digits, 7 days`."""
    parameters = flow_run.get_parameters() or {}
    return f"{parameters.get('model') or 'default model'}, {parameters.get('days', 7)} days"


@flow(name="calibration-report", flow_run_name=run_name, persist_result=False, log_prints=False)
def calibration_report(
    model: str | None = None, days: Annotated[int, Field(ge=1, le=3650)] = 7, service: str | None = None
) -> State[None]:
    """Store the service's report on the answers of the last days.

    Args:
        model: Name of the model. None: the model for calls that name none.
        days: Number of days before now whose answers are included.
        service: URL of the service. None: TRUEODDS_SERVICE of the worker, or port 8000 of this machine. If neither
            answers, the run is skipped.
    """
    client = Client.from_environment(service)
    since = (datetime.now(UTC) - timedelta(days=days)).replace(minute=0, second=0, microsecond=0)
    query = {"since": since.isoformat(), **({"model": model} if model else {})}
    try:
        report = client.report(model=model, since=since, trend="day").model_dump(mode="json")
    except CallError as error:
        if error.code != NO_ANSWER or service or os.environ.get(SERVICE):
            raise
        return Completed(name="Skipped", message=f"{error}: nothing to report")
    create_markdown_artifact(
        report_markdown(report, f"{since:%Y-%m-%d} .. {datetime.now(UTC):%Y-%m-%d}"),
        key="calibration-report",
        description=f"{report['model']}/{report['version']}, {days} days",
    )
    both = {"model": report["model"], "version": report["version"]}
    create_link_artifact(
        f"{client.url}{PATH}?{urlencode(query | both)}", link_text="the page", key="calibration-report-page"
    )
    get_run_logger().info(report["reading"])
    return Completed(message=report.get("headline") or report["reading"])


def report_markdown(report: dict[str, Any], days: str) -> str:
    """Return the report's reading, alarm, first checks, advice and numbers as Markdown. Absent parts are left out."""
    lines = [f"# {report['model']}/{report['version']}, {days}", "", report["reading"], ""]
    alarm, advice, labelling = (report.get(part) or {} for part in ("alarm", "advice", "labelling"))
    if alarm:
        lines += [f"**Alarm: {alarm['state']}.** {alarm['reading']}", ""]
    checks = [f"- {check['reading']}" for check in report.get("checks", ())]
    lines += ["Check first:", "", *checks, ""] if checks else []
    if advice:
        command = f" `{advice['command']}`" if advice.get("command") else ""
        lines += [f"**Recalibrate?** {advice['reading']}{command}", ""]
    lines += [f"{labelling['coverage_reading']}\n"] if labelling.get("coverage_reading") else []
    if report.get("ece") is not None:
        lines += [f"| | | {report['level']:.0%} interval |", "|---|---:|---|"]
        for key, words in _NUMBERS.items():
            if report.get(key) is not None:
                low, high = report.get(f"{key}_lower"), report.get(f"{key}_upper")
                interval = "" if low is None or high is None else f"{low:.4f} .. {high:.4f}"
                lines.append(f"| {words} | {report[key]:.4f} | {interval} |")
        lines += [f"| ECE of chance alone (95%) | {report['floor_mean']:.4f} ({report['floor_p95']:.4f}) | |", ""]
    points = [point for point in (report.get("trend") or {}).get("points", ()) if point["answers"]]
    if points:
        lines += ["| day | answers | labels | accuracy | ECE | chance (95%) |", "|---|---:|---:|---:|---:|---:|"]
        for p in points:
            shown = ["" if p.get(k) is None else f"{p[k]:.4f}" for k in ("accuracy", "ece", "floor_p95")]
            lines.append(f"| {p['start'][:10]} | {p['answers']:,} | {p['labelled']:,} | {' | '.join(shown)} |")
    return "\n".join(lines).rstrip() + "\n"
