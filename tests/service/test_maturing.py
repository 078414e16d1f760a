"""Models whose labels come late: the setting, and what report, metrics, alarm and exports make of it."""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from service.app import create_app
from service.report.notes import maturing_of, window_note
from service.settings import Settings
from service.store.rows import MaturedCounts, Version
from tests.service.app_client import Client
from tests.service.conftest import Serve
from tests.service.hooks import until
from tests.service.tiny_bundle import pictures
from trueodds.__main__ import main
from trueodds.calibrators import Temperature
from trueodds.sums.maturity import DAY_MS, Maturity, read_matures

FRAUD = {"matures": "fraud=45d:ok,tiny=30d"}
WHOSE = {"model": "fraud", "version": "7"}
ROWS = 60


def test_the_setting_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = {"fraud": Maturity(45 * DAY_MS, "ok"), "complaints": Maturity(36 * 3_600_000)}
    assert dict(read_matures(" fraud=45d:ok, complaints=36h:unknown,")) == windows
    assert dict(read_matures("complaints=36h"))["complaints"] == windows["complaints"]
    monkeypatch.setenv("TRUEODDS_MATURES", "fraud=45d:ok")
    assert dict(Settings().matures) == {"fraud": windows["fraud"]}
    assert [str(windows[name]) for name in windows] == ["45d:ok", "36h:unknown"]
    assert Maturity(90_000).window == "90s"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("45d", "'45d' is not a window; expected MODEL=WINDOW"),
        ("fraud=45", "units are s, m, h and d"),
        ("fraud=45d:fine", "gives a missing label the meaning 'fine'; allowed are ok and unknown"),
        ("fraud=0d", "a window of 0d; allowed are 1s to 3653d"),
        ("fraud=9999d", "a window of 9999d"),
        ("fraud=45d,fraud=30d", "fraud has two windows"),
    ],
)
def test_a_setting_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValidationError) as error:
        Settings(matures=text)
    assert words in str(error.value)


def observed(client: Client) -> list[str]:
    """Answers of a fraud model on which all are sure, and what came back of it: a tenth is fraud."""
    ids = [f"order-{k:02d}" for k in range(ROWS)]
    rows = [{"id": id_, "probabilities": [0.97, 0.03]} for id_ in ids]
    body = {"observations": rows, **WHOSE, "classes": ["ok", "fraud"], "positive": "fraud"}
    assert client.post("/observe", json=body).status_code == 200
    client.label([{"id": id_, "label": "fraud"} for id_ in ids[:6]])
    return ids


def wait(client: Client, days: float) -> None:
    """Have the store think that it is so many days later."""
    client.app.state.runtime.store._clock = lambda: time.time_ns() // 1_000_000 + int(days * DAY_MS)


def labelled(client: Client) -> Any:
    answer = client.get("/admin/labelled.npz", params=WHOSE)
    return np.load(io.BytesIO(answer.content)) if answer.status_code == 200 else answer.json()["error"]["code"]


def test_an_observed_model_is_judged_by_what_has_matured(serve: Serve) -> None:
    client = serve(FRAUD)
    ids = observed(client)
    before = client.report(**WHOSE)
    assert (before["answers"], before["labelled"], before["maturing"]["maturing"]) == (ROWS, 0, ROWS)
    assert before["alarm"]["nulls"][0]["labels"] == 0 and labelled(client) == "no_labels"
    assert f"{ROWS} answers of this version are maturing" in before["maturing"]["reading"]
    assert "A missing label means ok" in before["maturing"]["reading"]
    assert before["maturing"]["reading"] in before["cautions"]
    assert before["headline"].endswith("A label counts when the window of its answer closes, 45d after the answer.")
    none = client.get("/admin/labelled.npz", params=WHOSE).json()["error"]["message"]
    assert none.endswith("A label counts when the window of its answer closes, 45d after the answer")
    page = client.get("/calibration-report", params=WHOSE, headers={"accept": "text/html"}).text
    assert "answers of this version are maturing" in page
    text = client.get("/metrics").text
    assert f'trueodds_maturing{{model="fraud",version="7"}} {ROWS}.0' in text
    assert 'trueodds_label_coverage{model="fraud",version="7"} NaN' in text  # 0 would alert of too few labels
    one = client.get(f"/predictions/{ids[0]}").json()
    assert one["label"] is None and one["matures"] > one["time"]

    wait(client, 44.9)
    assert client.report(**WHOSE)["labelled"] == 0
    wait(client, 45.1)
    after = client.report(**WHOSE)
    counts = {"maturing": 0, "matured": ROWS, "assumed": ROWS - 6, "after_window": 0}
    assert (after["answers"], after["labelled"]) == (ROWS, ROWS)
    assert counts.items() <= after["maturing"].items()
    assert after["positive"]["prevalence"] == pytest.approx(6 / ROWS)
    assert labelled(client)["val_labels"].sum() == 6
    # the watch takes them within a second
    until(lambda: client.report(**WHOSE)["alarm"]["nulls"][0]["labels"] >= ROWS)
    text = client.get("/metrics").text
    for name, value in (
        ("maturing", 0),
        ("matured", ROWS),
        ("matured_unlabelled", ROWS - 6),
        ("after_window_labels", 0),
    ):
        assert f'trueodds_{name}{{model="fraud",version="7"}} {value}.0' in text
    rows = client.get("/predictions", params=WHOSE).text.splitlines()
    names = rows[0].split(",")
    cells = dict(zip(names, next(row for row in rows if row.startswith(ids[-1])).split(","), strict=True))
    assert (cells["label"], cells["label_time"]) == ("ok", "")  # nobody gave it
    one = client.get(f"/predictions/{ids[0]}").json()
    assert (one["label"], one["matures"]) == ("fraud", None) and one["label_time"]

    assert client.label([{"id": ids[9], "label": "fraud"}])["corrected"] == 1
    late = client.report(**WHOSE)
    assert late["maturing"]["after_window"] == late["corrected"] == 1
    assert late["positive"]["prevalence"] == pytest.approx(7 / ROWS)
    assert "1 label arrived after the window." in late["maturing"]["reading"]


def test_where_silence_is_a_label_no_chance_of_getting_one_weighs(serve: Serve) -> None:
    """An audit of 2% weighed each acting answer fifty times, though all had a label, and called silence a complaint."""
    client = serve({**FRAUD, "audit_share": 0.02})
    promise = {"act_alone": "threshold=.9,risk=.05,confidence=.95"}
    kinds: tuple[tuple[list[float], dict[str, float]], ...] = ([0.97, 0.03], {}), ([0.6, 0.4], {"propensity": 0.5})
    rows = [{"id": f"{k}-{n}", "probabilities": p, **more} for k, (p, more) in enumerate(kinds) for n in range(ROWS)]
    body = {"observations": rows, **WHOSE, "classes": ["ok", "fraud"], "positive": "fraud", **promise}
    assert client.post("/observe", json=body).status_code == 200
    wait(client, 45.1)
    assert client.report(**WHOSE)["labelled"] == 2 * ROWS
    arrays = labelled(client)
    assert "val_propensity" not in arrays or np.isnan(arrays["val_propensity"]).all()
    until(lambda: client.report(**WHOSE)["acting"]["labels"] >= ROWS)
    part = client.report(**WHOSE)["acting"]
    assert (part["wrong"], part["left_out"], part["escalated_labels"]) == (0, 0, ROWS)
    assert "as they first arrived" not in part["reading"]
    client.label([{"id": "0-0", "label": "fraud"}])
    part = client.report(**WHOSE)["acting"]
    assert (
        part["wrong"] == 0
        and "Some labels were corrected later. This part uses labels as they first arrived." in part["reading"]
    )


def test_a_served_model_waits_too_and_others_do_not(serve: Serve) -> None:
    client = serve(FRAUD)
    ids = [row["id"] for row in client.predict(pictures(3))]
    client.label([{"id": ids[0], "index": 0}])
    client.post("/observe", json={"id": "a", "probabilities": {"x": 0.5, "y": 0.5}, "model": "plain", "version": "1"})
    client.label([{"id": "a", "label": "x"}])
    assert client.report()["labelled"] == 0
    plain = client.report(model="plain")
    assert plain["labelled"] == 1 and plain["maturing"] is None
    assert 'trueodds_maturing{model="plain"' not in client.get("/metrics").text
    wait(client, 30.1)
    report = client.report()
    assert (report["labelled"], report["maturing"]["unlabelled_means"]) == (1, "unknown")
    assert "A missing label means nothing" in report["maturing"]["reading"]


def test_each_model_has_its_own_window(serve: Serve) -> None:
    """Of answers of the same age, only those of the model with the shorter window count."""
    client = serve({"matures": "fraud=45d:ok,complaints=36h"})
    for model in ("fraud", "complaints", "plain"):
        row = {"id": "a", "probabilities": {"ok": 0.5, "bad": 0.5}, "model": model, "version": "1"}
        assert client.send("/observe", row)["stored"] == 1
        client.label([{"id": "a", "label": "ok", "model": model}])
    for days, counted in ((0, {"plain"}), (2, {"plain", "complaints"}), (46, {"plain", "complaints", "fraud"})):
        wait(client, days)
        reports = {model: client.report(model=model) for model in ("fraud", "complaints", "plain")}
        assert {model for model, report in reports.items() if report["labelled"]} == counted
        windows = {model: (report["maturing"] or {}).get("window") for model, report in reports.items()}
        assert windows == {"fraud": "45d", "complaints": "36h", "plain": None}


def test_a_version_is_given_a_window_by_a_command(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*options: str) -> int:
        monkeypatch.setattr("sys.argv", ["trueodds", "store", "mature", "--store", settings.store, *options])
        return main()

    with Client(create_app(settings)) as client:
        ids = observed(client)
        assert client.report(**WHOSE)["labelled"] == 6
        assert run("--matures", "fraud=45d:ok") == 1
        assert "stop every service" in capsys.readouterr().err
    assert run("--matures", "fraud=45") == 2
    assert "is not a window" in capsys.readouterr().err
    monkeypatch.setenv("TRUEODDS_MATURES", "fraud=45d:ok")
    assert run() == 0
    words = f"fraud/7 now has the window 45d:ok: {ROWS} answers with 6 labels count when it closes."
    assert words in capsys.readouterr().out
    assert run() == 0
    assert "no version without a window" in capsys.readouterr().out
    with Client(create_app(settings)) as again:
        report = again.report(**WHOSE)
        assert (report["labelled"], report["maturing"]["maturing"]) == (0, ROWS)
        wait(again, 45.1)
        report = again.report(**WHOSE)
        assert (report["labelled"], report["maturing"]["assumed"]) == (ROWS, ROWS - 6)
        assert again.get(f"/predictions/{ids[0]}").json()["label"] == "fraud"
        # The setting is not given here, and the version keeps its window.
        assert "(now: none). This version keeps 45d:ok" in report["maturing"]["reading"]


def test_a_window_that_has_changed_is_said() -> None:
    version = Version("m", "v", ("a", "b"), Temperature(1.0), {}, maturity=Maturity(DAY_MS, "ok"))
    same = (("m", Maturity(DAY_MS, "ok")),)
    assert window_note(version, same) == ""
    found = maturing_of(version, MaturedCounts(1200, 1000, 0), 1201, same)
    assert found is not None and found.reading == (
        "1 answer of this version is maturing: an answer counts 1d after it was given, with the label that it has by"
        " then. A missing label means that the answer was right. 1,200 have matured, 1,000 of them without a label."
    )
    assert "(now: none). This version keeps 1d:ok" in window_note(version, ())
    plain = Version("m", "v", ("a", "b"), Temperature(1.0), {})
    assert maturing_of(plain, None, 9, same) is None
    assert "(now: 1d:ok). This version counts labels as they arrive" in window_note(plain, same)
