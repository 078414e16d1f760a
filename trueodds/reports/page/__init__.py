"""The report as a page: whole without a script and livelier with it."""

from trueodds.reports.page.rendering import SCRIPT, STYLE, Site, environment, render

__all__ = ["SCRIPT", "STYLE", "Site", "environment", "render"]
