"""What a caller likes best of what there is, by the headers Accept and Accept-Encoding."""

from __future__ import annotations


def prefers_html(accept: str) -> bool:
    """Whether an Accept header asks for HTML before JSON; `*/*` and a missing header do not."""
    return quality(accept, "text/html") > quality(accept, "application/json")


def quality(header: str, name: str) -> float:
    """The weight that a header gives a name, 0..1; 0 where the header does not list it."""
    weight = 0.0
    for part in header.lower().split(","):
        listed, *parameters = (word.strip() for word in part.split(";"))
        if listed == name:
            weight = max([_weight(p) for p in parameters if p.startswith("q=")], default=1.0)
    return weight


def _weight(parameter: str) -> float:
    try:
        return float(parameter[2:])
    except ValueError:
        return 0.0
