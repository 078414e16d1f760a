"""Results of `benchmarks.scaling.growth` and `benchmarks.scaling.partitions` as docs/scaling.md shows them."""

from __future__ import annotations

from typing import Any

from trueodds.texts import plural

Numbers = dict[str, Any]


def markdown(found: Numbers) -> str:
    """What grew, to how much, and what that took."""
    rows = []
    for labels, row in found["labels"].items():
        new, again = row["new"]["p50_ms"], row["again"]["p50_ms"]
        took = (
            f"the first report in {row['first_ms']:.0f} ms, at another level in {new:.0f} ms, again in {again:.0f} ms"
        )
        rows.append((f"{labels} labels of 100 classes, as sums", f"{took}; {row['store_mb']:.0f} MB of store"))
    for models, row in found["models"].items():
        took = f"{row['pss_mb']:,} MB, ready after {row['ready_s']:.1f} s, an answer in {_ms(row['answer'])}"
        rows.append((f"{plural(int(models), 'model')} loaded", f"{took}; metrics in {row['metrics_ms']:.0f} ms"))
    for tags, row in found["tags"].items():
        rows.append((f"{int(tags):,} tags", f"a report by tag in {_ms(row['report'])}, {row['rows']} rows"))
    for count, row in found["processes"].items():
        rate = f"{row['answers_and_labels_per_second']:,} answers, and as many labels, a second"
        rows.append((f"{plural(int(count), 'service')} on PostgreSQL", f"{rate}; a call of 8 in {_ms(row)}"))
    kept = found["retention"]
    during, after = _ms(kept["during"]), _ms(kept["after"])
    rows.append(
        (
            f"retention of {kept['rows']:,} answers while serving",
            f"{kept['seconds']:.1f} s; an answer in {during}, then in {after}",
        )
    )
    full = found["connections"]
    of = f"{full['services']} with {full['each']} connections each, of {full['max_connections']}"
    rows.append(("busy services until PostgreSQL refuses one", of))
    lines = ["| what | measured (p50 / p99) |", "|---|---|"]
    return "\n".join([*lines, *(f"| {what} | {took} |" for what, took in rows)])


def partitions(found: Numbers) -> str:
    """One table beside twelve partitions."""
    one, many = found["one table"], found["by month"]
    names = {
        "insert_rows_per_second": "answers stored a second",
        "lookup_p50_ms": "look-up of one id, ms",
        "lookup_of_200_p50_ms": "look-up of 200 ids, ms",
        "rows_per_second": "answers that retention removes a second",
        "wal_bytes_per_row": "bytes of WAL for each that it removes",
        "mb_before": "MB of predictions before retention",
        "mb_after": "MB after it and VACUUM, free for new rows",
    }
    lines = ["| | one table | by month |", "|---|---|---|"]
    lines += [f"| {text} | {one[name]:,} | {many[name]:,} |" for name, text in names.items()]
    dropped = f"{many['month_rows']:,} in {1e3 * many['drop_partition_seconds']:.0f} ms, their labels left"
    return "\n".join([*lines, f"| dropping a month's answers | | {dropped} |"])


def _ms(times: Numbers) -> str:
    return f"{times['p50_ms']:.1f} / {times['p99_ms']:.1f} ms"
