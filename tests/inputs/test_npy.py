"""Headers of .npy files that nobody should send: each is refused in words, whatever the kind of input."""

from __future__ import annotations

import random
import struct
import warnings

import numpy as np
import pytest

from tests.inputs.test_kinds import ANY, GREY, npy
from trueodds.inputs import InputError, InputKind, VectorInput

VECTOR = VectorInput(features=["a", "b", "c"], missing=False)
SIZES = (
    "True",
    "False",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "6",
    "1.0",
    "1e0",
    "None",
    "'1'",
    "10**9",
    str(10**30),
    "(1,)",
    "1j",
)
KINDS = ("|u1", "<f4", ">f8", "<f16", "<i2", "|b1", "|O", "<U3", "|V4", "<M8[s]", "<c8", "|u0", "u1,u1", "")


def file_of(shape: str, kind: str = "|u1", order: str = "False", data: bytes = bytes(6)) -> bytes:
    """A .npy file whose header says what it is told to."""
    header = f"{{'descr': {kind!r}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize("shape", ["(True, 2, 3, 1)", "(True, 2, 3)", "(1, True)", "(-1, 2, 3)"])
def test_a_size_that_is_no_count_is_refused(shape: str) -> None:
    with pytest.raises(InputError, match="allowed are whole numbers from 0 on") as caught:
        GREY.read(file_of(shape), "npy", ANY)
    assert caught.value.code == "invalid_npy"
    assert GREY.read(file_of("(1, 2, 3, 1)"), "npy", ANY).shape == (1, 2, 3, 1)


@pytest.mark.parametrize("kind", [GREY, VECTOR], ids=["image", "vector"])
def test_headers_from_a_seed_are_read_or_refused(kind: InputKind) -> None:
    rng, read, refused = random.Random(0), 0, 0
    sound = npy(np.zeros((1, *kind.shape), kind.dtype))
    for _ in range(1500):
        if rng.random() < 0.5:
            shape = f"({', '.join(rng.choice(SIZES) for _ in range(rng.randrange(6)))})"
            body = file_of(shape, rng.choice(KINDS), rng.choice(["True", "False", "0", "None"]), rng.randbytes(6))
        else:
            damaged = bytearray(sound)
            for _change in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            body = bytes(damaged)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # numpy parses the header as Python, which warns of odd literals
                assert kind.read(body, "npy", ANY).shape[1:] == kind.shape
            read += 1
        except InputError:
            refused += 1
    assert read > 10 and refused > 1000
