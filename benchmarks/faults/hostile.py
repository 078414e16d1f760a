"""Malicious and broken request bodies, the same for each seed. None may cause a 5xx.

`attack` sends them over several connections while a probe checks that the service still answers others.
"""

from __future__ import annotations

import base64
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.faults import bombs
from benchmarks.faults.process import DEAD, Service
from benchmarks.faults.watch import Watched, watched

JSON = "application/json"
TEXTS = ("\0", "\u202e", "é" * 50, "\U0001f600", "a" * 10_000, "' OR 1=1 --", "../../etc/passwd", "{{7*7}}", "", "null")
ATOMS: tuple[Any, ...] = (None, True, False, -1, 256, 0.5, 255.0, 2**31, 2**63, 2**64, 1e308, "7", [], {}, [[]], -0.0)
RAW = (
    *("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" * 5000, "0." + "1" * 5000, "01"),
    *('"\\ud800"', '"\\u0000"', "'a'"),
)
KINDS = (
    *(JSON, "", "text/plain", "application/json; charset=utf-16", "application/x-www-form-urlencoded", "a\tb", "*/*"),
    *("multipart/form-data", "multipart/form-data; boundary=", "application/octet-stream", JSON + ";" * 500),
)
BOUNDARY = "b"
BUFFERED = 64 * 1024
"""Number of body bytes that sockets accept at once, so that the answer can always be read."""
MOST_SAID = 300_000
"""Largest number of bytes of an error. /feedback lists the first 20 bad rows by their complete ids."""


@dataclass(frozen=True)
class Body:
    """One request; `kind` is the function that made it."""

    kind: str
    path: str
    content_type: str
    data: bytes


@dataclass
class Attack:
    """Results of the bodies."""

    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    server_errors: list[str] = field(default_factory=list)
    odd_errors: list[str] = field(default_factory=list)
    unheard: int = 0
    """Number of long bodies refused early: the connection was closed while the client was still sending."""
    watched: Watched = field(default_factory=Watched)


Make = Callable[[random.Random, tuple[int, int, int]], tuple[str, bytes]]


def make(seed: int, shape: tuple[int, int, int]) -> Body:
    """Return the body of a seed, for a model that takes images of `shape`."""
    rng = random.Random(seed)
    name = rng.choice(list(MAKERS))
    kind, data = MAKERS[name](rng, shape)
    path = "/feedback" if name.startswith("label") or rng.random() < 0.1 else "/predict"
    return Body(name, path, kind, data)


def pixels(rng: random.Random, shape: tuple[int, int, int]) -> Any:
    height, width, channels = shape
    return [[[rng.randrange(256) for _ in range(channels)] for _ in range(width)] for _ in range(height)]


def noise(rng: random.Random, _: tuple[int, int, int]) -> tuple[str, bytes]:
    return rng.choice(KINDS), rng.randbytes(rng.choice([0, 1, 10, 1000, 20_000]))


def cut(rng: random.Random, shape: tuple[int, int, int]) -> tuple[str, bytes]:
    data = json.dumps({"instances": [pixels(rng, shape)]}).encode()
    return JSON, data[: rng.randrange(len(data))]


def flipped(rng: random.Random, shape: tuple[int, int, int]) -> tuple[str, bytes]:
    data = bytearray(json.dumps({"instances": [pixels(rng, shape)]}).encode())
    for _ in range(rng.randint(1, 5)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return JSON, bytes(data)


def deep(rng: random.Random, _: tuple[int, int, int]) -> tuple[str, bytes]:
    depth, opening = rng.choice([10, 500, 1_023, 1_025, 100_000]), rng.choice(["[", '{"instances":[', '{"labels":['])
    closing = "".join({"[": "]", "{": "}"}[c] for c in reversed(opening) if c in "[{")
    whole = opening * depth + closing * depth * rng.randrange(2)
    return JSON, f'{{"instances": [{whole}]}}'.encode() if rng.random() < 0.5 else whole.encode()


def swarm(rng: random.Random, _: tuple[int, int, int]) -> tuple[str, bytes]:
    """Return very many values in few bytes. Each costs a parser far more memory than text."""
    value, key = rng.choice(["[]", "{}", "1", '""', '{"id":1}']), rng.choice(["instances", "labels"])
    return JSON, f'{{"{key}":[{",".join([value] * rng.choice([300, 10_001, 200_000]))}]}}'.encode()


def number(rng: random.Random, shape: tuple[int, int, int]) -> tuple[str, bytes]:
    text = json.dumps({"instances": [pixels(rng, shape)]}, separators=(",", ":"))
    return JSON, text.replace(",", f",{rng.choice(RAW)},", rng.randint(1, 2)).encode()


def wrong_value(rng: random.Random, shape: tuple[int, int, int]) -> tuple[str, bytes]:
    image = pixels(rng, shape)
    row = rng.choice(image)
    target: list[Any] = rng.choice([image, row, rng.choice(row)])
    target[rng.randrange(len(target))] = rng.choice([*ATOMS, *TEXTS])
    return JSON, json.dumps({"instances": [image] * rng.choice([1, 3])}).encode()


def wrong_shape(rng: random.Random, shape: tuple[int, int, int]) -> tuple[str, bytes]:
    height, width, channels = (rng.choice([1, 2, 9, size]) for size in shape)
    image, few = pixels(rng, (height, width, channels)), height * width * channels < 100
    return JSON, json.dumps({"instances": [image] * rng.choice([0, 1, 2, 257 if few else 3])}).encode()


def wrong_tree(rng: random.Random, shape: tuple[int, int, int]) -> tuple[str, bytes]:
    tree: Any = rng.choice([*ATOMS, *TEXTS, pixels(rng, shape)])
    for _ in range(rng.randrange(4)):
        key = rng.choice(["instances", "b64", "labels", "id", "label", "index", "correct", *TEXTS])
        tree = rng.choice([{key: tree}, [tree], {key: tree, "x": tree}, {"instances": [tree]}])
    return rng.choice([JSON, JSON, rng.choice(KINDS)]), json.dumps(tree).encode()


def encoding(rng: random.Random, shape: tuple[int, int, int]) -> tuple[str, bytes]:
    text = json.dumps({"instances": [pixels(rng, shape)], rng.choice(TEXTS): 1}, ensure_ascii=False)
    codec = rng.choice(["utf-8-sig", "utf-16", "utf-32", "latin-1"])
    return JSON, text.encode(codec, "replace") + rng.choice([b"", b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\0"])


def picture(rng: random.Random, shape: tuple[int, int, int]) -> tuple[str, bytes]:
    data = rng.choice([bombs.odd, bombs.odd, bombs.bomb])(rng, shape[0])
    text = base64.b64encode(data).decode()
    text = rng.choice([text, text, text, text[:-1], "data:image/png;base64," + text, text + "=", "\u00e9" + text])
    return JSON, json.dumps({"instances": [{"b64": text}] * rng.choice([1, 1, 4])}).encode()


def form(rng: random.Random, shape: tuple[int, int, int]) -> tuple[str, bytes]:
    parts, many = [], rng.choice([1, 1, 1, 100])
    data = bombs.bomb(rng, shape[0]) if many == 1 else b"x"
    for _ in range(rng.randrange(4)):
        field_name, name = rng.choice(["files", "files", "x", "\u00e9"]), rng.choice(["a.png", *TEXTS])
        head = f'Content-Disposition: form-data; name="{field_name}"; filename="{name}"\r\n'
        head += rng.choice(["", "Content-Type: image/png\r\n", "X: " + "y" * 10_000 + "\r\n", ": \r\n"])
        parts.append(f"--{BOUNDARY}\r\n{head}\r\n".encode() + data + b"\r\n")
    end = rng.choice([f"--{BOUNDARY}--\r\n", f"--{BOUNDARY}\r\n", "", "--"])
    return f"multipart/form-data; boundary={BOUNDARY}", b"".join(parts) * many + end.encode()


def label_rows(rng: random.Random, _: tuple[int, int, int]) -> tuple[str, bytes]:
    def value() -> Any:
        return rng.choice([*ATOMS, *TEXTS, f"{rng.randrange(2**63):036x}", rng.randrange(-5, 10)])

    rows = []
    for _row in range(rng.choice([1, 1, 2, 50])):
        row: Any = {"id": value(), rng.choice(["label", "index"]): value()}
        if rng.random() < 0.3:
            row[rng.choice(["correct", "x", *TEXTS])] = value()
        rows.append(row if rng.random() < 0.9 else value())
    rows *= rng.choice([1, 1, 1, 1, 1 + 10_000 // len(rows)])
    tree: Any = rng.choice([{"labels": rows}, rows, rows[0], {"labels": rows, "correct": value()}])
    return JSON, json.dumps(tree).encode()


def label_raw(rng: random.Random, _: tuple[int, int, int]) -> tuple[str, bytes]:
    fields = (
        f'"{key}": {rng.choice(RAW)}' for key in rng.choices(["id", "label", "index", "correct"], k=rng.randint(1, 4))
    )
    return JSON, f"{{{', '.join(fields)}}}".encode()


MAKERS: dict[str, Make] = {
    maker.__name__: maker
    for maker in (
        *(noise, cut, flipped, deep, number, wrong_value, wrong_shape, wrong_tree, encoding, picture, form),
        *(swarm, label_rows, label_raw),
    )
}


def attack(
    service: Service,
    count: int,
    shape: tuple[int, int, int],
    *,
    connections: int = 4,
    first: int = 0,
    of: Callable[[int, tuple[int, int, int]], Body] = make,
) -> Attack:
    """Send the bodies that `of` makes of the seeds first..first + count - 1."""
    found, lock, seeds = Attack(), threading.Lock(), iter(range(first, first + count))

    def send() -> None:
        client = service.client()
        while True:
            with lock:
                seed = next(seeds, None)
            if seed is None:
                client.close()
                return
            body = of(seed, shape)
            headers = {"content-type": body.content_type} if body.content_type else {}
            try:
                answer = client.send("POST", body.path, body.data, headers)
                status, said = answer.status, answer.body
            except DEAD as error:
                status, said = 0, repr(error).encode()
            with lock:
                found.sent += 1
                found.statuses[status] += 1
                found.kinds[body.kind] += 1
                if status == 0 and len(body.data) > BUFFERED:
                    found.unheard += 1
                elif status >= 500 or status == 0:
                    found.server_errors.append(f"seed {seed} ({body.kind}): {status} {said[:300]!r}")
                elif status >= 400 and not _proper(said):
                    found.odd_errors.append(f"seed {seed} ({body.kind}): {status} {said[:300]!r}")

    with watched(service) as found.watched:
        threads = [threading.Thread(target=send) for _ in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


def _proper(body: bytes) -> bool:
    try:
        tree = json.loads(body)
    except ValueError:
        return False
    return set(tree) == {"error"} and {"code", "message"} <= set(tree["error"]) and len(body) < MOST_SAID
