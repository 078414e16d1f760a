"""PNG files built by hand, with sound checksums, whatever their image data are."""

from __future__ import annotations

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Of a pixel, by colour type: grey, RGB, palette, grey and alpha, RGB and alpha."""


def png_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png_file(
    width: int, height: int, data: bytes, *, colours: int = 2, bits: int = 8, interlaced: bool = False
) -> bytes:
    """`data` are the image data before compression."""
    header = struct.pack(">IIBBBBB", width, height, bits, colours, 0, 0, interlaced)
    palette = png_chunk(b"PLTE", bytes(range(1, 49))) if colours == 3 else b""
    chunks = [png_chunk(b"IHDR", header), palette, png_chunk(b"IDAT", zlib.compress(data)), png_chunk(b"IEND", b"")]
    return SIGNATURE + b"".join(chunks)


def png_header(width: int, height: int, colours: int = 2) -> bytes:
    """A PNG of a few bytes that claims any size."""
    return png_file(width, height, b"", colours=colours)


def png_of_rows(
    width: int, height: int, *, rows: int | None = None, colours: int = 0, bits: int = 8, interlaced: bool = False
) -> bytes:
    """A PNG whose data hold only the first `rows` rows; of an interlaced one, all passes but the last of these."""
    passes = [(range(width), range(height))]
    if interlaced:
        starts = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
        passes = [(range(x, width, dx), range(y, height, dy)) for x, y, dx, dy in starts]
    lines = [
        b"\0" + b"\x21" * ((len(columns) * bits * SAMPLES[colours] + 7) // 8)
        for columns, lines in passes
        for _ in lines
        if columns
    ]
    missing = 0 if rows is None else height - rows
    data = b"".join(lines[: max(0, len(lines) - missing)])
    return png_file(width, height, data, colours=colours, bits=bits, interlaced=interlaced)
