"""The table of docs/explanation/results.md for a result of `python -m benchmarks.faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def markdown(result: dict[str, Any]) -> str:
    """Return a row for each fault with its number and outcome. A result exists only if nothing was lost."""
    rows = [
        (label, *row(result["faults"][name]))
        for name, (label, row) in ROWS.items()
        if name in result["faults"] and "skipped" not in result["faults"][name]
    ]
    lines = ["| fault | how often | what came of it |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _kept(found: dict[str, Any]) -> str:
    return f"{found['predictions']:,} predictions and {found['labels']:,} labels acknowledged, 0 lost, 0 counted twice"


def _kills(found: dict[str, Any]) -> tuple[str, str]:
    parts = ("under_load", "while_starting", "while_stopping")
    return ", ".join(f"{found[part]:,} {part.replace('_', ' ')}" for part in parts), _kept(found)


def _disk(found: dict[str, Any]) -> tuple[str, str]:
    kinds = [kind for kind in found.values() if isinstance(kind, dict)]
    total = {key: sum(kind.get(key, 0) for kind in kinds) for key in ("filled", "predictions", "labels", "predict_503")}
    return f"{total['filled']} times", f"{total['predict_503']:,} calls answered 503, then 200 again; {_kept(total)}"


def _clock(found: dict[str, Any]) -> tuple[str, str]:
    return f"{found['jumps']} jumps, up to 75 years, both ways", _kept(found)


def _bundles(found: dict[str, Any]) -> tuple[str, str]:
    return f"{found['refused']} kinds of damage", "each refused with its reason, none served"


def _buckets(found: dict[str, Any]) -> tuple[str, str]:
    kinds = ("away", "denies", "hangs", "half a bundle", "publisher killed")
    often = ", ".join(f"{found[kind]} times {kind}" for kind in kinds)
    return often, f"answered on, also after a restart without it; {_kept(found)}"


def _bodies(found: dict[str, Any]) -> tuple[str, str]:
    beside = found["watched"]
    worst = f"a health probe waited {beside['worst_ms']:.0f} ms at most ({beside['p99_ms']:.0f} ms p99)"
    return f"{found['sent']:,}", f"0 answers of 5xx; {worst}; memory grew by {beside['grown_mb']:.0f} MB"


def _clients(found: dict[str, Any]) -> tuple[str, str]:
    cut = sum(value for key, value in found["cut"].items() if key != "answered_2xx")
    often = f"{cut:,} bodies cut, {found['slow']['clients']:,} clients that send a byte at a time"
    return often, f"a health probe waited {found['watched']['worst_ms']:.0f} ms at most; no connection was left open"


def _floods(found: dict[str, Any]) -> tuple[str, str]:
    kinds = found["kinds"].values()
    worst, p99, grown = (max(kind["watched"][name] for kind in kinds) for name in ("worst_ms", "p99_ms", "grown_mb"))
    sent = sum(kind["megabytes"] for kind in kinds) / 1000
    often = f"{len(kinds)} kinds of heads, trailers, chunks and requests without end, {sent:,.0f} GB"
    return often, f"a health probe waited {worst:.0f} ms at most ({p99:.0f} ms p99); memory grew by {grown:.0f} MB"


def _crowds(found: dict[str, Any]) -> tuple[str, str]:
    kinds, few = found["kinds"].values(), found["few files"]
    worst = max(kind["watched"]["worst_ms"] for kind in kinds)
    answers = sum(kind["answers"] for kind in kinds)
    often = f"100 and 300 connections with 100 requests each, or that read nothing: {answers:,} answers"
    came = f"a new connection's health probe waited {worst:.0f} ms at most"
    return often, f"{came}; with {few['files']} open files, answered {few['recovered_seconds']:.1f} s after they left"


def _database(found: dict[str, Any]) -> tuple[str, str]:
    often = ", ".join(f"{found[kind]} times {kind}" for kind in ("restarted", "gone", "hanging"))
    return often, f"503, then 200 again; {_kept(found)}"


def _full_volume(found: dict[str, Any]) -> tuple[str, str]:
    kinds = [kind for kind in found.values() if isinstance(kind, dict) and "failed" in kind]
    parts = ("copying", "changing_roles", "published", "predictions", "labels")
    total = {part: sum(kind[part] for kind in kinds) for part in parts}
    often = f"{total['copying']} times while copying, {total['changing_roles']} while changing roles"
    came = f"refused in words, nothing changed or left over; with space {total['published']} of {total['published']}"
    return often, f"{came} published; {_kept(total)}"


def _publishers(found: dict[str, Any]) -> tuple[str, str]:
    left = ("half_copied", "without_role", "without_line")
    often = f"{found['killed']} times: " + ", ".join(f"{found[part]} {part.replace('_', ' ')}" for part in left)
    return often, f"none served half, published again with one line each; {_kept(found)}"


def _replicas(found: dict[str, Any]) -> tuple[str, str]:
    often = f"{found['rounds']} full hours, {found['labelled_elsewhere']:,} labels at the other replica"
    periods = f"{found['hours']} hours, {found['minutes']} minutes and the alarm agree"
    return often, f"{periods}, {found['webhook_calls']} call of the webhook; {_kept(found)}"


def _restarts(found: dict[str, Any]) -> tuple[str, str]:
    often = f"{found['stopped']} times stopped and started, {found['killed']} times `kill -9`"
    return often, f"503 and unready in words, then 200 again by itself; {_kept(found)}"


ROWS: dict[str, tuple[str, Callable[[dict[str, Any]], tuple[str, str]]]] = {
    "kills": ("`kill -9`", _kills),
    "kills_postgresql": ("`kill -9`, PostgreSQL", _kills),
    "disk": ("disk full", _disk),
    "clock": ("clock jumps", _clock),
    "bundles": ("damaged bundle", _bundles),
    "buckets": ("bucket of models", _buckets),
    "bodies": ("hostile bodies", _bodies),
    "damaged_files": ("damaged Parquet files", _bodies),
    "clients": ("bodies cut, slow clients", _clients),
    "floods": ("floods from one connection", _floods),
    "crowds": ("many connections at once", _crowds),
    "database": ("database", _database),
    "full_volume": ("publishing without space", _full_volume),
    "publishers": ("`kill -9` of a publisher", _publishers),
    "replicas": ("clocks of two replicas 10 s apart", _replicas),
    "restarts": ("PostgreSQL under two replicas", _restarts),
}
