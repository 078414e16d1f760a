"""A result of `python -m benchmarks.serving` as the README shows it, and beside what was aimed at."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.servers import RAW

SERVERS = ("ours", "LitServe", "BentoML", RAW)


def goals(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What was aimed at, and what was found; `ratio` is of requests per second, ours by theirs."""
    cells = {(c["net"], c["server"], c["connections"]): c for c in result["cells"] if c["body"] != "pixels"}

    def best(net: str, server: str) -> dict[str, Any] | None:
        return max((c for k, c in cells.items() if k[:2] == (net, server)), key=lambda c: c["rps"], default=None)

    found: list[dict[str, Any]] = []
    for net, wanted in (("resnet8", 2.0), ("resnet20", 1.4)):
        ours, theirs = best(net, "ours"), best(net, "LitServe")
        if ours and theirs:
            ratio = ours["rps"] / theirs["rps"]
            reached = ratio >= wanted and ours["p99_ms"] < theirs["p99_ms"]
            found.append({"net": net, "beside": "LitServe", "wanted": wanted, "ratio": ratio, "reached": reached})
            found[-1] |= {"p99_ms": ours["p99_ms"], "their_p99_ms": theirs["p99_ms"]}
    for turns in result["turns"]:
        if turns["net"] == "resnet18":
            found.append({"net": "resnet18", "beside": RAW, "wanted": 0.9, "ratio": turns["ratio"]})
            found[-1]["reached"] = turns["ratio"] >= 0.9
    rate = max((row["labels_per_second"] for row in result["labels"]), default=0.0)
    return [*found, {"labels_per_second": rate, "wanted": 20_000, "reached": rate >= 20_000}]


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


def markdown(result: dict[str, Any]) -> str:
    """The README's table: requests per second, and p50 / p99 in milliseconds."""
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
    beside = [f"{t['net']} {t['ratio']:.2f}" for t in result.get("turns", [])]
    lines += (
        ["", f"Images a second at 32 connections, of {RAW}'s, both in turn: {', '.join(beside)}."] if beside else []
    )
    rates = [f"{row['labels_per_second']:,.0f}/s in calls of {row['labels_per_call']:,}" for row in result["labels"]]
    return "\n".join([*lines, "", f"Labels through `/feedback`, durable when answered: {', '.join(rates)}."])
