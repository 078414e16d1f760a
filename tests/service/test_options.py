"""What is sent and asked beside the pixels: arrays, own ids, tags, options of the answer, keys."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any, get_args
from urllib.parse import quote

import numpy as np
import pytest

from service.__main__ import main
from service.http import hashed_keys, keys
from service.settings import Settings, read_hashes
from tests.service.app_client import Client, content_of
from tests.service.tiny_bundle import SHAPE, change_card, pictures, write_bundle
from trueodds.bundle import RiskCoverage, open_models
from trueodds.calibrators import Temperature
from trueodds.metrics import CalibrationSums

IMAGES_NHWC = np.asarray(pictures(3), np.uint8)
NPY, RAW = {"content-type": "application/x-npy"}, {"content-type": "application/octet-stream"}


def npy(array: Any, version: tuple[int, int] | None = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(array), version=version)
    return out.getvalue()


def probabilities(answer: Any) -> list[list[float]]:
    return [p["probabilities"] for p in content_of(answer)["predictions"]]


def test_arrays_and_raw_bytes_are_the_same_images(client: Client) -> None:
    expected = [p["probabilities"] for p in client.predict(pictures(3))]
    by_columns = np.asfortranarray(IMAGES_NHWC)
    for array in (
        IMAGES_NHWC,
        by_columns,
        IMAGES_NHWC[..., 0],
        IMAGES_NHWC.astype(">f8"),
        IMAGES_NHWC.astype(np.int64),
    ):
        assert probabilities(client.post("/predict", content=npy(array), headers=NPY)) == expected
    assert probabilities(client.post("/predict", content=npy(IMAGES_NHWC, (2, 0)), headers=NPY)) == expected
    assert probabilities(client.post("/predict", content=IMAGES_NHWC.tobytes(), headers=RAW)) == expected
    for one in (IMAGES_NHWC[0], IMAGES_NHWC[0, ..., 0]):
        assert probabilities(client.post("/predict", content=npy(one), headers=NPY)) == expected[:1]
    coded = [{"pixels_b64": base64.b64encode(image.tobytes()).decode()} for image in IMAGES_NHWC]
    assert probabilities(client.post("/predict", json={"instances": coded})) == expected


class Explosive:
    def __reduce__(self) -> Any:
        return print, ("unpickled",)


def bomb() -> bytes:
    """A header that claims 10^15 bytes."""
    out = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (62_500_000_000_000, *SHAPE)}
    np.lib.format.write_array_header_1_0(out, header)
    return out.getvalue()


BAD_ARRAYS = [
    (b"", 400, "not a .npy file"),
    (b"\x93NUMPY\x01\x00", 400, "not a .npy file"),
    (npy(IMAGES_NHWC)[:-1], 400, "48 bytes; 47 came after it"),
    (npy(IMAGES_NHWC) + b"x", 400, "49 came after it"),
    (npy(IMAGES_NHWC).replace(b"'descr': '|u1'", b"'descr': print"), 400, "not a .npy file"),
    (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65_535, 400, "not a .npy file"),
    (npy(np.array(["a"])), 422, "allowed are numbers"),
    (npy(np.ones((1, *SHAPE), bool)), 422, "the array is 'bool'; allowed are numbers, best uint8. Send a mask as"),
    (npy(np.zeros((3, 4, 5, 1), np.uint8)), 422, "the array has the shape [3, 4, 5, 1]; the model takes N x 4 x 4 x 1"),
    (npy(np.zeros((0, *SHAPE), np.uint8)), 422, "no image"),
    (npy(np.zeros((300, *SHAPE), np.uint8)), 413, "the limit is 256"),
    (npy(np.full((1, *SHAPE), 0.5)), 422, "holds 0.5 at [0, 0, 0, 0]; allowed are whole numbers 0..255. Send"),
    (npy(np.full((1, *SHAPE), 256)), 422, "holds 256"),
    (npy(np.full((1, *SHAPE), np.nan)), 422, "holds nan"),
    (npy(np.zeros((1, *SHAPE), np.complex64)), 422, "allowed are numbers"),
]


def test_bad_arrays(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.array([Explosive()]), allow_pickle=True)
    for body, status, words in [
        *BAD_ARRAYS,
        (out.getvalue(), 422, "allowed are numbers"),
        (bomb(), 413, "the limit is 256"),
    ]:
        answer = client.post("/predict", content=body, headers=NPY)
        assert (answer.status_code, words in answer.text) == (status, True), (words, answer.text)
    assert "unpickled" not in capsys.readouterr().out
    answer = client.post("/predict", content=b"x" * 17, headers=RAW)
    assert answer.status_code == 422 and "17 bytes; an image has 16" in answer.text
    assert client.post("/predict", content=b"", headers=RAW).status_code == 422


def test_an_own_id_gets_its_stored_answer_and_no_other_input(client: Client) -> None:
    body = {"instances": pictures(2), "ids": ["a b/ü", "2"], "tags": ["left", None], "propensities": [0.25, None]}
    first = client.post("/predict", json=body).json()["predictions"]
    assert [p["id"] for p in first] == ["a b/ü", "2"]
    again = client.post("/predict", json=body).json()["predictions"]
    version = client.report()["version"]
    assert again == [{**p, "repeated": True, "version": version} for p in first]
    assert client.report()["answers"] == 2
    other = client.post("/predict", json={"instances": pictures(2, seed=8), "ids": ["3", "2"]})
    assert other.status_code == 409 and other.json()["error"]["ids"] == ["2"]
    assert client.label([{"id": "2", "label": "dog"}])["stored"] == 1
    twice = client.post("/predict", json={"instances": [pictures(1)[0]] * 2, "ids": ["t", "t"]}).json()["predictions"]
    assert "repeated" not in twice[0] and twice[1] == {**twice[0], "repeated": True, "version": version}


def test_an_own_id_by_header(client: Client) -> None:
    body = IMAGES_NHWC[0].tobytes()
    first = client.post("/predict", content=body, headers={**RAW, "x-prediction-id": "h-1"}).json()["predictions"][0]
    again = client.post("/predict", content=npy(IMAGES_NHWC[:1]), headers={**NPY, "x-prediction-id": "h-1"})
    assert first["id"] == "h-1" and again.json()["predictions"][0]["repeated"]
    answer = client.post("/predict", content=IMAGES_NHWC.tobytes(), headers={**RAW, "x-prediction-id": "h-2"})
    assert answer.status_code == 422 and "this call has 3" in answer.text


def test_an_id_in_a_header_is_utf_8_and_there_is_one(client: Client) -> None:
    def sent(*ids: bytes) -> Any:
        headers = [(b"content-type", b"application/octet-stream"), *((b"x-prediction-id", id_) for id_ in ids)]
        return client.post("/predict", content=IMAGES_NHWC[0].tobytes(), headers=headers)

    assert sent("Übung/日本".encode()).json()["predictions"][0]["id"] == "Übung/日本"
    assert client.label([{"id": "Übung/日本", "label": "dog"}])["stored"] == 1
    for ids, words in (
        (["Übung".encode("latin-1")], "is b'\\\\xdcbung', which is not UTF-8; send it in UTF-8, or JSON with ids"),
        ([b"a", b"b"], "the header x-prediction-id is sent 2 times; an image has one id"),
        ([b"a", b"a"], "is sent 2 times"),
        ([b""], "x-prediction-id is ''; allowed is a text of 1 to 128 printable characters"),
        (["a\u202eb".encode()], "printable characters"),
    ):
        answer = sent(*ids)
        assert (answer.status_code, words in answer.text) == (422, True), answer.text
    assert client.report()["answers"] == 1


@pytest.mark.parametrize(
    ("lists", "query", "headers", "words"),
    [
        ({"ids": ["a"]}, {}, {"x-prediction-id": "b"}, "the body has ids, and there is the header x-prediction-id"),
        ({"tags": ["a"]}, {"tag": "a"}, {}, "the body has tags, and there is tag in the query; send only one of them"),
        ({"propensities": [0.5]}, {"propensity": 0.1}, {}, "the body has propensities, and there is propensity in"),
    ],
)
def test_what_is_said_twice_is_refused(
    client: Client, lists: dict[str, Any], query: dict[str, Any], headers: dict[str, str], words: str
) -> None:
    answer = client.post("/predict", json={"instances": pictures(1), **lists}, params=query, headers=headers)
    assert (answer.status_code, words in answer.text) == (422, True), answer.text
    assert client.report()["answers"] == 0


def test_predict_and_feedback_take_the_same_ids(client: Client) -> None:
    """A label that waits for an id which no prediction can have would wait in vain."""
    good = ["a b/ü", " ", "x" * 128, "𝄞" * 128, "0" * 35, "0" * 37]
    bad = ["", "x" * 129, "a\0b", "a\nb", "a\x85b", "a\u202eb", "\u200b", "\ufeffx"]
    for id_ in (*good, *bad):
        label = client.post("/feedback", json={"id": id_, "label": "cat", "model": "tiny"})
        image = client.post("/predict", json={"instances": pictures(1), "ids": [id_]})
        assert (label.status_code, image.status_code) == ((200, 200) if id_ in good else (422, 422)), repr(id_)
        assert id_ in good or all("1 to 128 printable characters" in a.text for a in (label, image))
    for ours in ("0" * 36, "ABCDEF" * 6):
        assert client.post("/feedback", json={"id": ours, "label": "cat", "model": "tiny"}).status_code == 404
        assert client.post("/predict", json={"instances": pictures(1), "ids": [ours]}).status_code == 422
    assert client.report()["labelled"] == len(good)


@pytest.mark.parametrize("id_", [".", "..", "../metrics", "a/../b", "a/."])
def test_an_id_that_a_client_resolves_to_another_path_is_refused(client: Client, id_: str) -> None:
    """GET and DELETE /predictions/.. are requests for /: the answer could not be read back or deleted."""
    label = client.post("/feedback", json={"id": id_, "label": "cat", "model": "tiny"})
    image = client.post("/predict", json={"instances": pictures(1), "ids": [id_]})
    for answer in (label, image):
        assert answer.status_code == 422 and "resolve '.." in answer.text.replace("'.'", "'..'"), answer.text
    dotted = "..a/b.../.c"
    client.post("/predict", json={"instances": pictures(1), "ids": [dotted]})
    assert client.get(f"/predictions/{quote(dotted, safe='')}").json()["id"] == dotted


def test_a_stored_answer_is_that_of_the_version_that_gave_it(client: Client, settings: Settings, tmp_path: Any) -> None:
    body = {"instances": pictures(1), "ids": ["kept"]}
    first, old = (
        client.post("/predict", json=body).json()["predictions"][0],
        open_models(settings.models).default().name,
    )
    open_models(settings.models).publish(write_bundle(tmp_path / "hotter", calibrator=Temperature(4.0)))
    client.run(client.app.state.runtime.registry.look())
    assert client.predict(pictures(1))[0]["confidence"] != first["confidence"]
    again = client.post("/predict", json=body).json()
    assert again["version"] != old
    assert again["predictions"] == [{**first, "repeated": True, "version": old}]


BAD_LISTS: list[tuple[dict[str, Any], str]] = [
    ({"ids": ["a"]}, "ids is 1 entry; expected a list with one entry per instance, 2 in all"),
    ({"ids": "ab"}, "ids is 'ab'"),
    ({"ids": ["a", ""]}, "ids[1] is ''; allowed is a text of 1 to 128 printable characters"),
    ({"ids": ["a", "b" * 129]}, "ids[1]"),
    ({"ids": ["a", "\n"]}, "ids[1]"),
    ({"ids": ["a", None]}, "ids[1] is None"),
    ({"ids": ["0" * 36, "a"]}, "ids of 36 hex digits are reserved for the service"),
    ({"tags": ["x" * 65, None]}, "tags[0]"),
    ({"propensities": [0, 1]}, "propensities[0] is 0; allowed is a number in (0, 1]"),
    ({"propensities": [True, 1]}, "propensities[0] is True"),
]


def test_bad_ids_tags_and_propensities(client: Client) -> None:
    for lists, words in BAD_LISTS:
        assert words in client.refusal("/predict", {"instances": pictures(2), **lists})
    assert client.report()["answers"] == 0


def test_top_k_and_logits(client: Client) -> None:
    full = client.predict(pictures(2))
    query = {"top_k": 2, "logits": "true", "tag": "t", "propensity": "0.5"}
    answer = client.post("/predict", json={"instances": pictures(2)}, params=query).json()["predictions"]
    for whole, short in zip(full, answer, strict=True):
        best = sorted(whole["probabilities"], reverse=True)[:2]
        assert [t["probability"] for t in short["top"]] == best
        assert short["top"][0]["label"] == whole["label"] and "probabilities" not in short
        np.testing.assert_allclose(Temperature(1.7)([short["logits"]])[0], whole["probabilities"], rtol=1e-12)


def test_abstaining_says_what_it_risks(serve: Callable[..., Client], tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    confidence_N = rng.uniform(0.3, 1, 500)
    sums = CalibrationSums.from_top(confidence_N, rng.uniform(size=500) < confidence_N)
    client = serve()
    plain = client.post("/predict", json={"instances": pictures(1)}, params={"abstain_below": 0.5}).json()
    assert "no risk-coverage table" in plain["abstention"]["reading"]
    folder = write_bundle(tmp_path / "with-table")
    change_card(folder, risk_coverage=RiskCoverage.of(sums, "test").model_dump())
    open_models(client.app.state.runtime.settings.models).publish(folder)
    client.run(client.app.state.runtime.registry.look())
    answer = client.post("/predict", json={"instances": pictures(20)}, params={"abstain_below": 0.8}).json()
    full = client.predict(pictures(20))
    assert {p["abstained"] for p in answer["predictions"]} == {True, False}
    for whole, prediction in zip(full, answer["predictions"], strict=True):
        assert prediction["abstained"] == (whole["confidence"] < 0.8)
        assert prediction["label"] == (None if prediction["abstained"] else whole["label"])
    abstention = answer["abstention"]
    assert abstention["coverage"] == (confidence_N > 0.8).mean()
    assert abstention["risk_lower"] < abstention["risk"] < abstention["risk_upper"]
    assert "On 500 test rows the model answers" in abstention["reading"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("top_k=0", "top_k = '0'"),
        ("top_k=x", "top_k"),
        ("abstain_below=2", "abstain_below"),
        ("k=1", "/predict has no parameter 'k'. Known are model, version, top_k"),
        ("topk=1", "Did you mean 'top_k'?"),
        ("top_k=1&top_k=2", "twice"),
        ("tag=%0A", "printable"),
        ("propensity=0", "propensity"),
        ("logits=maybe", "logits"),
    ],
)
def test_bad_parameters(client: Client, query: str, words: str) -> None:
    assert words in client.refusal(f"/predict?{query}", {"instances": pictures(1)})


def test_keys_open_what_they_are_for(serve: Callable[..., Client], tmp_path: Any) -> None:
    made = {role: hashed_keys.make() for role in get_args(keys.Role)}
    (tmp_path / "hashes").write_text(made["feedback"][1] + "\n")
    limits = {
        "predict_key_hash": made["predict"][1],
        "feedback_key_hash": f"@{tmp_path}/hashes",
        "admin_key_hash": made["admin"][1],
    }
    client = serve(limits)

    def status(role: keys.Role | None, path: str = "/predict", scheme: str = "Bearer") -> int:
        headers = {"authorization": f"{scheme} {made[role][0]}"} if role else {}
        answer = client.post(path, json={"instances": pictures(1)}, headers=headers)
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer")
        return answer.status_code

    assert [status(None), status("feedback"), status("predict"), status("admin")] == [401, 403, 200, 200]
    assert status("predict", scheme="Basic") == 401
    assert [status(None, "/feedback"), status("predict", "/feedback"), status("feedback", "/feedback")] == [
        401,
        403,
        422,
    ]
    assert status(None, "/v2/models/tiny/infer") == 401
    assert client.post("/predict", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/health/ready").status_code == 200


@pytest.mark.parametrize("text", ["secret", "@/nowhere/hashes", "0" * 63])
def test_a_setting_that_is_no_hash_is_refused_without_being_repeated(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--admin-key-hash", text]) == 2
    output = capsys.readouterr().err
    assert "admin_key_hash" in output and "secret" not in output


@pytest.mark.parametrize("role", get_args(keys.Role))
def test_a_key_in_place_of_its_hash_opens_no_service(
    role: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue: TRUEODDS_ADMIN_KEY was the hash for the service and the key itself for commands."""
    key, hashed = hashed_keys.make()
    name, plain = f"{role}_key_hash", f"TRUEODDS_{role.upper()}_KEY"
    monkeypatch.setenv(plain, key)
    assert main(["serve", "--port", "0"]) == 2
    output = capsys.readouterr().err
    assert f"{plain} is set, but the service reads only hashes of keys: set {plain}_HASH to the hash" in output
    monkeypatch.setenv(f"{plain}_HASH", key)
    assert main(["serve", "--port", "0"]) == 2
    refused = capsys.readouterr().err
    assert "give the hash and not the key itself" in refused and f"{plain}_HASH)" in refused
    assert key not in output + refused
    monkeypatch.setenv(f"{plain}_HASH", hashed)
    assert getattr(Settings(), name) == (hashed,)
    monkeypatch.delenv(f"{plain}_HASH")
    assert getattr(Settings.model_validate({name: hashed}), name) == (hashed,)


def test_a_key_is_made_and_only_its_hash_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key"]) == 0
    key, hashed = (line.split()[1] for line in capsys.readouterr().out.splitlines())
    assert read_hashes(hashed) == (hashed_keys.hash_of(key),)


def test_keys_and_webhooks_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where several workers read them."""
    first, second = "0" * 64, "f" * 64
    monkeypatch.setenv("TRUEODDS_PREDICT_KEY_HASH", f"{first}, {second}")
    monkeypatch.setenv("TRUEODDS_ALARM_WEBHOOK", "https://a/b,https://c")
    settings = Settings()
    assert settings.predict_key_hash == (first, second) and settings.feedback_key_hash == ()
    assert [webhook.url for webhook in settings.alarm_webhook] == ["https://a/b", "https://c"]
