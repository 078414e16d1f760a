"""The report that a client reads from a service: its numbers, with the pictures and files of every report."""

from __future__ import annotations

from typing import Any

from trueodds.errors import MissingExtraError
from trueodds.reports.display.report_files import Content, DisplayedReport, json_tree
from trueodds.reports.schemas import Report
from trueodds.reports.words import level


def page_of(report: Report, user: str) -> str:
    """Render a report as an HTML page without a server. `user` names the caller in the message of an error.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    try:
        from trueodds.reports.page import render
    except ModuleNotFoundError as error:
        raise MissingExtraError(user, error.name or "jinja2", "report") from None
    return render(report)


class LiveReport(DisplayedReport, Report):
    """Calibration report of a service's answers, as `trueodds.Client.report` returns it.

    It has the fields of the service's answer as attributes, and the pictures and files of every report. `.html` is the
    page of the service without its links.

    Examples:
        >>> from trueodds.reports import report_of
        >>> from trueodds.sums.answers import AnswerSums
        >>> sums = trueodds.CalibrationSums.from_top([0.9, 0.8, 0.7, 0.6] * 100, [True, True, False, True] * 100)
        >>> answer = report_of("mail", "7", AnswerSums(sums.cells[0].astype(int), sums))
        >>> report = LiveReport.model_validate_json(answer.model_dump_json())
        >>> report.answers, report.to_dict()["verdict"]
        (400, 'leans_uneven')
        >>> report.save("report.json")
    """

    def to_dict(self) -> dict[str, Any]:
        tree: dict[str, Any] = json_tree(self)
        return tree

    def _content(self) -> Content:
        title = f"{self.counts}; intervals at {level(self.level)}"
        return Content(title, self.counts, self.reading, vars(self), self.bins, self.level, self.positive, self.ordered)

    def _page(self) -> str:
        return page_of(self, "a live report in an .html file")
