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
    lines = ["| fault | how often | outcome |", "|---|---|---|"]
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
    kinds = {
        "away": "unreachable",
        "denies": "access denied",
        "hangs": "no reply",
        "half a bundle": "half a bundle in it",
        "publisher killed": "publisher killed",
    }
    often = ", ".join(f"{found[kind]} times {words}" for kind, words in kinds.items())
    return often, f"kept answering, also after a restart without the bucket; {_kept(found)}"


def _bodies(found: dict[str, Any]) -> tuple[str, str]:
    beside = found["watched"]
    worst = f"a health probe waited {beside['worst_ms']:.0f} ms at most ({beside['p99_ms']:.0f} ms p99)"
    return f"{found['sent']:,}", f"0 answers of 5xx; {worst}; memory grew by {beside['grown_mb']:.0f} MB"


def _clients(found: dict[str, Any]) -> tuple[str, str]:
    cut = sum(value for key, value in found["cut"].items() if key != "answered_2xx")
    often = f"{cut:,} truncated bodies, {found['slow']['clients']:,} clients that send a byte at a time"
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
    often = f"100 and 300 connections with 100 requests each, or that do not read their answers: {answers:,} answers"
    came = f"a new connection's health probe waited {worst:.0f} ms at most"
    again = f"with {few['files']} open files, it answered again {few['recovered_seconds']:.1f} s after they left"
    return often, f"{came}; {again}"


def _database(found: dict[str, Any]) -> tuple[str, str]:
    often = ", ".join(f"{found[kind]} times {kind}" for kind in ("restarted", "gone", "hanging"))
    return often, f"calls answered 503, then 200 again; {_kept(found)}"


def _full_volume(found: dict[str, Any]) -> tuple[str, str]:
    kinds = [kind for kind in found.values() if isinstance(kind, dict) and "failed" in kind]
    parts = ("copying", "changing_roles", "published", "predictions", "labels")
    total = {part: sum(kind[part] for kind in kinds) for part in parts}
    often = f"{total['copying']} times while copying, {total['changing_roles']} while changing roles"
    came = "refused with a message, nothing changed or left over"
    after = f"with free space {total['published']} of {total['published']} published"
    return often, f"{came}; {after}; {_kept(total)}"


def _publishers(found: dict[str, Any]) -> tuple[str, str]:
    left = ("half_copied", "without_role", "without_line")
    often = f"{found['killed']} times: " + ", ".join(f"{found[part]} {part.replace('_', ' ')}" for part in left)
    came = "no incomplete bundle was served; publishing again completed it, with one line in the log each"
    return often, f"{came}; {_kept(found)}"


def _replicas(found: dict[str, Any]) -> tuple[str, str]:
    often = f"{found['rounds']} full hours, {found['labelled_elsewhere']:,} labels at the other replica"
    periods = f"{found['hours']} hours, {found['minutes']} minutes and the alarm are the same at both replicas"
    return often, f"{periods}, {found['webhook_calls']} call of the webhook; {_kept(found)}"


def _restarts(found: dict[str, Any]) -> tuple[str, str]:
    often = f"{found['stopped']} times stopped and started, {found['killed']} times `kill -9`"
    return often, f"503 and not ready, with a message; then 200 again without help; {_kept(found)}"


ROWS: dict[str, tuple[str, Callable[[dict[str, Any]], tuple[str, str]]]] = {
    "kills": ("`kill -9`", _kills),
    "kills_postgresql": ("`kill -9`, PostgreSQL", _kills),
    "disk": ("disk full", _disk),
    "clock": ("clock jumps", _clock),
    "bundles": ("damaged bundle", _bundles),
    "buckets": ("bucket of models fails", _buckets),
    "bodies": ("malformed bodies", _bodies),
    "damaged_files": ("damaged Parquet files", _bodies),
    "clients": ("truncated bodies, slow clients", _clients),
    "floods": ("floods from one connection", _floods),
    "crowds": ("many connections at once", _crowds),
    "database": ("PostgreSQL fails", _database),
    "full_volume": ("publishing on a full disk", _full_volume),
    "publishers": ("`kill -9` of a publisher", _publishers),
    "replicas": ("clocks of two replicas 10 s apart", _replicas),
    "restarts": ("PostgreSQL under two replicas", _restarts),
}
