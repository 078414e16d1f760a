"""Malicious and damaged images: few bytes that unpack to gigabytes, cut or flipped files, other formats."""

from __future__ import annotations

import io
import random
import struct
import zlib
from functools import cache

import numpy as np
from PIL import Image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MODES = ("RGB", "L", "P", "RGBA", "1", "CMYK", "I;16")
FORMATS = ("png", "jpeg", "gif", "bmp", "webp", "tiff", "ico", "tga", "ppm", "pcx")


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return one PNG chunk."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, pixels: bytes, *, colour: int = 2, depth: int = 8, extra: bytes = b"") -> bytes:
    """Return a PNG with the given header, whose data is `pixels` (not yet compressed)."""
    header = struct.pack(">IIBBBBB", width & 0xFFFFFFFF, height & 0xFFFFFFFF, depth, colour, 0, 0, 0)
    data = zlib.compress(pixels, 9)
    return SIGNATURE + chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@cache
def _zeros(megabytes: int) -> bytes:
    return zlib.compress(bytes(megabytes * 2**20), 9)


def bomb(rng: random.Random, side: int) -> bytes:
    """Return small files that unpack to large ones: in the header, the pixels, texts and profiles."""
    kind = rng.randrange(7)
    zeros = _zeros(rng.choice([4, 16, 64]))
    if kind == 0:  # the header alone
        return png(rng.choice([2**16, 2**31 - 1, 0, 2**32 - 1]), rng.choice([2**16, 2**31 - 1, 0]), b"")
    if kind == 1:  # honest and large, of zeros
        width = rng.choice([4_000, 8_000])
        return png(width, width, bytes(100), colour=0)
    if kind == 2:  # the header small, the pixels not
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
        return SIGNATURE + header + chunk(b"IDAT", zeros) + chunk(b"IEND", b"")
    if kind == 3:  # a compressed text
        return png(side, side, bytes((3 * side + 1) * side), extra=chunk(b"zTXt", b"Comment\0\0" + zeros))
    if kind == 4:
        return png(side, side, bytes((3 * side + 1) * side), extra=chunk(b"iTXt", b"Comment\0\1\0\0\0" + zeros))
    if kind == 5:
        return png(side, side, bytes((3 * side + 1) * side), extra=chunk(b"iCCP", b"profile\0\0" + zeros))
    name = rng.choice([b"zTXt", b"iCCP"])  # each within Pillow's limit for one
    return png(side, side, bytes((3 * side + 1) * side), extra=chunk(name, b"x\0\0" + _zeros(1)) * 20)


def odd(rng: random.Random, side: int) -> bytes:
    """Return a real image of some format and mode, cut, flipped or unchanged."""
    pixels = np.random.default_rng(rng.randrange(2**32)).integers(0, 256, (side, side, 3), np.uint8)
    picture, out = Image.fromarray(pixels).convert(rng.choice(MODES)), io.BytesIO()
    try:
        picture.save(out, rng.choice(FORMATS))
    except (OSError, ValueError):  # that format does not have that mode
        out = io.BytesIO()
        picture.convert("RGB").save(out, "png")
    data = bytearray(out.getvalue())
    change = rng.randrange(4)
    if change == 0:
        return bytes(data[: rng.randrange(len(data))])
    if change == 1:
        for _ in range(rng.randint(1, 20)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    if change == 2:
        return bytes(data) + rng.randbytes(rng.randrange(200))
    return bytes(data)
