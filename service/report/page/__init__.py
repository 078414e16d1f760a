"""The report as a page: server-rendered, one request, whole without a script and livelier with it."""

from service.report.page.rendering import HEADERS, STYLE, problem, render
from service.report.page.route import Readable, router, wanted

__all__ = ["HEADERS", "STYLE", "Readable", "problem", "render", "router", "wanted"]
