"""The calibration report: pure functions of sums and rows, for a service's answers or a table of answers.

`report_of` assembles a report from its parts, which `labelling_of`, `slices_of`, `tags_of` and `trend_of` compute. If
the report `is_off`, `first_checks` gives the first things to look at. `page.render` turns a report into an HTML page
(extra `report`: jinja2).
"""

from trueodds.reports.composition import report_of
from trueodds.reports.data import LabelledRows
from trueodds.reports.first_checks import first_checks, is_off
from trueodds.reports.labelling import labelling_of
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import Report, Window
from trueodds.reports.slices import Marks, slices_of, sources_of, tags_of, trend_of

__all__ = [
    "LabelledRows",
    "Marks",
    "ReportOptions",
    "Report",
    "Window",
    "first_checks",
    "is_off",
    "labelling_of",
    "report_of",
    "slices_of",
    "sources_of",
    "tags_of",
    "trend_of",
]
