"""A result of `python -m benchmarks.serving` as docs/results.md shows it, and beside what was aimed at."""

from __future__ import annotations

import re
import statistics
from typing import Any

from benchmarks.servers import RAW

SERVERS = ("ours", "LitServe", "BentoML", RAW)
WANTED = {("resnet8", "LitServe"): 2.0, ("resnet20", "LitServe"): 1.4, ("resnet18", RAW): 0.9}
"""Ours by theirs in requests per second: the goals."""


def goals(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What was aimed at, and what was found; `ratio` is of requests per second, ours by theirs, in turns.

    Beside LitServe our p99 has to be lower with every number of connections, not only with that of the best rate.
    """
    found: list[dict[str, Any]] = []
    for turns in result["turns"]:
        wanted = WANTED.get((turns["net"], turns["beside"]))
        if wanted is not None:
            p99 = _p99(turns)
            reached = turns["ratio"] >= wanted and all(mine < theirs for mine, theirs in p99.values())
            found.append({"net": turns["net"], "beside": turns["beside"], "wanted": wanted, "ratio": turns["ratio"]})
            found[-1] |= {"p99_ms": p99, "reached": reached}
    rate = max((row["labels_per_second"] for row in result["labels"]), default=0.0)
    return [*found, {"labels_per_second": rate, "wanted": 20_000, "reached": rate >= 20_000}]


def _p99(turns: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """By connections ours and LitServe's, medians over the turns; none beside onnxruntime alone, which has no queue."""
    if turns["beside"] == RAW:
        return {}
    middle = {(row["server"], row["connections"]): statistics.median(row["p99_ms"]) for row in turns["series"]}
    counts = sorted({connections for _, connections in middle})
    return {str(c): (middle["ours", c], middle[turns["beside"], c]) for c in counts}


def rate(trial: dict[str, Any]) -> float:
    """Good answers per second of a trial; none of one that failed to start, or more than one call in a hundred."""
    return float(trial["rps"]) if "rps" in trial and trial["failed"] <= 0.01 * trial["requests"] else 0.0


def _chosen(trials: list[dict[str, Any]], net: str) -> list[str]:
    """Of each server the variant that was measured."""
    best: dict[str, dict[str, Any]] = {}
    for trial in trials:
        server = re.split("[ ,]", trial["variant"])[0]
        if trial["net"] == net and rate(trial) > (rate(best[server]) if server in best else 0):
            best[server] = trial
    return [trial["variant"].replace(", default options", " by default") for trial in best.values()]


def _beside(turns: dict[str, Any]) -> str:
    p99 = [f"{mine:.0f} and {theirs:.0f} ms at {c}" for c, (mine, theirs) in _p99(turns).items()]
    ratio = f"{turns['net']} {turns['ratio']:.2f} times {turns['beside']}'s"
    return f"{ratio} (p99 ours and theirs: {', '.join(p99)} connections)" if p99 else ratio


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/results.md: requests per second, and p50 / p99 in milliseconds."""
    cells = {(c["net"], c["body"], c["connections"], c["server"]): c for c in result["cells"]}
    memory = {(m["net"], m["server"]): m for m in result["memory"]}
    lines = ["| net, body | connections | " + " | ".join(SERVERS) + " |", "|---" * (2 + len(SERVERS)) + "|"]
    for net, body, connections in dict.fromkeys(k[:3] for k in cells if k[1] != "none"):
        row = [f"{net}, {body}", str(connections)]
        for name in SERVERS:
            cell = cells.get((net, "none" if name == RAW else body, connections, name))
            text = f"{cell['rps']:,.0f}/s, {cell['p50_ms']:.1f} / {cell['p99_ms']:.1f} ms" if cell else ""
            row.append(text + (f", {cell['failed']:,} failed" if cell and cell["failed"] else ""))
        lines.append("| " + " | ".join(row) + " |")
    for net in dict.fromkeys(net for net, _ in memory):
        held = [memory.get((net, name)) for name in SERVERS]
        row = [f"{m['pss_mb']:,.0f} MB" if m else "" for m in held]
        lines.append(f"| {net}, memory (PSS) | | {' | '.join(row)} |")
    chosen = [f"{net}: {', '.join(_chosen(result['trials'], net))}" for net in dict.fromkeys(net for net, _ in memory)]
    lines += ["", f"Options, the best of a short trial. {'. '.join(chosen)}."]
    if turns := [_beside(one) for one in result["turns"]]:
        lines += ["", f"In turns, requests per second: {'; '.join(turns)}."]
    rates = [f"{row['labels_per_second']:,.0f}/s in calls of {row['labels_per_call']:,}" for row in result["labels"]]
    return "\n".join([*lines, "", f"Labels through `/feedback`, durable when answered: {', '.join(rates)}."])
