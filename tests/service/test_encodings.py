"""Bodies that come as gzip or deflate, or say that they do."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import sys
import time
import zlib

import pytest
from fastapi import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from service.app import create_app
from service.errors import ServiceError
from service.http import encodings, error_answers, json_body
from service.http.envelope import Envelope
from service.settings import Settings
from service.telemetry.metrics import Telemetry
from tests.service.app_client import Client
from tests.service.echo_server import received, running
from tests.service.tiny_bundle import pictures

JSON = {"content-type": "application/json"}


def test_a_gzip_body_is_the_body_that_it_holds(client: Client) -> None:
    body = json.dumps({"instances": pictures(2)}).encode()
    tensor = {"name": "images", "shape": [1, 4, 4, 1], "datatype": "UINT8", "data": [0] * 16}
    infer = json.dumps({"inputs": [tensor]}).encode()
    packed = gzip.compress(body[:50]) + gzip.compress(b"") + gzip.compress(body[50:])  # members are one text
    items = client.post("/predict", content=packed, headers={**JSON, "content-encoding": "GZIP"}).json()["predictions"]
    plain = client.predict(pictures(2))
    assert [p["probabilities"] for p in items] == [p["probabilities"] for p in plain]
    gzipped = {"content-encoding": "x-gzip"}
    assert client.post("/v2/models/tiny/infer", content=gzip.compress(infer), headers=gzipped).status_code == 200
    rows = b"id,index\n" + b"".join(b"%b,1\n" % p["id"].encode() for p in items + plain)
    kind = {"content-type": "text/csv", "content-encoding": "gzip"}
    assert client.post("/feedback", content=gzip.compress(rows), headers=kind).json()["stored"] == 4
    assert client.post("/predict", content=body, headers={**JSON, "content-encoding": "identity"}).status_code == 200


@pytest.mark.parametrize(
    ("content", "encoding", "status", "words"),
    [
        (b"{}", ["gzip"], 400, "incorrect header check"),
        (gzip.compress(b"{}")[:-1], ["gzip"], 400, "it ends too early"),
        (gzip.compress(b"{}") + b"more", ["gzip"], 400, "incorrect header check"),
        (gzip.compress(bytes(2_000_000)), ["gzip"], 413, "unpacks to more than 100,000 bytes"),
        (gzip.compress(b" " * 100_000), ["gzip"], 400, "not JSON"),
        (gzip.compress(b" " * 100_001), ["gzip"], 413, "unpacks to more than 100,000 bytes"),
        (b"{}", ["br"], 415, "the content encoding is 'br'; allowed are gzip or deflate"),
        (gzip.compress(b"{}"), ["deflate"], 400, "zlib's format, RFC 1950"),
        (zlib.compress(b"{}")[:-1], ["deflate"], 400, "it ends too early"),
        (zlib.compress(bytes(2_000_000)), ["deflate"], 413, "unpacks to more than 100,000 bytes"),
        (b"{}", ["gzip, gzip"], 415, "'gzip, gzip'"),
        (b"{}", ["gzip", "deflate"], 415, "'gzip, deflate'"),
    ],
    # else the time of packing is part of the names, and two workers do not collect the same tests
    ids=[
        "plain",
        "cut",
        "more",
        "zeros",
        "text",
        "too long",
        "br",
        "not zlib",
        "short",
        "zlib zeros",
        "twice",
        "two headers",
    ],
)
def test_a_body_that_cannot_be_unpacked(
    settings: Settings, content: bytes, encoding: list[str], status: int, words: str
) -> None:
    headers = [*JSON.items(), *(("content-encoding", value) for value in encoding)]
    with Client(create_app(settings.model_copy(update={"max_body_bytes": 100_000}))) as client:
        answer = client.post("/predict", content=content, headers=headers)
        assert (answer.status_code, answer.headers.get("accept-encoding")) == (
            status,
            "gzip, deflate" if status == 415 else None,
        )
        assert words in answer.json()["error"]["message"]


async def test_unpacking_leaves_others_their_turn_and_memory() -> None:
    """1,000 bytes for one that was sent, for as long as it is sent: labels in bulk have no limit."""
    pieces = [gzip.compress(bytes(20_000_000))[k : k + 5_000] for k in range(0, 20_000, 5_000)]
    turns, sizes = 0, []

    async def receive() -> Message:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    unpacked = encodings.decode_body(receive, {"headers": [(b"content-encoding", b"gzip")]}, sys.maxsize)
    more = True
    while more:
        message = await unpacked()
        sizes.append(len(message["body"]))
        more = message["more_body"]
    beside.cancel()
    assert sum(sizes) == 20_000_000 and max(sizes) <= encodings.STEP and turns > 300


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("", None),
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate, br", "gzip"),
        ("gzip;q=0, DEFLATE;q=0.2", "deflate"),
        ("gzip;q=0", None),
        ("br, *", None),
    ],
)
def test_the_coding_of_an_answer_is_what_its_caller_takes(header: str, coding: str | None) -> None:
    assert encodings.preferred_coding(header) == coding


async def length(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the number of bytes of the body."""
    try:
        answer = Response(b"%d bytes" % len(await json_body.read(Request(scope, receive))))
    except ServiceError as error:
        answer = error_answers.response(scope, error)
    await answer(scope, receive, send)


@pytest.mark.parametrize(
    ("headers", "body", "words"),
    [
        (b"content-encoding: gzip\r\ntransfer-encoding: chunked", b"0\r\n\r\n", b"invalid_gzip"),
        (b"content-encoding: br\r\ntransfer-encoding: chunked", b"0\r\n\r\n", b"unsupported_content_encoding"),
        (b"content-encoding: br\r\ncontent-length: 0", b"", b"0 bytes"),
        (b"content-encoding: br", b"", b"0 bytes"),
        (b"transfer-encoding: chunked", b"0\r\n\r\n", b"0 bytes"),
    ],
)
@pytest.mark.parametrize("pause", [0, 0.1])
def test_an_empty_body_means_the_same_however_it_arrives(
    headers: bytes, body: bytes, words: bytes, pause: float
) -> None:
    with running(Envelope(length, Telemetry(), Settings(), {})) as server, socket.socket() as client:
        client.connect(server.address)
        head = b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n" + headers + b"\r\n\r\n"
        for part in (head, body) if pause else (head + body,):
            client.sendall(part)
            time.sleep(pause)
        assert words in received(client)
