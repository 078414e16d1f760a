"""Bodies that come as gzip (`content-encoding`), unpacked a little at a time and only as far as the limits allow."""

from __future__ import annotations

import asyncio
import zlib

from starlette.types import Message, Receive, Scope

from service.errors import ServiceError
from service.http.body_limits import too_large
from trueodds.texts import short

STEP = 64 * 1024
"""Bytes that are unpacked before others have their turn: some .2 ms."""
GZIP = ({"gzip"}, {"x-gzip"})
_GZIP_BITS = 16 + zlib.MAX_WBITS


def decoded(receive: Receive, scope: Scope, limit: int) -> Receive:
    """`receive`, for the body as it was before it was encoded.

    What is returned raises ServiceError: 415 for an encoding that is not gzip, 400 for what is not gzip though the
    header says so, 413 as soon as the body unpacks to more than `limit` bytes.
    """
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"content-encoding"]
    codings = [coding.strip().lower() for value in values for coding in value.split(",")]
    applied = [coding for coding in codings if coding not in ("", "identity")]
    if not applied:
        return receive
    if len(applied) == 1 and {*applied} in GZIP:
        return _Gunzip(receive, limit)

    async def refuse() -> Message:
        message = f"the content encoding is {short(', '.join(values))}; a body comes as gzip, once, or plain"
        error = ServiceError(
            415, "unsupported_content_encoding", f"{message}. Set the Content-Encoding header, or none"
        )
        error.headers["accept-encoding"] = "gzip"
        raise error

    return refuse


class _Gunzip:
    """The messages of a body of one or more gzip members, unpacked."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._limit = receive, limit
        self._unpacker = zlib.decompressobj(_GZIP_BITS)
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
        if self._unpacker.eof and self._packed:  # another member
            self._unpacker = zlib.decompressobj(_GZIP_BITS)
        try:
            part = self._unpacker.decompress(self._packed, STEP)
        except zlib.error as error:
            raise _invalid(str(error)) from None
        whole = self._unpacker.eof
        self._packed = self._unpacker.unused_data if whole else self._unpacker.unconsumed_tail
        self._full = len(part) == STEP and not whole
        self._ended = not (self._packed or self._full or self._more)
        self._unpacked += len(part)
        if self._unpacked > self._limit:
            raise too_large("unpacks to", self._limit)
        if self._ended and not whole:
            raise _invalid("it ends too early")
        return part


def _invalid(why: str) -> ServiceError:
    message = (
        f"the body is not the gzip that Content-Encoding says: {why}; compress it with gzip, or leave the header out"
    )
    return ServiceError(400, "invalid_gzip", message)
