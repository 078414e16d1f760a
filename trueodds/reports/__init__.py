"""The calibration report: pure functions of sums and rows, for a service's answers and for a table of them.

`report_of` puts it together from its parts: `labelling_of`, `slices_of`, `tags_of`, `trend_of`; where it `is_off`,
`first_checks` say what to look at; `page.render` makes a page of it (extra `report`: jinja2).
"""

from trueodds.reports.checks import first_checks, is_off
from trueodds.reports.composition import report_of
from trueodds.reports.data import LabelledRows
from trueodds.reports.labelling import labelling_of
from trueodds.reports.options import Options
from trueodds.reports.schemas import Report, Window
from trueodds.reports.slices import slices_of, tags_of, trend_of

__all__ = [
    "LabelledRows",
    "Options",
    "Report",
    "Window",
    "first_checks",
    "is_off",
    "labelling_of",
    "report_of",
    "slices_of",
    "tags_of",
    "trend_of",
]
