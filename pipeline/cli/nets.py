"""Lists the values of training.net with their sizes and, with --measure, their training speed on this machine."""

from __future__ import annotations

import argparse

from pipeline.cli import common
from trueodds.cli import Subparsers
from trueodds.processes import extensions

Row = tuple[str, ...]


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("nets", description=__doc__, epilog=common.examples("nets", "nets --measure"))
    parser.add_argument("--measure", action="store_true", help="train each net on a few batches: 2 minutes on 2 cores")


def run(arguments: argparse.Namespace) -> int:
    from pipeline.nets import shapes
    from pipeline.nets.sizes import rows_a_second

    header: Row = HEADER
    rows = nets_table()
    if arguments.measure:
        header = (*header[:-1], "rows/s here", header[-1])
    widths = [max(len(row[column]) for row in (HEADER, *rows)) for column in range(3)]
    print(_line(header, widths))
    for *columns, about in rows:
        if arguments.measure:
            columns.append(f"{rows_a_second(shapes()[columns[0]]):,.0f}")
        print(_line((*columns, about), widths), flush=True)
    return 0


HEADER = ("net", "parameters", "MFLOP a row", "takes, and what may change")


def nets_table() -> list[Row]:
    """Return (name, parameters, MFLOP, input and options) of every net with 100 classes.

    Inputs are images of 32 pixels, 30 features, texts of 1,000 words, and trees of 19 words.
    """
    from dataclasses import fields

    from pipeline.nets import OPTIONS, shapes
    from pipeline.nets.sizes import size

    rows: list[Row] = []
    for name, shape in shapes().items():
        net = size(shape)
        known = {field.name for field in fields(shape)}
        options = ", ".join(f"{key}={_text(getattr(shape, key))}" for key in OPTIONS if key in known) or "-"
        about = "; ".join(filter(None, [f"{shape.kind}s", options, extensions.source("nets", name)]))
        rows.append((name, f"{net.parameters:,}", _mega(net.flops), about))
    return rows


def _mega(count: int) -> str:
    """Return a count in millions."""
    millions = count / 1e6
    return f"{millions:,.0f}" if millions >= 100 else f"{millions:.3g}"


def _text(value: object) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _line(columns: Row, widths: list[int]) -> str:
    """Return one line of the table."""
    name, *numbers, about = columns
    cells = [number.rjust(width) for number, width in zip(numbers, [*widths[1:], len("rows/s here")], strict=False)]
    return "  ".join([name.ljust(widths[0]), *cells, about])
