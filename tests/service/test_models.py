"""Models and versions side by side: what appears is checked and served, what is bad is not, what goes is drained."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from service.app import create_app
from service.models import registry
from service.models.calls import PredictionCall
from service.models.model import Model, Scores
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.hooks import until
from tests.service.tiny_bundle import pictures, write_bundle
from trueodds import files
from trueodds.bundle import CALIBRATOR, CARD, MODEL, BundleError, open_models
from trueodds.calibrators import Temperature


@pytest.fixture
def client(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(registry, "LOOK_SECONDS", 0.02)
    settings = Settings(models=models, store=tmp_path / "s.sqlite", threads=1, max_pinned=1)
    with Client(create_app(settings)) as client:
        yield client


@pytest.fixture
def publish(models: Path, tmp_path: Path) -> Callable[..., str]:
    """Publish a bundle written with other options; its version."""

    def publish(*, default: bool = True, **options: Any) -> str:
        folder = tmp_path / f"bundle-{len(list(tmp_path.iterdir()))}"
        return open_models(models).publish(write_bundle(folder, **options), "default" if default else None).name

    return publish


def served(client: Client, **query: Any) -> tuple[str, str]:
    """Model and version of an answer."""
    answer = client.send("/predict", {"instances": pictures(1)}, **query)
    return answer["model"], answer["version"]


def refusal(client: Client, **query: Any) -> tuple[int, str]:
    answer = client.post("/predict", json={"instances": pictures(1)}, params=query)
    return answer.status_code, answer.json()["error"]["message"]


def listed(client: Client, model: str = "tiny") -> dict[str, Any]:
    return next(m for m in client.get("/models").json()["models"] if m["model"] == model)


def test_a_new_version_is_served_without_a_restart_and_the_old_one_by_name(
    client: Client, publish: Callable[..., str]
) -> None:
    _, first = served(client)
    second = publish(calibrator=Temperature(2.5))
    until(lambda: served(client) == ("tiny", second))
    assert served(client, version=first) == ("tiny", first)
    assert served(client, model="tiny") == ("tiny", second)
    assert {v["version"]: v["meant_as"] for v in listed(client)["versions"]} == {first: [], second: ["default"]}


def test_models_of_other_shapes_side_by_side(client: Client, publish: Callable[..., str]) -> None:
    _, first = served(client)
    other = publish(name="wide", shape=(2, 8, 1), default=False)
    until(lambda: other in client.get("/models").text)
    assert served(client) == ("tiny", first)
    body = {"instances": pictures(1, (2, 8, 1))}
    answer = client.post("/predict", json=body, params={"model": "wide", "version": other})
    assert answer.json()["version"] == other
    assert client.post("/predict", json=body).status_code == 422
    status, words = refusal(client, model="wide")
    assert status == 503 and "wide/default names no version" in words


def test_what_is_not_there(client: Client) -> None:
    assert refusal(client, model="none") == (404, "unknown model 'none'; published are tiny")
    status, words = refusal(client, version="0")
    assert status == 404 and words.startswith("unknown version '0' of tiny; published are ")


def test_a_bad_bundle_is_refused_reported_and_tried_again_when_it_changes(
    client: Client, publish: Callable[..., str], models: Path
) -> None:
    _, first = served(client)
    bad = publish(default=False, calibrator=Temperature(2.5))
    (models / "tiny" / bad / CALIBRATOR).write_text('{"calibrator": "identity"}')
    open_models(models).promote("tiny", bad)
    until(lambda: any(v["state"] == "refused" for v in listed(client)["versions"]))
    reason = next(v["reason"] for v in listed(client)["versions"] if v["version"] == bad)
    assert "altered or damaged" in reason
    assert reason in client.get("/models").json()["problems"][0]
    time.sleep(0.2)
    assert served(client) == served(client, model="tiny") == ("tiny", first)
    metrics = client.get("/metrics").text
    assert 'trueodds_bundle_loads_total{outcome="refused"} 1.0' in metrics
    assert f'trueodds_version_ready{{model="tiny",role="default",version="{bad}"}} 0.0' in metrics
    status, words = refusal(client, version=bad)
    assert status == 503 and "altered or damaged" in words
    assert client.get(f"/v2/models/tiny/versions/{bad}/ready").status_code == 503
    assert client.get("/v2/models/tiny/ready").status_code == 200
    files.write_json(models / "tiny" / bad / CALIBRATOR, Temperature(2.5).to_json())
    until(lambda: served(client) == ("tiny", bad))


def test_a_bundle_altered_on_disk_is_noticed_and_goes_on_answering(
    client: Client, models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The version in memory is sound; only a restart would find that its files are not."""
    _, version = served(client)
    before, folder = client.predict(pictures(1))[0]["probabilities"], models / "tiny" / version
    metric = f'trueodds_version_altered{{model="tiny",version="{version}"}}'

    def put(path: Path, content: bytes | None) -> None:
        """At once: of a file that is half written another problem would be reported first."""
        if content is None:
            path.unlink()
        else:
            path.with_name("aside").write_bytes(content)
            path.with_name("aside").replace(path)

    def state() -> tuple[str, str | None]:
        return next((v["state"], v["reason"]) for v in listed(client)["versions"])

    for name, content, words in (
        (CALIBRATOR, b"{}", "altered or damaged"),
        (MODEL, b"not the model", "altered or damaged"),
        (CARD, (folder / CARD).read_bytes() + b"\n", "holds tiny/"),
        (CARD, None, "is missing"),
    ):
        whole = (folder / name).read_bytes()
        assert state() == ("loaded", None) and f"{metric} 0.0" in client.get("/metrics").text
        put(folder / name, content)
        until(lambda: state()[0] == "altered")
        reason = state()[1] or ""
        assert reason.startswith(
            "was altered on disk after it was loaded; it still answers, but a restart would refuse"
        )
        assert words in reason and str(folder) in reason
        assert client.get("/models").json()["problems"] == [f"tiny/{version} {reason}"]
        assert [r.levelname for r in caplog.records if r.getMessage() == f"tiny/{version} {reason}"] == ["WARNING"]
        assert f"{metric} 1.0" in client.get("/metrics").text
        assert client.get("/health/ready").status_code == 200
        assert client.predict(pictures(1))[0]["probabilities"] == before
        put(folder / name, whole)
        until(lambda: state() == ("loaded", None))
        assert client.get("/models").json()["problems"] == []
        caplog.clear()


def test_a_bundle_whose_loading_panics_is_refused_and_the_next_one_is_loaded(
    client: Client, publish: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a tokenizer may: its panic is no Exception."""

    class PanicError(BaseException):
        pass

    def panics(*_: Any, **__: Any) -> Model:
        raise PanicError("index out of bounds")

    before = served(client)
    with monkeypatch.context() as patch:
        patch.setattr(Model, "load", panics)
        publish(seed=5)
        until(lambda: any(v["state"] == "refused" for v in listed(client)["versions"]))
        assert served(client) == before
    newest = publish(seed=6)
    until(lambda: served(client)[1] == newest)


def test_a_folder_under_another_name_is_refused(client: Client, publish: Callable[..., str], models: Path) -> None:
    _, first = served(client)
    shutil.copytree(models / "tiny" / first, models / "tiny" / "renamed")
    until(lambda: len(listed(client)["versions"]) == 2)
    status, words = refusal(client, version="renamed")
    assert status == 503 and f"the folder is tiny/renamed, but its content is tiny/{first}" in words


def test_a_default_that_names_nothing_changes_nothing(client: Client, models: Path) -> None:
    before = served(client)
    (models / "tiny" / "default").write_text("gone\n")
    until(lambda: "names 'gone'" in client.get("/models").text)
    (models / "default").unlink()
    until(lambda: "no model yet" in client.get("/models").text)
    assert served(client) == served(client, model="tiny") == before


def test_rolling_back_is_promoting_the_earlier_version(
    client: Client, publish: Callable[..., str], models: Path
) -> None:
    _, first = served(client)
    second = publish(calibrator=Temperature(2.5))
    until(lambda: served(client)[1] == second)
    open_models(models).promote("tiny", first)
    until(lambda: served(client)[1] == first)
    with pytest.raises(BundleError, match="there is no folder"):
        open_models(models).promote("tiny", "../tiny")


def test_pinned_versions_are_loaded_when_asked_for_and_the_last_ones_stay(
    client: Client, publish: Callable[..., str]
) -> None:
    versions = [publish(default=False, calibrator=Temperature(2 + k)) for k in range(3)]
    until(lambda: len(listed(client)["versions"]) == 4)

    def loaded() -> set[str]:
        return {v["version"] for v in listed(client)["versions"] if v["state"] == "loaded"}

    _, first = served(client)
    assert loaded() == {first}
    for version in versions:
        assert served(client, version=version)[1] == version
        assert loaded() == {first, version}


def test_a_version_that_is_removed_is_drained(client: Client, publish: Callable[..., str], models: Path) -> None:
    _, first = served(client)
    second = publish(default=False, calibrator=Temperature(2.5))
    until(lambda: len(listed(client)["versions"]) == 2)
    engine = client.run(client.app.state.runtime.registry.engine("tiny", second))

    async def hold_it() -> int:
        with engine:
            shutil.rmtree(models / "tiny" / second)
            while (await client.http.get("/models")).json()["models"][0]["versions"][1:]:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            return len(await engine.predict(PredictionCall(np.asarray(pictures(1), np.uint8), "r")))

    assert client.run(hold_it()) == 1
    assert refusal(client, version=second)[0] == 404
    shutil.rmtree(models / "tiny" / first)
    until(lambda: client.get("/health/ready").status_code == 503)


def test_models_that_cannot_be_read_stay(client: Client, models: Path) -> None:
    before = served(client)
    models.rename(models.with_name("away"))
    time.sleep(0.2)
    assert served(client) == before
    models.with_name("away").rename(models)


def test_a_shadow_is_scored_stored_and_labelled_but_not_answered(
    client: Client, publish: Callable[..., str], models: Path
) -> None:
    _, first = served(client)
    second = publish(default=False, calibrator=Temperature(3.0))
    open_models(models).shadow("tiny", second)
    until(lambda: listed(client)["shadow"] == second)
    predictions = [client.predict(pictures(3, seed=k)) for k in range(4)]
    assert {p["id"] for answer in predictions for p in answer}
    shadow = "tiny~shadow"
    until(lambda: client.get("/calibration-report", params={"model": shadow}).json().get("answers") == 12)
    rows = [{"id": p["id"], "index": 1} for answer in predictions for p in answer]
    assert client.label(rows) == {"stored": 12, "already_known": 0, "corrected": 0, "held": 0}
    assert client.label(rows)["already_known"] == 12
    served_report, shadow_report = client.report(version=first), client.report(model=shadow)
    assert served_report["labelled"] == shadow_report["labelled"] == 12
    assert served_report["accuracy"] == shadow_report["accuracy"]
    assert served_report["mean_confidence"] > shadow_report["mean_confidence"]
    open_models(models).withdraw("tiny")
    until(lambda: listed(client)["shadow"] is None)


def test_a_calibrator_is_judged_beside_a_net_on_the_served_logits(
    client: Client, publish: Callable[..., str], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both slots at once: the served net is run once for both, and every answer's label is theirs too."""
    _, first = served(client)
    calibrator, net = publish(default=False, calibrator=Temperature(3.0)), publish(default=False, seed=5)
    open_models(models).shadow("tiny", net)
    open_models(models).shadow("tiny", calibrator, slot="recalibrated")
    until(lambda: (listed(client)["shadow"], listed(client)["recalibrated"]) == (net, calibrator))
    ran: list[str] = []
    score = Model.score

    def counted(model: Model, inputs: Any, *rest: Any, **options: Any) -> Scores:
        ran.append(model.version.version)
        return score(model, inputs, *rest, **options)

    monkeypatch.setattr(Model, "score", counted)
    predictions = client.predict(pictures(12))
    names = ["tiny~shadow", "tiny~recalibrated"]

    def answers(name: str) -> int:
        report = client.get("/calibration-report", params={"model": name})
        return int(report.json()["answers"]) if report.status_code == 200 else 0

    until(lambda: [answers(name) for name in names] == [12, 12])
    assert sorted(set(ran)) == sorted({first, net}) and calibrator not in ran
    client.label([{"id": p["id"], "index": 1} for p in predictions])
    reports = [client.report(model=name) for name in ("tiny", *names)]
    assert [report["labelled"] for report in reports] == [12] * 3
    assert [report["version"] for report in reports] == [first, net, calibrator]
    logits = np.log([p["probabilities"] for p in predictions]) * 1.7  # the served temperature
    assert reports[2]["mean_confidence"] == pytest.approx(softmax(logits / 3.0, axis=1).max(axis=1).mean(), abs=1e-6)
    roles = {v["version"]: v["role"] for v in client.report()["known"] if v["model"] in names}
    assert roles == {net: "shadow", calibrator: "recalibrated"}
    open_models(models).shadow("tiny", net, slot="recalibrated")
    until(lambda: f"{net} is not a recalibration of {first}: it has another net" in client.get("/models").text)
    assert listed(client)["recalibrated"] is None


def test_a_shadow_that_takes_other_images_is_reported(
    client: Client, publish: Callable[..., str], models: Path
) -> None:
    other = publish(default=False, classes=("a", "b"))
    (models / "tiny" / "shadow").write_text(f"{other}\n")  # `shadow` refuses it; the default may change later
    until(lambda: "cannot shadow" in client.get("/models").text)
    assert listed(client)["shadow"] is None
