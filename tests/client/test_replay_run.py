"""A replay against a real service process: what arrives there, what is said, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from service.http import hashed_keys
from tests.service.test_process import ROOT, server
from tests.service.tiny_bundle import CLASSES, SHAPE, write_bundle
from trueodds.bundle import MODEL, open_models
from trueodds.calibrators import Temperature
from trueodds.client import CallError
from trueodds.errors import UserError
from trueodds.inputs import ImageInput
from trueodds.inputs.image.pictures import Pixels
from trueodds.metrics import CalibrationSums, ece
from trueodds.replay.caller import Caller
from trueodds.replay.drift import Schedule
from trueodds.replay.runner import Replay, ReplayPlan, alarm_text
from trueodds.replay.source import ModelSignature, read
from trueodds.replay.stream import Bias, Event, Stream
from trueodds.reports.schemas import alarm as alarm_schemas
from trueodds.sums.inputs import Array

CALIBRATOR = Temperature(1.7)
HEIGHT, WIDTH, CHANNELS = SHAPE
TAKES = ModelSignature(ImageInput(height=HEIGHT, width=WIDTH, channels=CHANNELS), CLASSES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A published model, and images whose labels are drawn as the model says: it is calibrated."""
    bundle = write_bundle(tmp_path / "bundle", calibrator=CALIBRATOR)
    open_models(tmp_path / "models").publish(bundle)
    draw = np.random.default_rng(2)
    images = draw.integers(0, 256, (4000, *SHAPE), np.uint8)
    probabilities_NC = answers_to(tmp_path, images)
    labels = (probabilities_NC.cumsum(1) < draw.random((4000, 1))).sum(1)
    np.savez(tmp_path / "data.npz", x_test=images, y_test=labels, class_names=CLASSES)
    return tmp_path


def answers_to(folder: Path, images: Pixels) -> Array:
    session = ort.InferenceSession(str(folder / "bundle" / MODEL))
    return CALIBRATOR(session.run(None, {"images": images})[0])


def command(folder: Path, url: object, *options: str) -> list[str]:
    arguments = ["--data", str(folder / "data.npz"), "--url", str(url).rstrip("/")]
    return [sys.executable, "-m", "trueodds", "replay", *arguments, *options]


def replay(folder: Path, url: object, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(folder, url, *options), cwd=ROOT, capture_output=True, text=True, timeout=300)


def counts(out: str) -> tuple[int, int, int]:
    """Images and labels sent, and labels left."""
    (numbers,) = re.findall(r"^([\d,]+) images in [\d:]+, ([\d,]+) labels sent(?:; ([\d,]+) more)?", out, re.MULTILINE)
    images, labels, left = (int(number.replace(",", "") or 0) for number in numbers)
    return images, labels, left


def stream(folder: Path, **changes: object) -> Stream:
    source = read(folder / "data.npz", TAKES)
    options = {"rate": 100.0, "delay": 3.0, "classes": len(CLASSES), "seed": 3}
    return Stream(source, **options | changes)  # type: ignore[arg-type]


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="a pipe without a reader is another error there")
def test_a_replay_ends_with_the_reader_of_its_lines(folder: Path) -> None:
    """`trueodds replay | head -1`."""
    with server(folder) as (client, _):
        options = command(folder, client.base_url, "--seconds", "60", "--rate", "50", "--every", "0.1s")
        process = subprocess.Popen(options, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("4,000 images of ")
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (141, "")
        process.stderr.close()


@pytest.mark.full
def test_what_arrives_is_what_the_seed_says(folder: Path) -> None:
    """Counts, accuracy and ECE of the live report against the same stream worked out here; with keys and a tag."""
    (folder / "keys").write_text("\n".join(made := [hashed_keys.make()[0], hashed_keys.make()[0]]))
    hashes = ["--predict-key-hash", hashed_keys.hash_of(made[0]), "--feedback-key-hash", hashed_keys.hash_of(made[1])]
    drift, options = (
        "noise:0.5@10s,labels:0.3@15s",
        ["--seconds", "20", "--rate", "100", "--delay", "3s", "--seed", "3"],
    )
    with server(folder, *hashes) as (client, _):
        url = str(client.base_url)
        with Caller(url) as caller, pytest.raises(CallError, match=r"answered 401: .*send the predict key"):
            Replay(caller, stream(folder), ReplayPlan(speed=np.inf), lambda line: None).run()
        more = [
            "--labelled",
            "0.4",
            "--drift",
            drift,
            "--speed",
            "max",
            "--key-file",
            str(folder / "keys"),
            "--tag",
            "a",
        ]
        done = replay(folder, url, *options, *more)
        report = client.get("/calibration-report").json()
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "4,000 images of" in done.stdout and "   0:10   noise 0.5 from now on\n" in done.stdout
    sent: list[Event] = []
    for event in stream(folder, drift=Schedule.parse([drift])).events():
        if event.at > 20:
            break
        sent.append(event)
    labelled = [e for e in sent if e.fate < 0.4]
    due = [e for e in labelled if e.at + e.delay <= 20]
    assert counts(done.stdout) == (len(sent), len(due), len(labelled) - len(due))
    assert (report["answers"], report["labelled"]) == (len(sent), len(due))
    probabilities_NC = answers_to(folder, np.stack([e.row for e in due]))
    sums = CalibrationSums.from_probabilities(probabilities_NC, [e.label for e in due])
    assert report["ece"] == pytest.approx(ece(sums), abs=1e-9)
    assert f"{report['ece']:.3f} [{report['ece_lower']:.3f}, {report['ece_upper']:.3f}]" in done.stdout


@pytest.mark.full
def test_vectors_arrive(tmp_path: Path) -> None:
    """Labelled as the model answers, missing values among them: each is right."""
    open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle", features=("a", "b"), missing=True))
    rows_ND = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    rows_ND[::9, 1] = np.nan
    (logits_NC,) = ort.InferenceSession(str(tmp_path / "bundle" / MODEL)).run(None, {"features": rows_ND})
    np.savez(tmp_path / "data.npz", x_test=rows_ND, y_test=logits_NC.argmax(1), class_names=CLASSES)
    with server(tmp_path) as (client, _):
        done = replay(tmp_path, client.base_url, "--seconds", "3", "--rate", "100", "--speed", "max", "--drain")
        report = client.get("/calibration-report").json()
    assert (done.returncode, done.stderr) == (0, "") and "300 vectors of" in done.stdout
    assert report["answers"] == report["labelled"] > 200 and report["accuracy"] == 1


class Listening(Caller):
    """Remembers the numbers of the images whose labels it has sent."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.order: list[int] = []

    def feedback(self, rows: list[tuple[str, str | int]]) -> None:
        super().feedback(rows)
        self.order += [int(id_.rpartition("-")[2]) for id_, _ in rows]


@pytest.mark.full
def test_labels_arrive_in_one_order_however_the_images_are_cut_into_calls(folder: Path) -> None:
    """Also where so few fit into a call that the stream falls behind: evidence depends on the order of the labels."""
    plan = ReplayPlan(labelled=0.7, seconds=2, speed=np.inf, drain=True, bias=Bias(early=3))
    orders = []
    with server(folder) as (client, _):
        for cut in (plan, replace(plan, batch=7)):
            with Listening(str(client.base_url)) as caller:
                Replay(caller, stream(folder, delay=0.05), cut, lambda line: None).run()
            orders.append(caller.order)
    assert orders[0] == orders[1] and orders[0] != sorted(orders[0]) and len(orders[0]) > 100


@pytest.mark.full
def test_until_the_alarm(folder: Path) -> None:
    options = ["--rate", "200", "--delay", "1s", "--speed", "max", "--until-alarm"]
    with server(folder) as (client, _):
        calm = replay(folder, client.base_url, *options, "--seconds", "5", "--drain")
        assert (calm.returncode, calm.stderr) == (1, "error: the alarm has not fired within 5 s\n")
        assert counts(calm.stdout)[2] == 0, "drained"
        if client.get("/calibration-report").json()["alarm"] is None:
            pytest.skip("this service keeps no alarm")
        output = replay(folder, client.base_url, *options, "--seconds", "40", "--drift", "labels:1@0s", "--seed", "1")
        assert (output.returncode, output.stderr) == (0, "") and "THE ALARM HAS FIRED" in output.stdout
        again = replay(folder, client.base_url, *options)
        assert again.returncode == 1 and "has fired before, and a version's alarm fires once" in again.stderr


@pytest.mark.full
def test_a_service_that_is_killed_meanwhile_loses_and_doubles_nothing(folder: Path) -> None:
    log: list[str] = []
    plan = ReplayPlan(seconds=3, drain=True)

    def work(url: str) -> None:
        with Caller(url, patience=20, say=log.append) as caller:
            assert caller.signature() == TAKES
            Replay(caller, stream(folder, rate=400.0, delay=0.5), plan, log.append).run()

    with server(folder) as (client, process):
        url = str(client.base_url).rstrip("/")
        thread = threading.Thread(target=work, args=(url,))
        thread.start()
        time.sleep(1)
        os.kill(process.pid, signal.SIGKILL)
    with server(folder, "--port", url.rpartition(":")[2]) as (client, _):
        thread.join(60)
        report = client.get("/calibration-report").json()
    assert not thread.is_alive() and any("does not answer" in line for line in log) and f"{url} answers again" in log
    images, labels, left = counts("\n".join(log))
    assert (report["answers"], report["labelled"], left) == (images, labels, 0) and labels == images > 1000


@pytest.mark.full
def test_ctrl_c_ends_it_in_order(folder: Path) -> None:
    with server(folder) as (client, _):
        running = command(folder, client.base_url, "--rate", "50", "--delay", "0.2s", "--every", "0.5s")
        with subprocess.Popen(running, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout
            lines = [process.stdout.readline() for _ in range(5)]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=300)
        report = client.get("/calibration-report").json()
    assert (process.returncode, err) == (130, ""), "".join(lines)
    assert "stopping: labels that are due are sent" in out
    images, labels, left = counts(out)
    assert (report["answers"], report["labelled"]) == (images, labels) and images == labels + left


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8000", "expected a URL such as http://127.0.0.1:8000"),
        ("http://a:b", "expected a URL such as http://127.0.0.1:8000"),
        ("http://127.0.0.1:9", "did not answer for"),
    ],
)
def test_a_service_that_is_not_there(url: str, words: str) -> None:
    lines: list[str] = []
    with pytest.raises(UserError) as refused, Caller(url, patience=0.2, say=lines.append) as caller:
        caller.signature()
    assert words in str(refused.value)
    assert bool(lines) == ("did not answer" in words)


def test_the_alarm_in_words() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    one = alarm_schemas.AlarmOf(
        null="ece", statement="", pages=True, tolerance=0.02, threshold=20, state="fired", labels=500, log_e=3.0,
        p_value=0.05, fired_at=at, fired_after=480,
    )  # fmt: skip

    def words(**changes: object) -> str:
        nulls = [one.model_copy(update=changes)]
        alarm = alarm_schemas.Alarm(state="fired", reading="", nulls=nulls)
        state, text = alarm_text({"alarm": alarm.model_dump(mode="json")})
        assert state == "fired"
        return text

    assert words() == "fired, evidence 20.1 of 20"
    assert words(log_e=10.0) == "fired, evidence 22,026 of 20"
    assert words(log_e=5000.0) == "fired, evidence over a million of 20"
    assert alarm_text({"alarm": None}) == alarm_text({}) == (None, "-")
