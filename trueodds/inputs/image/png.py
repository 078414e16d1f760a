"""Chunks of a PNG: a filter for the relevant ones, and fast decoding of plain images."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

try:
    import pyspng
except ImportError:  # an extra brings it
    pyspng = None

SIGNATURE = b"\x89PNG\r\n\x1a\n"
START = SIGNATURE + b"\0\0\0\x0dIHDR"
END = b"\0\0\0\0IEND\xaeB`\x82"
"""The last chunk, which is the same in every file."""
HEAD = struct.Struct(">II5sII4s")
"""Values from byte 16 on: width, height, the header's other bytes, its checksum; length and name of the next chunk."""
DATA_START = 41
"""First byte of the second chunk's content."""
KEPT = (b"tRNS", b"eXIf")
"""Optional chunks that change pixels: transparency, which conversion uses, and the orientation."""
MODES = {b"\x08\x00\x00\x00\x00": "L", b"\x08\x02\x00\x00\x00": "RGB"}
"""Last five bytes of the header of 8-bit grey or RGB without interlacing, with Pillow's mode."""
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Number of samples per pixel, by the header's colour type."""
ONE_PASS = ((0, 0, 1, 1),)
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Passes of an interlaced image: the first column and row, and the steps to the next ones."""
PIECE, STEP = 64 * 1024, 1024**2
"""Bytes that are inflated at a time, and the most bytes that they may inflate to; 64 KB can hold 64 MB."""


class Plain(NamedTuple):
    """A PNG of 8-bit grey or RGB without transparency, palette, interlacing or orientation."""

    mode: str
    size: tuple[int, int]
    """Width and height, both at least 1."""
    data: bytes
    """The file with only those chunks that hold pixels."""

    def pixels(self) -> npt.NDArray[np.uint8] | None:
        """Decode to H x W x C with libspng, in a seventh of Pillow's time.

        The result is None without libspng, and if the data are damaged or have fewer rows than the header states.
        Pillow and `check_whole` then report the problem.
        """
        if pyspng is None:
            return None
        try:
            pixels: npt.NDArray[np.uint8] = pyspng.load(self.data)
        except RuntimeError:
            return None
        return pixels.reshape(self.size[1], self.size[0], len(self.mode))


def plain(data: bytes) -> Plain | None:
    """Return a plain and valid PNG, or None for any other image. Pillow's reader reports problems better.

    libspng checks no checksum except that of the pixels, and stores all texts that it reads.
    """
    return _shortest(data) or _plain(data)


def _shortest(data: bytes) -> Plain | None:
    """Return a plain PNG of three chunks, as most small files are, or None for any other file.

    `_plain` gives the same answer, in four times the time.
    """
    if len(data) < DATA_START + 4 + len(END) or not data.startswith(START) or not data.endswith(END):
        return None
    width, height, kind, checksum, length, name = HEAD.unpack_from(data, 16)
    end = DATA_START + length
    if name != b"IDAT" or end + 4 + len(END) != len(data) or kind not in MODES or not width or not height:
        return None
    if zlib.crc32(data[12:29]) != checksum or zlib.crc32(data[37:end]) != int.from_bytes(data[end : end + 4]):
        return None
    return Plain(MODES[kind], (width, height), data)


def _plain(data: bytes) -> Plain | None:
    mode = MODES.get(data[24:29], "")
    size = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if not data.startswith(START) or not mode or not min(size):
        return None
    name, end, whole = b"", 0, True
    for name, start, end in _chunks(data):  # one by one, because 16 MB can hold a million chunks
        if not _matters(name):
            whole = False
        elif zlib.crc32(data[start + 4 : end - 4]) != int.from_bytes(data[end - 4 : end]):
            return None
        elif name == b"IEND":
            break
        elif name != b"IDAT" and start != len(SIGNATURE):
            return None
    if name != b"IEND" or end != len(data):
        return None
    return Plain(mode, size, data if whole else pixels_only(data))


def check_whole(data: bytes) -> None:
    """Check that a PNG's image data have correct checksums and as many rows as its header states.

    Pillow overlooks both, and paints missing rows black. The header must have passed Pillow's checks.

    Raises:
        ValueError: The data are damaged or incomplete.
    """
    header, parts = b"", list[bytes]()
    for name, start, end in _chunks(data):
        if name == b"IEND":
            break
        if name == b"IHDR" and not parts:
            header = data[start + 8 : start + 8 + 13]
        elif name == b"IDAT":
            if zlib.crc32(data[start + 4 : end - 4]) != int.from_bytes(data[end - 4 : end]) or end > len(data):
                raise ValueError("the checksum of its image data is wrong")
            parts.append(data[start + 8 : end - 4])
    width, height, bits, colours, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    size = 0
    for left, top, across, down in ADAM7 if interlaced else ONE_PASS:
        columns, rows = -((left - width) // across), -((top - height) // down)
        if columns > 0 and rows > 0:
            size += rows * (1 + (columns * bits * SAMPLES[colours] + 7) // 8)
    if not _inflates_to(parts, size):
        raise ValueError(f"its data end before row {height:,}, the last")


def _inflates_to(parts: Iterable[bytes], size: int) -> bool:
    """Return whether zlib data hold at least this many bytes. At most STEP of them are in memory at a time."""
    stream = zlib.decompressobj()
    try:
        for part in parts:
            for start in range(0, len(part), PIECE):
                piece = part[start : start + PIECE]
                while piece and not stream.eof:
                    size -= len(stream.decompress(piece, STEP))
                    if size <= 0:
                        return True
                    piece = stream.unconsumed_tail
        return size <= len(stream.flush())
    except zlib.error:
        return False


def pixels_only(data: bytes) -> bytes:
    """Return a PNG without the chunks that change no pixel here; other files are unchanged.

    Pillow inflates texts and profiles as soon as it reads them. 30 chunks of a megabyte of zeros in each of 256 PNGs,
    10 MB in all, took 105 s.
    """
    if not data.startswith(SIGNATURE):
        return data
    return b"".join([SIGNATURE, *(data[start:end] for name, start, end in _chunks(data) if _matters(name))])


def _matters(name: bytes) -> bool:
    return not name[:1].islower() or name in KEPT


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name, start and end of each chunk (length, name, content, checksum). The last one may be incomplete."""
    start = len(SIGNATURE)
    while start < len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4])
        yield data[start + 4 : start + 8], start, end
        start = end
