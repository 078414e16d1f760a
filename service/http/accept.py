"""The choice between JSON and HTML, by the Accept header."""

from __future__ import annotations


def prefers_html(accept: str) -> bool:
    """Whether an Accept header asks for HTML before JSON; `*/*` and a missing header do not."""
    quality = {"text/html": 0.0, "application/json": 0.0}
    for part in accept.lower().split(","):
        media, *parameters = (word.strip() for word in part.split(";"))
        if media in quality:
            quality[media] = max([_quality(p) for p in parameters if p.startswith("q=")], default=1.0)
    return quality["text/html"] > quality["application/json"]


def _quality(parameter: str) -> float:
    try:
        return float(parameter[2:])
    except ValueError:
        return 0.0
