"""Formats of encoded images: the readable ones, and messages for the others."""

from __future__ import annotations

import contextlib
import functools
import importlib

from PIL import Image

BASIC = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP")
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".tif", ".tiff", ".bmp", ".avif", ".heic", ".heif"})
"""Suffixes of image files in a folder. The bytes of a file determine its real format."""
PLUGINS = {"AVIF": "pillow_avif", "HEIF": "pillow_heif"}
"""Formats that need a package, each with its module. Pillow may support AVIF itself."""
BRANDS = {b"avif": "AVIF", b"avis": "AVIF"}
BRANDS |= dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"), "HEIF")
"""Brand after `ftyp` in the first bytes of a file, with its format."""
ALLOWED = "PNG, JPEG, WebP, GIF, TIFF or BMP"
"""`BASIC` in words, for all messages."""


@functools.cache
def readable() -> tuple[str, ...]:
    """Return the formats that can be read in this environment, by Pillow's names."""
    Image.init()
    for name, module in PLUGINS.items():
        if name in Image.OPEN:
            continue
        with contextlib.suppress(ImportError):
            plugin = importlib.import_module(module)
            if name == "HEIF":
                plugin.register_heif_opener()
    return tuple(name for name in (*BASIC, *PLUGINS) if name in Image.OPEN)


def unreadable(data: bytes) -> str:
    """Return the message for bytes in none of the `readable` formats."""
    name = BRANDS.get(data[8:12]) if data[4:8] == b"ftyp" else None
    if name and name not in readable():
        package = PLUGINS[name].replace("_", "-")
        shown = "HEIC" if name == "HEIF" else name
        return f"the image is {shown}, which is not read here: convert it to PNG or JPEG, or pip install {package}"
    return f"not an image that can be read; allowed is {ALLOWED}: convert it to PNG or JPEG"


def media_type_of(data: bytes) -> str | None:
    """Return the media type of a PNG, JPEG, WebP or GIF file by its first bytes; None for other bytes."""
    if data[:3] == b"\xff\xd8\xff" and data[6:10] in (b"JFIF", b"Exif"):
        return "image/jpeg"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/png" if data.startswith(b"\x89PNG\r\n\x1a\n") else None


def webp_size(data: bytes) -> tuple[int, int] | None:
    """Return (width, height) from a WebP's header; None if it is not WebP.

    Pillow allocates all pixels before it reports the size.
    """
    if len(data) < 30 or data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    if data[12:16] == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
