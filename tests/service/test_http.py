"""The time that a request's head may take, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from service.http import LimitedHead
from tests.service.hooks import until

HEAD = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n"


class Short(LimitedHead):
    seconds = 0.4


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the body, once all of it has come."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(echo, http=Short, lifespan="off", log_level="critical"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    until(lambda: server.started)
    host, port = listening.getsockname()
    yield host, port
    server.should_exit = True
    thread.join()
    listening.close()


def received(client: socket.socket) -> bytes:
    """All that comes until the server hangs up."""
    client.settimeout(10)
    found = b""
    while part := client.recv(4096):
        found += part
    return found


def answer(client: socket.socket) -> bytes:
    """One answer with a body of three bytes."""
    client.settimeout(10)
    found = b""
    while (end := found.find(b"\r\n\r\n")) < 0 or len(found) < end + 7:
        part = client.recv(4096)
        assert part, found
        found += part
    return found


@pytest.mark.parametrize("sent", [b"", b"POST /x HT", HEAD[:-2]])
def test_a_head_that_does_not_end_is_answered_and_the_connection_closed(address: tuple[str, int], sent: bytes) -> None:
    started = time.monotonic()
    with closing(socket.create_connection(address)) as client:
        client.sendall(sent)
        found = received(client)
    assert time.monotonic() - started >= Short.seconds
    assert found.startswith(b"HTTP/1.1 408 ")
    assert found.endswith(b'the head of the request did not arrive within 0.4 s; send it faster"}}')


def test_drops_do_not_prolong_it(address: tuple[str, int]) -> None:
    with closing(socket.create_connection(address)) as client:
        for k in range(3):
            client.sendall(HEAD[k : k + 1])
            time.sleep(0.1)
        assert received(client).startswith(b"HTTP/1.1 408 ")


def test_a_body_may_take_longer_and_the_next_head_has_its_own_time(address: tuple[str, int]) -> None:
    with closing(socket.create_connection(address)) as client:
        client.sendall(HEAD)
        time.sleep(2 * Short.seconds)
        client.sendall(b"abc")
        assert answer(client).endswith(b"\r\n\r\nabc")
        client.sendall(HEAD + b"def")
        assert answer(client).endswith(b"\r\n\r\ndef")
        time.sleep(2 * Short.seconds)  # idle between two requests: uvicorn's own, longer limit
        client.sendall(HEAD + b"xyz")
        assert answer(client).endswith(b"\r\n\r\nxyz")
        client.sendall(HEAD[:20])
        assert received(client).startswith(b"HTTP/1.1 408 ")
