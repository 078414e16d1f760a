"""What many connections may take of a server together, clients that read nothing or hang up, and the server's end."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
import sys
import threading
import time
from contextlib import ExitStack, closing
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from service.http.connections import ANSWERED_EXCESS, TURN_REQUESTS, TURN_SECONDS, Addresses, ConnectionLimits, Turns
from service.http.server import ACCEPTS, narrow
from tests.service.echo_server import GET, Address, echo, received, running
from tests.service.hooks import until

LARGE = 8 * 1024**2
ADDRESSES = "127.0.0.1", "127.0.0.2"


def connected(stack: ExitStack, address: Address, source: str = ADDRESSES[0]) -> socket.socket:
    client = socket.create_connection(address, timeout=60, source_address=(source, 0))
    return stack.enter_context(closing(client))


async def large(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"content-length", b"%d" % LARGE)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * LARGE})


@pytest.mark.parametrize("request_", [GET, GET * 3, GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")])
def test_a_client_that_reads_nothing_is_cut_off(request_: bytes) -> None:
    with running(large, ConnectionLimits(write_seconds=0.2)) as server, ExitStack() as stack:
        client = connected(stack, server.address)
        client.sendall(request_)
        until(lambda: server.open == 1)
        until(lambda: server.open == 0)
        assert len(received(client)) < LARGE
        assert server.lost == {"unread": 1}


def test_a_client_that_reads_slowly_is_not() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
    with running(large, ConnectionLimits(write_seconds=1), listening=listening) as server, ExitStack() as stack:
        client = stack.enter_context(closing(socket.socket()))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.connect(server.address)
        client.sendall(GET)
        began, count = time.monotonic(), 0
        while time.monotonic() - began < 2:
            count += len(client.recv(1 << 16))
            time.sleep(0.05)
        assert count < LARGE
        client.settimeout(60)
        while count < LARGE:
            part = client.recv(1 << 20)
            assert part
            count += len(part)
        assert not server.lost


def test_one_address_has_its_own_limit() -> None:
    limits = ConnectionLimits(connections=2)
    with running(limits=limits) as server, ExitStack() as stack:
        first, second, third = (connected(stack, server.address) for _ in range(3))
        refused = received(third)
        assert refused.startswith(b"HTTP/1.1 503 ") and b"\r\nretry-after: 1\r\n" in refused
        assert b"127.0.0.1 has more than 2 open connections, the limit per address; close some" in refused
        other = connected(stack, server.address, ADDRESSES[1])
        for client in (first, second, other):
            client.sendall(GET)
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        third.close()
        second.close()
        until(lambda: server.open == 2)
        again = connected(stack, server.address)
        again.sendall(GET)
        assert again.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        assert server.lost == {"too_many": 1}


def test_far_beyond_the_limit_nobody_is_told_why() -> None:
    with running(limits=ConnectionLimits(connections=1)) as server, ExitStack() as stack:
        clients = [connected(stack, server.address) for _ in range(1 + ANSWERED_EXCESS + 3)]
        told = [received(client) for client in clients[1:]]
        assert [answer[9:12] for answer in told] == [b"503"] * ANSWERED_EXCESS + [b""] * 3


@pytest.mark.parametrize(
    ("limits", "answered"),
    [
        (ConnectionLimits(connections=1, proxies=(ip_network("127.0.0.0/30"),)), 4),
        (ConnectionLimits(connections=1, proxies=(ip_network("10.0.0.0/8"),)), 2),
        (ConnectionLimits(all_connections=3, proxies=(ip_network("127.0.0.0/8"),)), 3),
    ],
    ids=["proxies", "other proxies", "all"],
)
def test_proxies_have_no_limit_but_that_of_all(limits: ConnectionLimits, answered: int) -> None:
    with running(limits=limits) as server, ExitStack() as stack:
        good = 0
        for source in ADDRESSES * 2:
            client = connected(stack, server.address, source)
            client.sendall(GET)
            good += received_one(client).startswith(b"HTTP/1.1 200 ")
        assert good == answered


def received_one(client: socket.socket) -> bytes:
    try:
        return client.recv(1 << 16)
    except ConnectionResetError:
        return b""


def test_addresses_of_ipv6_are_counted_by_their_network() -> None:
    addresses = Addresses(ConnectionLimits(connections=1))
    hosts = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::ffff:10.0.0.1", "10.0.0.1", "fe80::1%eth0", ""]
    assert [addresses.enter(host) for host in hosts] == [0, -1, 0, 0, -1, 0, 0]
    for host in hosts:
        addresses.leave(host)
    assert [addresses.enter(host) for host in hosts] == [0, -1, 0, 0, -1, 0, 0]


def test_requests_behind_others_take_turns_and_give_way_to_new_connections() -> None:
    """The clock is the test's own: on a busy machine, a real turn may take longer than TURN_SECONDS."""

    async def begun_by_turn(turn_seconds: float) -> list[int]:
        now = 0.0
        turns, counts, begun = Turns(clock=lambda: now), [], 0

        def begin() -> None:
            nonlocal begun
            begun += 1

        for _ in range(60):
            turns.add(begin)
        while begun < 60:
            before = begun
            turns.arrived = not turn_seconds and begun > TURN_REQUESTS
            now += turn_seconds
            await asyncio.sleep(0)
            counts.append(begun - before)
        return counts

    counts = asyncio.run(begun_by_turn(0))
    assert counts[1] == TURN_REQUESTS and sum(counts) == 60
    assert counts[2:7] == [8, 4, 2, 1, 1], "fewer, never none"
    slow = asyncio.run(begun_by_turn(2 * TURN_SECONDS))
    assert sum(slow) == 60 and set(slow[4:]) == {1}, "a turn that takes long is followed by a smaller one"


def test_a_new_connection_is_answered_before_many_requests_of_others() -> None:
    """All of them come while the loop is busy: without turns nearly all were answered first."""
    busy, go, counted = threading.Event(), threading.Event(), 0

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal counted
        if scope["path"] == "/wait":
            busy.set()
            go.wait(60)
        counted += 1
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]})
        await send({"type": "http.response.body", "body": b"%8d" % counted})

    with running(count) as server, ExitStack() as stack:
        connected(stack, server.address).sendall(GET.replace(b"/x", b"/wait"))
        assert busy.wait(60)
        many = [connected(stack, server.address, ADDRESSES[1]) for _ in range(60)]
        for client in many:
            client.sendall(GET * 20)
        new = connected(stack, server.address)
        new.sendall(GET)
        go.set()
        assert int(new.recv(1 << 16)[-8:]) < 100
        for client in many:
            answers = b""
            while answers.count(b"HTTP/1.1 200 ") < 20:
                answers += client.recv(1 << 16)
    assert counted == 2 + 60 * 20


def test_clients_that_hang_up_are_counted_and_nothing_else_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    begun, go = threading.Event(), threading.Event()

    async def held(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        while not go.is_set():
            await asyncio.sleep(0.001)
        await echo(scope, receive, send)

    with running(held) as server:
        for sent in (GET, GET * 5, GET * 100, GET.replace(b"/x", b"/early") * 5):
            begun.clear()
            go.clear()
            with closing(socket.create_connection(server.address)) as client:
                client.sendall(sent)
                assert begun.wait(60)
                if sent == GET:
                    go.set()
                    assert client.recv(1 << 16)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            go.set()
            until(lambda: not server.open)
        until(lambda: server.lost["hung_up"] == 3)
    assert server.lost == {"hung_up": 3}, "the first had its answer"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("workers", "accepts"), [(1, ACCEPTS), (2, 1)])
def test_a_worker_that_begins_makes_no_other_wait_in_accept(
    monkeypatch: pytest.MonkeyPatch, workers: int, accepts: int
) -> None:
    """Whether a socket blocks is one flag of all its copies, those of the other workers too.

    One of several workers accepts one connection at a time, and so leaves the next one to the others.
    """
    seen: list[bool] = []
    startup = uvicorn.Server.startup

    async def look(self: uvicorn.Server, sockets: list[socket.socket]) -> None:
        seen.extend(os.get_blocking(one.fileno()) for one in sockets)
        await startup(self, sockets)

    monkeypatch.setattr(uvicorn.Server, "startup", look)
    with running(workers=workers):
        assert seen == [False] * accepts


@pytest.mark.parametrize("servers", [1, 2])
def test_an_ending_server_answers_all_that_has_come(servers: int) -> None:
    """On connections that wait to be accepted, that are open and unread, or have requests behind others."""
    go, busy = threading.Event(), threading.Semaphore(0)

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/wait":
            busy.release()
            go.wait(60)
        await echo(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as stack:
        address: Address = listening.getsockname()[:2]
        both = [stack.enter_context(running(wait, listening=listening.dup(), workers=servers)) for _ in range(servers)]
        kept = [connected(stack, address) for _ in range(6)]
        for client in kept:
            client.sendall(GET)
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        blocking, blocked = [], 0
        while blocked < servers:
            blocking.append(connected(stack, address))
            blocking[-1].sendall(GET.replace(b"/x", b"/wait"))
            blocked += busy.acquire(timeout=0.3)
        new = [connected(stack, address) for _ in range(40)]
        for client in kept[:4] + new[::2]:
            client.sendall(GET)
        for client in kept[4:] + new[1::2]:
            client.sendall(GET * 100)
        listening.close()
        for one in both:
            one.server.should_exit = True
        time.sleep(0.15)  # uvicorn looks every 0.1 s: now it ends at once
        go.set()
        for client in blocking:
            assert received(client).count(b"HTTP/1.1 200 ") == 1
        for client in kept[:4] + new[::2]:
            assert received(client).count(b"HTTP/1.1 200 ") == 1
        for client in kept[4:] + new[1::2]:
            assert received(client).count(b"HTTP/1.1 200 ") == 100
        with pytest.raises(ConnectionRefusedError):
            for one in both:
                one.thread.join()
            connected(stack, address)


def established(stack: ExitStack, address: Address, count: int) -> list[socket.socket]:
    """Begin `count` connections and return those that the system has put into the queue at once."""
    clients = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(address)
    ready = select.select([], clients, [], 0)[1]
    for client in set(clients) - set(ready):
        client.close()
    return ready


@pytest.mark.skipif(sys.platform != "linux", reason="other systems round the length of the queue up")
@pytest.mark.parametrize("workers", [1, 2])
def test_clients_that_reconnect_without_pause_are_answered_while_a_server_ends(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """More clients than the server accepts come in each turn. They stop ten turns before the server's time is over.

    The clock counts turns, so that the speed of the machine does not matter.
    """
    turns, come = 0, []

    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening, ExitStack() as stack:
        address: Address = listening.getsockname()[:2]

        def look(*given: Any) -> tuple[list[Any], list[Any], list[Any]]:
            nonlocal turns
            turns += 1
            if turns <= 20:
                for client in established(stack, address, 2 * ACCEPTS):
                    client.settimeout(60)
                    client.sendall(GET)
                    come.append(client)
            return select.select(*given)

        monkeypatch.setattr("service.http.server.select", SimpleNamespace(select=look))
        monkeypatch.setattr("service.http.server.time", SimpleNamespace(monotonic=lambda: turns / 30))
        with running(listening=listening.dup(), workers=workers) as server:
            if workers > 1:
                narrow(listening)  # as the workers' parent does
            server.server.should_exit = True
            server.thread.join()
        listening.close()
        assert len(come) >= 20
        assert [received(client).count(b"HTTP/1.1 200 ") for client in come] == [1] * len(come)


def test_a_worker_that_ends_alone_leaves_the_queue_to_the_others() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening, ExitStack() as stack:
        with running(listening=listening.dup(), workers=2) as server:
            server.server.should_exit = True
            server.thread.join()
        assert len(established(stack, listening.getsockname()[:2], 8)) == 8
