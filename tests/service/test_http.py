"""Time and bytes that all but the body of a request may take, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from benchmarks.faults.floods import ALLOWED, FLOODS, pour
from service.http.connections import ConnectionLimits
from service.http.limits import HEAD_BYTES, LINGER_BYTES, LimitedHTTP
from service.http.transport import JOINED_BYTES
from tests.service.echo_server import Address, received, running

HEAD = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n"


LIMITS = ConnectionLimits(head_seconds=0.4)


class Short(LimitedHTTP):
    most_waiting = 0

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        Short.most_waiting = max(Short.most_waiting, len(self.pipeline))


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    with running(limits=LIMITS, http=Short) as server:
        yield server.address


def answer(client: socket.socket) -> bytes:
    """One answer with a body of three bytes."""
    client.settimeout(60)
    content = b""
    while (end := content.find(b"\r\n\r\n")) < 0 or len(content) < end + 7:
        part = client.recv(4096)
        assert part, content
        content += part
    return content


def test_head_and_body_come_at_once_and_nothing_waits_for_a_body_that_does_not_come(address: Address) -> None:
    large = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % JOINED_BYTES
    with closing(socket.create_connection(address)) as client:
        client.settimeout(60)
        for _ in range(3):
            client.sendall(HEAD + b"abc")
            assert client.recv(65536).endswith(b"\r\n\r\nabc")
        client.sendall(HEAD.replace(b"host", b"expect: 100-continue\r\nhost"))
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc" + large + b"x" * JOINED_BYTES)
        content = b""  # of both answers, which may come in one piece
        while not content.endswith(b"\r\n\r\n" + b"x" * JOINED_BYTES):
            content += client.recv(65536)
        assert content.partition(b"\r\n\r\n")[2].startswith(b"abcHTTP/1.1 200 OK\r\n")
        for connection, ends in ((b"keep-alive", b"\r\n\r\n"), (b"close", b"close\r\n\r\n")):
            client.sendall(b"HEAD /x HTTP/1.1\r\nhost: a\r\nconnection: %s\r\n\r\n" % connection)
            head = client.recv(65536)
            assert head.startswith(b"HTTP/1.1 200 ") and head.endswith(ends)


@pytest.mark.parametrize("sent", [b"", b"POST /x HT", HEAD[:-2]])
def test_a_head_that_does_not_end_is_answered_and_the_connection_closed(address: Address, sent: bytes) -> None:
    started = time.monotonic()
    with closing(socket.create_connection(address)) as client:
        client.sendall(sent)
        answer = received(client)
    assert time.monotonic() - started >= 0.99 * LIMITS.head_seconds  # the event loop counts in whole milliseconds
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert answer.endswith(b'the head of the request did not arrive within 0.4 s; send it faster"}}')


def test_drops_do_not_prolong_it(address: Address) -> None:
    with closing(socket.create_connection(address)) as client:
        for k in range(3):
            client.sendall(HEAD[k : k + 1])
            time.sleep(0.1)
        assert received(client).startswith(b"HTTP/1.1 408 ")


def test_a_body_may_take_longer_and_the_next_head_has_its_own_time(address: Address) -> None:
    with closing(socket.create_connection(address)) as client:
        client.sendall(HEAD)
        time.sleep(2 * LIMITS.head_seconds)
        client.sendall(b"abc")
        assert answer(client).endswith(b"\r\n\r\nabc")
        client.sendall(HEAD + b"def")
        assert answer(client).endswith(b"\r\n\r\ndef")
        time.sleep(2 * LIMITS.head_seconds)  # idle between two requests: uvicorn's own, longer limit
        client.sendall(HEAD + b"xyz")
        assert answer(client).endswith(b"\r\n\r\nxyz")
        client.sendall(HEAD[:20])
        assert received(client).startswith(b"HTTP/1.1 408 ")


REFUSED = {
    **dict.fromkeys(sorted(FLOODS.keys() - ALLOWED), 431),
    "method": 400,
    "folded header": 400,
}


@pytest.mark.parametrize(("kind", "status"), REFUSED.items(), ids=REFUSED)
def test_what_has_no_end_is_refused_while_it_is_sent(address: Address, kind: str, status: int) -> None:
    started = time.monotonic()
    sent, answer = pour(address, *FLOODS[kind], started + 60)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nconnection: close\r\n" in answer and b'"error":{"code":"' in answer
    assert sent < LINGER_BYTES + 8 * 1024**2 and time.monotonic() - started < 60  # what the sockets hold, and no more


def headers(size: int, count: int, connection: bytes = b"close") -> bytes:
    """A head of a request without a body, of so many bytes."""
    head = (
        b"GET /x HTTP/1.1\r\nhost: a\r\nconnection: %b\r\n" % connection
        + b"".join(b"h%d: \r\n" % k for k in range(count - 1))
        + b"long: "
    )
    return head + b"x" * (size - len(head) - 4) + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (headers(HEAD_BYTES - 200, 1), 200),
        (headers(HEAD_BYTES + 1, 1), 431),
        (headers(20_000, 1_000), 200),
        (headers(20_000, 1_500), 431),  # each counts 32 bytes more
        (2 * headers(HEAD_BYTES - 200, 1, b"keep-alive") + headers(HEAD_BYTES + 1, 1), 431),
    ],
    ids=["largest", "larger", "many", "more", "each for itself"],
)
def test_the_size_of_a_head(address: Address, sent: bytes, status: int) -> None:
    with closing(socket.create_connection(address)) as client:
        client.sendall(sent)
        statuses = [part[:3] for part in received(client).split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200"] * (sent.count(b"host") - (status != 200)) + [b"431"] * (status != 200)


def test_bodies_may_be_chunked_as_they_like(address: Address) -> None:
    """Twenty times the limit in size lines, an extension and a trailer, neither of which the application sees."""
    head = b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    count = 20 * HEAD_BYTES // len(b"0001\r\n\r\n")
    with closing(socket.create_connection(address)) as client:
        client.sendall(
            head + b"0001\r\na\r\n" * count + b"3;name=value\r\nabc\r\n0\r\nsecret: b\r\n\r\n" + HEAD + b"def"
        )
        client.settimeout(60)
        answer = b""
        while not answer.endswith(b"\r\n\r\ndef"):
            answer += client.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 200 ") and b"content-length: %d\r\n" % (count + 3) in answer
    assert b"aaaabcHTTP/1.1 200 " in answer and b"x-names: host,transfer-encoding\r\n" in answer


def test_requests_that_wait_for_others_are_not_read(address: Address) -> None:
    """Each is some 2 kB in memory, for 50 bytes."""
    count, answer = 5_000, b""
    with closing(socket.create_connection(address)) as client:
        thread = threading.Thread(target=client.sendall, args=((HEAD + b"abc") * count,))
        thread.start()
        client.settimeout(60)
        while answer.count(b"\r\n\r\nabc") < count:
            answer += client.recv(1 << 20)
        thread.join()
    assert 0 < Short.most_waiting <= LIMITS.pipeline_depth


def test_what_is_no_http_is_answered_after_the_requests_before_it(address: Address) -> None:
    with closing(socket.create_connection(address)) as client:
        client.sendall((HEAD + b"abc") * 3 + b"\x16\x03\x01 no HTTP")
        answer = received(client)
    assert answer.count(b"HTTP/1.1 200 ") == 3
    assert answer.rpartition(b"HTTP/1.1 ")[2].startswith(b"400 ") and b"the port accepts http://" in answer


def test_an_answer_that_has_begun_is_cut_and_not_followed_by_another(address: Address) -> None:
    head = b"POST /early HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    with closing(socket.create_connection(address)) as client:
        client.sendall(head)
        client.settimeout(60)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"0\r\ntrailer: " + b"x" * 2 * HEAD_BYTES)
        assert received(client) == b""
