"""/predict: what is answered, what is stored, and what is refused."""

from __future__ import annotations

import base64
import io
import re
import sqlite3
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.models.model import Model
from service.settings import Settings
from tests.png_files import png_of_rows
from tests.service.app_client import Client
from tests.service.tiny_bundle import CLASSES, SHAPE, pictures
from trueodds.bundle import Bundle, open_models
from trueodds.calibrators import Temperature
from trueodds.inputs import ImageInput
from trueodds.inputs.image.pictures import MAX_PIXELS, encode_png


def png(height: int = 4, width: int = 4, channels: int = 1, seed: int = 0) -> bytes:
    return encode_png(np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8))


def b64(data: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(data).decode()}


def test_answer_has_every_part(client: Client, models: Any) -> None:
    answer = client.post("/predict", json={"instances": pictures(3)}, headers={"x-request-id": "mine-1"})
    body = answer.json()
    assert answer.status_code == 200
    assert body["request_id"] == answer.headers["x-request-id"] == "mine-1"
    assert (body["model"], body["version"]) == ("tiny", open_models(models).default().name)
    for prediction in body["predictions"]:
        probabilities = prediction["probabilities"]
        assert prediction["index"] == int(np.argmax(probabilities))
        assert prediction["label"] == CLASSES[prediction["index"]]
        assert prediction["confidence"] == max(probabilities)
        assert sum(probabilities) == pytest.approx(1, abs=1e-12)
        assert re.fullmatch(r"[0-9a-f]{36}", prediction["id"])
    ids = [p["id"] for p in body["predictions"]]
    assert len(set(ids)) == 3


def test_answers_equal_the_bundle_applied_by_hand(client: Client, models: Any) -> None:
    instances = pictures(5)
    bundle = Bundle.load(open_models(models).default())
    logits_NC = Model.load(bundle.directory, 1).logits(np.asarray(instances, np.uint8))
    answered = [p["probabilities"] for p in client.predict(instances)]
    np.testing.assert_allclose(answered, bundle.calibrator(logits_NC), rtol=1e-6)


def test_rescoring_a_stored_row_gives_the_answered_probabilities_bit_for_bit(
    client: Client, settings: Settings
) -> None:
    predictions = client.predict(pictures(40))
    predictions += [client.predict([p])[0] for p in pictures(5, seed=9)]
    with sqlite3.connect(settings.store) as db:
        rows = dict(db.execute("SELECT id, logits FROM predictions").fetchall())
    assert len(rows) == 45
    for p in predictions:
        logits_1C = np.frombuffer(rows[p["id"]], "<f4").reshape(1, -1)
        assert logits_1C.max() == 0
        assert Temperature(1.7)(logits_1C)[0].tolist() == p["probabilities"]


def test_all_ways_to_send_an_image_agree(client: Client) -> None:
    image = np.random.default_rng(1).integers(0, 256, SHAPE, np.uint8)
    expected = client.predict([image.tolist()])[0]["probabilities"]
    flat, encoded = image.squeeze(2).tolist(), encode_png(image)
    floats = image.astype(float).tolist()
    for instances in ([flat], [floats], [b64(encoded)]):
        assert client.predict(instances)[0]["probabilities"] == expected
    answer = client.post("/predict", files=[("files", ("a.png", encoded)), ("files", ("b.png", encoded))])
    assert [p["probabilities"] for p in answer.json()["predictions"]] == [expected, expected]
    for media_type in ("image/png", "image/jpeg", "Image/X; q=1"):
        answer = client.post("/predict", content=encoded, headers={"content-type": media_type})
        assert [p["probabilities"] for p in answer.json()["predictions"]] == [expected]


def test_colour_jpeg_and_resizing_as_in_training(serve: Callable[..., Client]) -> None:
    client = serve(shape=(8, 8, 3), resized=True)
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8)).save(out, "JPEG")
    assert len(client.predict([b64(out.getvalue()), b64(png(8, 8, 3)), b64(png(9, 7, 1))])) == 3


def test_a_call_may_bring_four_of_the_largest_pictures() -> None:
    assert Settings().max_pixels == 4 * MAX_PIXELS


def test_pixels_are_limited_over_all_images_of_a_call(serve: Callable[..., Client]) -> None:
    client = serve({"max_pixels": 4000}, shape=(8, 8, 1), resized=True)
    assert len(client.predict([b64(png(40, 50)), b64(png(50, 40))])) == 2
    answer = client.post("/predict", json={"instances": [b64(png(40, 50)), b64(png(50, 41))]})
    assert answer.status_code == 413
    assert "instances[1] brings the images of this call to 4,050 pixels; the limit is 4,000" in answer.text


def test_images_of_several_requests_follow_each_other_however_they_lie_in_memory() -> None:
    batch_NHWC = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), np.uint8)
    parts = [batch_NHWC[:1], np.asfortranarray(batch_NHWC[1:3]), batch_NHWC[3:][::-1][::-1], batch_NHWC[:0]]
    kind = ImageInput(height=4, width=5, channels=3)
    joined = kind.join(parts)
    assert joined.dtype == np.uint8 and np.array_equal(joined, batch_NHWC)
    assert kind.join([batch_NHWC]) is batch_NHWC


def test_p_positive_is_answered_by_models_that_have_a_positive_class(
    serve: Callable[..., Client], client: Client
) -> None:
    binary = serve(classes=("malignant", "benign"), positive="malignant")
    for query in ("", "?top_k=1", "?abstain_below=1"):
        for row in binary.post(f"/predict{query}", json={"instances": pictures(20)}).json()["predictions"]:
            assert row["positive"]["label"] == "malignant"
            if "probabilities" in row:
                assert row["positive"]["probability"] == row["probabilities"][0]
            p = row["positive"]["probability"]
            assert row["confidence"] == pytest.approx(max(p, 1 - p), abs=1e-12)
    assert all("positive" not in row for row in client.predict(pictures(2)))


def test_a_stored_answer_keeps_its_positive_class(serve: Callable[..., Client]) -> None:
    binary = serve(classes=("malignant", "benign"), positive="malignant")
    first, again = (
        binary.post("/predict", json={"instances": pictures(1), "ids": ["b-1"]}).json()["predictions"][0]
        for _ in range(2)
    )
    assert again["repeated"] and again["positive"] == first["positive"]


def test_ties_go_to_the_smallest_index(serve: Callable[..., Client]) -> None:
    client = serve()
    tied = client.predict([np.zeros(SHAPE, int).tolist()])[0]
    assert tied["index"] == 0
    assert tied["probabilities"] == [0.25] * 4


def nested(value: Any, place: tuple[int, ...] = (1, 2, 0)) -> list[Any]:
    image: Any = pictures(1)[0]
    a, b, c = place
    image[a][b][c] = value
    return [image]


BAD_INSTANCES = {
    "empty": ([], 422, "at least one"),
    "not a list": ("abc", 422, "instances"),
    "null": ([None], 422, "instances[0] is None"),
    "number": ([3], 422, "nested list"),
    "fraction": (nested(0.5), 422, "instances[0][1][2][0] is 0.5; allowed are whole numbers 0..255"),
    "bool": (nested(True), 422, "is True"),
    "text": (nested("7"), 422, "is '7'"),
    "null pixel": (nested(None), 422, "is None"),
    "negative": (nested(-1), 422, "is -1"),
    "too bright": (nested(256), 422, "is 256"),
    "huge": (nested(2**63), 422, "whole numbers"),
    "list for a pixel": (nested([1]), 422, "is [1]"),
    "ragged rows": ([pictures(1)[0][:3]], 422, "has 3 rows; the model takes 4 x 4 x 1"),
    "ragged columns": ([[row[: 4 - (i == 2)] for i, row in enumerate(pictures(1)[0])]], 422, "instances[0][2] has 3"),
    "channels": ([np.zeros((4, 4, 3), int).tolist()], 422, "[0][0] has 3 values, not 1"),
    "flat": ([[0] * 16], 422, "16 rows"),
    "row of numbers": ([[1, 2, 3, 4]], 422, "instances[0][0] is 1, not a list"),
    "empty image": ([[]], 422, "0 rows"),
    "second is bad": ([*pictures(1), [[]]], 422, "instances[1]"),
    "other key": ([{"url": "http://x"}], 422, "b64"),
    "extra key": ([{"b64": "", "x": 1}], 422, "b64"),
    "b64 number": ([{"b64": 3}], 422, "b64"),
    "not base64": ([{"b64": "%%%"}], 422, "not base64"),
    "data url": ([{"b64": "data:image/png;base64,AAAA"}], 422, "leave out"),
    "not ascii": ([{"b64": "äöü"}], 422, "not base64"),
    "not an image": ([b64(b"hello")], 422, "allowed is PNG, JPEG, WebP, GIF, TIFF or BMP"),
    "cut short": ([b64(png()[:40])], 422, "instances[0]"),
    "fewer rows": ([b64(png_of_rows(4, 4, rows=3))], 422, "its data end before row 4, the last"),
    "wrong size": ([b64(png(5, 6))], 422, "5 x 6 pixels; the model takes 4 x 4"),
    "too many": (pictures(9), 413, "9 images in one call; the limit is 8"),
    "too many pixels": ([b64(png(70, 60))], 413, "70 = 4,200 pixels; the limit is 4,000"),
}


@pytest.fixture(scope="module")
def limited(serve_once: Callable[..., Client]) -> Client:
    """A service that refuses all that these tests send."""
    return serve_once({"max_instances": 8, "max_pixels": 4000, "max_body_bytes": 20_000})


@pytest.mark.parametrize("name", BAD_INSTANCES)
def test_bad_instances(limited: Client, name: str) -> None:
    instances, status, words = BAD_INSTANCES[name]
    answer = limited.post("/predict", json={"instances": instances})
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]["message"]
    assert limited.report()["answers"] == 0


JSON = {"content-type": "application/json"}
BAD_BODIES = {
    "not JSON": (b"{", JSON, 400, "not JSON"),
    "empty": (b"", JSON, 400, "not JSON"),
    "NaN": (b'{"instances": [[[NaN]]]}', JSON, 400, "NaN"),
    "not UTF-8": (b'{"instances": "\xff"}', JSON, 400, "not JSON"),
    "nesting bomb": (b'{"instances":' + b"[" * 9000 + b"]" * 9000 + b"}", JSON, 400, "depth"),
    "deep": (b'{"instances":[' + b"[" * 900 + b"]" * 900 + b"]}", JSON, 422, "rows"),
    "deep pixels": (
        b'{"instances":[' + b"[" * 3 + b"[" * 900 + b"]" * 900 + b",0,0,0]" + b",0]]]}",
        JSON,
        422,
        "",
    ),
    "infinite": (b'{"instances":[[[1e400]]]}', JSON, 400, "not JSON"),
    "no instances": (b"{}", JSON, 422, "instances"),
    "list": (b"[]", JSON, 422, "instances"),
    "unknown key": (b'{"instances":[1],"top_k":3}', JSON, 422, "top_k"),
    "too large": (b"[" + b"1," * 20_000 + b"1]", JSON, 413, "20,000 bytes"),
    "no type": (b"{}", {}, 415, "Content-Type"),
    "wrong type": (b"{}", {"content-type": "text/csv"}, 415, "text/csv"),
    "no boundary": (b"x", {"content-type": "multipart/form-data"}, 400, "files"),
    "no image": (b"x", {"content-type": "image/png"}, 422, "the body: not an image that can be read"),
    "an image file as pixels": (
        png()[: 16 * (len(png()) // 16)],
        {"content-type": "application/octet-stream"},
        422,
        "Send it with the content type image/png",
    ),
    "broken form": (b"x", {"content-type": "multipart/form-data; boundary=b"}, 400, "files"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_bodies(limited: Client, name: str) -> None:
    body, headers, status, words = BAD_BODIES[name]
    answer = limited.post("/predict", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]["message"]
    assert answer.headers["x-request-id"]


def test_bad_forms(limited: Client) -> None:
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"files": [("files", ("a.png", b"junk"))]}, 422, "files[0]: not an image"),
        ({"files": [("images", ("a.png", png()))]}, 422, "'images'"),
        ({"files": [("files", ("a.png", png()))], "data": {"note": "x"}}, 422, "'note'"),
        ({"files": [("files", ("a.png", png()))] * 9}, 413, "limit is 8"),
        ({"files": [("files", ("a.png", png(70, 60)))]}, 413, "limit is 4,000"),
    ]
    for options, status, words in cases:
        answer = limited.post("/predict", **options)
        assert (answer.status_code, words in answer.text) == (status, True), answer.text


def test_a_streamed_body_is_cut_off_at_the_limit(limited: Client) -> None:
    sent = 0

    async def chunks() -> Any:
        nonlocal sent
        for _ in range(1000):
            sent += 1000
            yield b"1" * 1000

    answer = limited.post("/predict", content=chunks(), headers=JSON)
    assert answer.status_code == 413
    assert sent <= 83_000  # four times the limit is read and thrown away, so that the client can read the answer


def test_a_header_that_claims_a_bomb_is_refused_before_decoding(limited: Client) -> None:
    data = bytearray(png())
    data[16:24] = (60_000).to_bytes(4, "big") * 2
    import zlib

    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    answer = limited.post("/predict", json={"instances": [b64(bytes(data))]})
    assert answer.status_code == 413, answer.text
    assert "limit" in answer.json()["error"]["message"]


def test_a_bad_request_id_is_replaced(client: Client) -> None:
    answer = client.get("/health/live", headers={"x-request-id": "a b\tc"})
    assert re.fullmatch(r"[0-9a-f]{24}", answer.headers["x-request-id"])


def test_what_has_another_size_is_refused_before_it_is_decoded(serve: Callable[..., Client]) -> None:
    """65 million pixels of nothing in 64 KB: by its header it cannot be what the model takes."""
    client = serve()
    out = io.BytesIO()
    Image.new("1", (8190, 8190)).save(out, "PNG")
    tracemalloc.start()
    answer = client.post("/predict", json={"instances": [b64(out.getvalue())]})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.status_code == 422 and "8190 x 8190 pixels; the model takes 4 x 4" in answer.text
    assert peak < 8 * 1024**2


def test_an_error_about_a_huge_object_is_short(client: Client) -> None:
    answer = client.post("/feedback", json={"id": "x", "label": {str(k): k for k in range(20_000)}})
    assert answer.status_code == 422 and "an object with 20,000 keys" in answer.text
