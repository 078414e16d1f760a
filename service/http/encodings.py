"""Compressed bodies as in RFC 9110: of requests (`content-encoding`) and of answers (`accept-encoding`).

Requests are decompressed in small steps and only as far as the limits allow.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Literal, get_args

from starlette.types import Message, Receive, Scope

from service.errors import ServiceError
from service.http.body_limits import too_large
from service.http.parameters import quality
from trueodds.texts import short

STEP = 64 * 1024
"""Number of bytes that are decompressed before other tasks run: about .2 ms."""
Coding = Literal["gzip", "deflate"]
CODINGS: tuple[Coding, ...] = get_args(Coding)
_LISTED = " or ".join(CODINGS)
_BITS: dict[Coding, int] = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Window bits of zlib for each format. `deflate` is zlib's format (RFC 1950), not the bare stream."""


def decode_body(receive: Receive, scope: Scope, limit: int) -> Receive:
    """Return a `receive` that decompresses the body.

    It raises ServiceError: 415 for an encoding that is not in CODINGS; 400 if the body is not in the encoding that the
    header names; 413 as soon as more than `limit` bytes are decompressed.
    """
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"content-encoding"]
    codings = [coding.strip().lower() for value in values for coding in value.split(",")]
    applied = ["gzip" if coding == "x-gzip" else coding for coding in codings if coding not in ("", "identity")]
    if not applied:
        return receive
    for coding in CODINGS:
        if applied == [coding]:
            return _Unpacked(receive, coding, limit)

    async def refuse() -> Message:
        message = f"the content encoding is {short(', '.join(values))}; allowed are {_LISTED}, once, or none"
        error = ServiceError(
            415, "unsupported_content_encoding", f"{message}. Change or remove the Content-Encoding header"
        )
        error.headers["accept-encoding"] = ", ".join(CODINGS)
        raise error

    return refuse


def preferred_coding(header: str) -> Coding | None:
    """Return the coding that an Accept-Encoding header prefers. Return None if it accepts none or prefers plain."""
    return max((c for c in CODINGS if quality(header, c) > 0), key=lambda c: quality(header, c), default=None)


class Packer:
    """Compresses data piece by piece, or leaves it plain if the coding is None."""

    def __init__(self, coding: Coding | None) -> None:
        self._packer = zlib.compressobj(6, zlib.DEFLATED, _BITS[coding]) if coding else None

    def pack(self, data: bytes) -> bytes:
        return data if self._packer is None else self._packer.compress(data)

    def rest(self) -> bytes:
        return b"" if self._packer is None else self._packer.flush()


class _Unpacked:
    """Decompressed messages of a body. The body may have several gzip or zlib members."""

    def __init__(self, receive: Receive, coding: Coding, limit: int) -> None:
        self._receive, self._coding, self._limit = receive, coding, limit
        self._unpacker = zlib.decompressobj(_BITS[coding])
        self._packed, self._more, self._unpacked = b"", True, 0
        self._full = self._ended = False

    async def __call__(self) -> Message:
        if self._ended:
            return await self._receive()
        part = b""
        while not part and not self._ended:
            if self._packed or self._full:
                await asyncio.sleep(0)
            else:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                self._packed, self._more = message.get("body", b""), message.get("more_body", False)
            part = self._step()
        return {"type": "http.request", "body": part, "more_body": not self._ended}

    def _step(self) -> bytes:
        if self._unpacker.eof and self._packed:  # the next member begins
            self._unpacker = zlib.decompressobj(_BITS[self._coding])
        try:
            part = self._unpacker.decompress(self._packed, STEP)
        except zlib.error as error:
            raise self._invalid(str(error)) from None
        whole = self._unpacker.eof
        self._packed = self._unpacker.unused_data if whole else self._unpacker.unconsumed_tail
        self._full = len(part) == STEP and not whole
        self._ended = not (self._packed or self._full or self._more)
        self._unpacked += len(part)
        if self._unpacked > self._limit:
            raise too_large("unpacks to", self._limit)
        if self._ended and not whole:
            raise self._invalid("it ends too early")
        return part

    def _invalid(self, why: str) -> ServiceError:
        coding = self._coding
        message = f"the body is not {coding}, although Content-Encoding says so: {why}"
        if coding == "deflate":
            message += " (deflate is zlib's format, RFC 1950)"
        return ServiceError(400, f"invalid_{coding}", f"{message}; compress it with {coding}, or remove the header")
