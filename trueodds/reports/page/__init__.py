"""The report as an HTML page. It is complete without JavaScript."""

from trueodds.reports.page.rendering import SCRIPT, STYLE, Site, environment, render

__all__ = ["SCRIPT", "STYLE", "Site", "environment", "render"]
