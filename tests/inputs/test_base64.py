"""Base64 is decoded exactly as Python's own strict decoder does it, and refused where it refuses."""

from __future__ import annotations

import base64
import random

import pytest

from trueodds.inputs import InputError
from trueodds.inputs.image import json_images


def outcome(decode: object, text: str) -> bytes | str:
    """Return the decoded bytes, or the words of the refusal."""
    assert callable(decode)
    try:
        decoded: bytes = decode(text)
    except ValueError as error:
        return str(error)
    return decoded


def strict(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def test_texts_are_decoded_and_refused_as_python_does() -> None:
    draw = random.Random(0)
    texts = [
        "",
        "=",
        "====",
        "QQ==",
        "QR==",
        "QUI=",
        "AA=A",
        "QQ==QQ==",
        "AAAA====",
        "A-_A",
        "AAA",
        "\u00e9AAA",
        "AA\nA",
    ]
    texts += ["".join(draw.choices("ABab19+/=-_ ", k=draw.randrange(4, 14))) for _ in range(3000)]
    texts += [base64.b64encode(draw.randbytes(n)).decode() for n in range(60)]
    found = [outcome(json_images._decode, text) for text in texts]
    assert found == [outcome(strict, text) for text in texts]
    assert sum(isinstance(one, bytes) for one in found) > 100, "texts of both kinds are drawn"


def test_wrapped_base64_has_a_cure() -> None:
    """The command base64 and Python's encodebytes wrap their lines."""
    with pytest.raises(InputError, match=r"is not base64 .*; leave out the line breaks"):
        json_images._base64({"b64": base64.encodebytes(bytes(60)).decode()}, "b64", "instances[0]")
