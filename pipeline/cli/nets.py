"""The nets that training.net can name, with their sizes, and how fast each trains here."""

from __future__ import annotations

import argparse

from pipeline.cli import common
from trueodds.cli import Subparsers

Row = tuple[str, ...]


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("nets", description=__doc__, epilog=common.examples("nets", "nets --measure"))
    parser.add_argument("--measure", action="store_true", help="train each on a few batches: 2 minutes on 2 cores")


def run(arguments: argparse.Namespace) -> int:
    from pipeline.nets import SHAPES
    from pipeline.nets.sizes import rows_a_second

    header: Row = HEADER
    rows = nets_table()
    if arguments.measure:
        header = (*header[:-1], "rows/s here", header[-1])
    widths = [max(len(row[column]) for row in (HEADER, *rows)) for column in range(3)]
    print(_line(header, widths))
    for *columns, about in rows:
        if arguments.measure:
            columns.append(f"{rows_a_second(SHAPES[columns[0]]):,.0f}")
        print(_line((*columns, about), widths), flush=True)
    return 0


HEADER = ("net", "parameters", "MFLOP a row", "takes, and what may change")


def nets_table() -> list[Row]:
    """(name, parameters, MFLOP, what it takes and its options) of every net, of 32 px or 30 features, 100 classes; nets
    of words of texts of 1,000 and trees of 19.
    """
    from dataclasses import fields

    from pipeline.nets import OPTIONS, SHAPES
    from pipeline.nets.sizes import size

    rows: list[Row] = []
    for name, shape in SHAPES.items():
        net = size(shape)
        known = {field.name for field in fields(shape)}
        options = ", ".join(f"{key}={_text(getattr(shape, key))}" for key in OPTIONS if key in known) or "-"
        rows.append((name, f"{net.parameters:,}", _mega(net.flops), f"{shape.kind}s; {options}"))
    return rows


def _mega(count: int) -> str:
    millions = count / 1e6
    return f"{millions:,.0f}" if millions >= 100 else f"{millions:.3g}"


def _text(value: object) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _line(columns: Row, widths: list[int]) -> str:
    name, *numbers, about = columns
    cells = [number.rjust(width) for number, width in zip(numbers, [*widths[1:], len("rows/s here")], strict=False)]
    return "  ".join([name.ljust(widths[0]), *cells, about])
