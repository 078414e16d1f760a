"""Triton's extensions of the Open Inference Protocol: classification, configuration, statistics, index, compression."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from service.infer import outputs
from tests.service.app_client import Client
from tests.service.tiny_bundle import CLASSES, SHAPE, pictures

INFER = "/v2/models/tiny/infer"
TENSOR = {
    "name": "images",
    "shape": [3, *SHAPE],
    "datatype": "UINT8",
    "data": np.asarray(pictures(3), np.uint8).ravel().tolist(),
}


def asked(**parameters: Any) -> dict[str, Any]:
    return {"inputs": [TENSOR], "outputs": [{"name": "probabilities"}, {"name": "logits", "parameters": parameters}]}


@pytest.mark.parametrize("most", [1, 2, 4, 9])
def test_classification_gives_the_highest_values_with_their_names(client: Client, most: int) -> None:
    """In JSON and in binary; no more than there are classes."""
    plain, classified = (client.post(INFER, json=body).json() for body in (asked(), asked(classification=most)))
    logits_NC = np.reshape(plain["outputs"][1]["data"], (3, 4))
    (tensor,) = classified["outputs"][1:]
    assert (tensor["datatype"], tensor["shape"]) == ("BYTES", [3, min(most, 4)])
    texts_NK = np.reshape(tensor["data"], tensor["shape"])
    for logits_C, texts in zip(logits_NC, texts_NK, strict=True):
        for text, index in zip(texts, np.argsort(-logits_C, kind="stable")[:most], strict=True):
            value, place, name = text.split(":", 2)
            assert float(value) == logits_C[index] and (int(place), name) == (index, CLASSES[index])
    answer = client.post(INFER, json=asked(classification=most, binary_data=True))
    head = int(answer.headers["inference-header-content-length"])
    first = struct.unpack_from("<I", answer.content, head)[0]
    assert answer.content[head + 4 : head + 4 + first].decode() == tensor["data"][0]


@pytest.mark.parametrize("most", [0, -1, "2", True, 1.0])
def test_a_classification_that_is_no_count_is_refused(client: Client, most: Any) -> None:
    answer = client.post(INFER, json=asked(classification=most))
    assert answer.status_code == 422 and "allowed is a whole number, 1 or more" in answer.json()["error"]


def test_only_values_of_classes_are_classified(client: Client) -> None:
    named = [{"name": "label", "parameters": {"classification": 1}}]
    answer = client.post(INFER, json={"inputs": [TENSOR], "outputs": named})
    assert answer.status_code == 422 and "'classification'; allowed is binary_data" in answer.json()["error"]


@pytest.mark.parametrize(("coding", "unpack"), [("deflate", zlib.decompress), ("gzip", gzip.decompress)])
def test_bodies_are_compressed_both_ways(
    client: Client, monkeypatch: pytest.MonkeyPatch, coding: str, unpack: Any
) -> None:
    pack = zlib.compress if coding == "deflate" else gzip.compress
    headers = {"content-encoding": coding, "accept-encoding": f"br, {coding};q=0.5"}
    content = pack(json.dumps(asked(binary_data=True)).encode())

    def sent() -> tuple[str | None, bytes]:
        async def raw() -> tuple[str | None, bytes]:
            async with client.http.stream("POST", INFER, content=content, headers=headers) as answer:
                assert answer.status_code == 200
                body = b"".join([part async for part in answer.aiter_raw()])
                return answer.headers.get("content-encoding"), body

        return client.run(raw())

    assert sent()[0] is None, "a short answer stays plain"
    monkeypatch.setattr(outputs, "PACKED", 1)
    coded, body = sent()
    tree, _ = json.JSONDecoder().raw_decode(unpack(body).decode("latin-1"))  # the tensor follows it
    assert coded == coding and tree["model_name"] == "tiny"


def test_configuration_says_what_metadata_say(client: Client) -> None:
    metadata, config = (client.get(f"/v2/models/tiny{path}").json() for path in ("", "/config"))
    assert (config["name"], config["max_batch_size"]) == ("tiny", client.app.state.runtime.settings.max_instances)
    assert config["input"] == [{"name": "images", "data_type": "TYPE_UINT8", "dims": list(SHAPE)}]
    types = {tensor["name"]: (tensor["data_type"], tensor["dims"]) for tensor in config["output"]}
    assert types["label"] == ("TYPE_STRING", []) and types["probabilities"] == ("TYPE_FP64", [4])
    assert [[-1, *dims] for _, dims in types.values()] == [output["shape"] for output in metadata["outputs"]]
    version = metadata["versions"][0]
    assert client.get(f"/v2/models/tiny/versions/{version}/config").json() == config
    assert client.get("/v2/models/none/config").status_code == 404


def test_statistics_count_rows_batches_and_errors(client: Client) -> None:
    def statistics() -> dict[str, Any]:
        (of_version,) = client.get("/v2/models/tiny/stats").json()["model_stats"]
        assert isinstance(of_version, dict)
        return of_version

    def counts() -> list[int]:
        now = statistics()
        timed = now["inference_stats"]
        counted = (timed[name]["count"] for name in ("success", "fail", "compute_infer"))
        return [now["inference_count"], now["execution_count"], *counted]

    before = counts()
    client.post(INFER, json=asked())
    client.post(INFER, json=asked(classification=0))
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [3, 1, 1, 1, 1]
    now = statistics()
    assert all(now["inference_stats"][name]["ns"] > 0 for name in ("success", "fail", "compute_infer"))
    assert now["last_inference"] > 1.7e12 and now["inference_stats"]["queue"] == {"count": 0, "ns": 0}
    for path in ("/v2/models/stats", f"/v2/models/tiny/versions/{now['version']}/stats"):
        assert now in client.get(path).json()["model_stats"]
    for path in ("/v2/models/none/stats", "/v2/models/tiny/versions/0/stats"):
        assert client.get(path).status_code == 404


def test_the_index_lists_versions(client: Client) -> None:
    version = client.get("/v2/models/tiny").json()["versions"][0]
    entry = {"name": "tiny", "version": version, "state": "READY", "reason": ""}
    for body in (b"", b"{}", b'{"ready": true}'):
        assert client.post("/v2/repository/index", content=body).json() == [entry]
    answer = client.post("/v2/repository/index", json={"ready": 1})
    assert answer.status_code == 422 and '{"ready": true}' in answer.json()["error"]
