"""What a replay sends, before anything is sent: the drift's grammar, the stream, the data, who gets a label."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from trueodds import cli
from trueodds.inputs import ImageInput, Limits, VectorInput
from trueodds.inputs.image import pictures
from trueodds.replay import ReplayError
from trueodds.replay.caller import instance
from trueodds.replay.drift import Schedule, clock
from trueodds.replay.kinds import KINDS, seconds
from trueodds.replay.source import ModelSignature, RowSource, read
from trueodds.replay.stream import Bias, Event, Stream

MODEL = ModelSignature(ImageInput(height=8, width=6, channels=1), tuple("abcdefghij"))
PIXELS = np.random.default_rng(3).integers(80, 170, (50, 8, 6, 1), np.uint8)


def source(labels: int = 10) -> RowSource:
    return RowSource("here", PIXELS.__getitem__, np.arange(len(PIXELS)) % labels, None)


def events(count: int, **changes: Any) -> list[Event]:
    options: dict[str, Any] = {"rate": 30.0, "delay": 4.0, "classes": 10, "seed": 5}
    return list(islice(Stream(source(), **options | changes).events(), count))


def test_times() -> None:
    assert [seconds(text) for text in ("40", "40s", "1.5m", ".5s", "2h")] == [40, 40, 90, 0.5, 7200]
    assert [clock(at) for at in (0.9, 61, 3600)] == ["0:00", "1:01", "1:00:00"]


@pytest.mark.parametrize(
    ("drift", "at", "strength"),
    [
        ("noise:0.5@40s", 39.9, 0),
        ("noise:0.5@40s", 40, 0.5),
        ("noise:0.5@40..60", 45, 0.125),
        ("noise:0.5@40s..1m,noise:0@90s", 89, 0.5),
        ("noise:0@90s,noise:0.5@40s", 90, 0),
        ("noise:0.5@10,noise:0.1@20..30", 25, 0.3),
        ("noise:0.5@.5s..1.5s", 1.0, 0.25),
    ],
)
def test_the_strength_follows_the_schedule(drift: str, at: float, strength: float) -> None:
    schedule = Schedule.parse([drift])
    assert schedule.strength("noise", at) == pytest.approx(strength)
    assert all(schedule.strength(kind, at) == shift.neutral for kind, shift in KINDS.items() if kind != "noise")


@pytest.mark.parametrize(
    ("drift", "words"),
    [
        ("noise", "expected KIND:STRENGTH@TIME"),
        ("nois:1@4", "Did you mean 'noise'?"),
        ("noise:x@4", "the strength of noise is 'x'; allowed is 0..4"),
        ("noise:nan@4", "allowed is 0..4"),
        ("labels:1.5@4", "allowed is 0..1: share of the true labels"),
        ("blur:1@soon", "'soon' is not a time; allowed are seconds"),
        ("blur:1@40s..30s", "30s is not after 40s"),
        ("blur:1@40s..60s,blur:2@50s", "two entries for blur overlap"),
        ("blur:1@40s,blur:2@40s", "two entries for blur overlap"),
        ("", "expected KIND:STRENGTH@TIME"),
    ],
)
def test_an_entry_that_cannot_be_read_is_named(drift: str, words: str) -> None:
    with pytest.raises(ReplayError) as refused:
        Schedule.parse([drift])
    assert words in str(refused.value)


def test_what_each_kind_does_to_pixels() -> None:
    def changed(drift: str, at: float = 1.0) -> Any:
        generator = np.random.default_rng(0)
        return np.stack([Schedule.parse([drift]).change_image(image, at, generator) for image in PIXELS]).astype(float)

    plain = PIXELS.astype(float)
    assert (changed("noise:1@2") == plain).all()
    assert (changed("noise:0.1@0") - plain).std() == pytest.approx(25.5, rel=0.05)
    assert (changed("noise:0.1@0") - plain).mean() == pytest.approx(0, abs=2)
    assert (changed("brightness:0.2@0") - plain == 51).all()
    assert changed("brightness:-1@0").max() == 0
    assert changed("contrast:0.5@0").std(axis=(1, 2)) == pytest.approx(plain.std(axis=(1, 2)) / 2, abs=0.3)
    assert changed("contrast:0@0") == pytest.approx(
        np.broadcast_to(plain.mean((1, 2, 3), keepdims=True), plain.shape), abs=0.51
    )
    blurred = changed("blur:1@0")
    assert np.abs(np.diff(blurred, axis=1)).mean() < np.abs(np.diff(plain, axis=1)).mean() / 2
    assert blurred.mean() == pytest.approx(plain.mean(), rel=0.02)


@given(strength=st.floats(0, 4), at=st.floats(0, 100), kind=st.sampled_from(["noise", "blur", "contrast"]))
def test_any_drift_gives_an_image(strength: float, at: float, kind: str) -> None:
    pixels = Schedule.parse([f"{kind}:{strength:f}@10..60"]).change_image(PIXELS[0], at, np.random.default_rng(0))
    assert pixels.dtype == np.uint8 and pixels.shape == PIXELS[0].shape


def test_the_seed_decides_everything_and_drift_changes_pixels_only() -> None:
    first, again, other = events(2000), events(2000), events(2000, seed=6)
    noisy = events(2000, drift=Schedule.parse(["noise:0.3@30s"]))

    def fates(stream: list[Event]) -> list[tuple[Any, ...]]:
        return [(e.number, e.at, e.label, e.delay, e.fate, e.tag) for e in stream]

    assert fates(first) == fates(again) == fates(noisy) != fates(other)
    assert all(np.array_equal(a.row, b.row) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a.row, b.row) for a, b in zip(first, noisy, strict=True) if a.at >= 30)
    assert all(np.array_equal(a.row, b.row) for a, b in zip(first, noisy, strict=True) if a.at < 30)


def test_arrivals_delays_and_tags_are_as_asked() -> None:
    stream = events(5000, tags=("day", "night"))
    gaps, delays = np.diff([0.0, *(e.at for e in stream)]), np.array([e.delay for e in stream])
    assert gaps.mean() == pytest.approx(1 / 30, rel=0.05) and gaps.std() == pytest.approx(1 / 30, rel=0.05)
    assert (gaps > 0).all() and delays.mean() == pytest.approx(4, rel=0.05)
    assert np.mean([e.tag == "night" for e in stream]) == pytest.approx(0.5, abs=0.03)
    assert len({e.label for e in stream}) == 10 and {e.delay for e in events(9, delay=0)} == {0}


def test_shuffled_labels_are_another_class() -> None:
    plain, drifted = events(5000), events(5000, drift=Schedule.parse(["labels:0.3@0,labels:1@2m"]))
    wrong = [a.label != b.label for a, b in zip(plain, drifted, strict=True)]
    early = sum(e.at < 120 for e in plain)
    assert np.mean(wrong[:early]) == pytest.approx(0.3, abs=0.03) and all(wrong[early:])
    assert {e.label for e in drifted} == set(range(10))


@pytest.mark.parametrize("labelled", [0.1, 0.8, 1.0])
def test_a_bias_is_a_ratio_of_chances(labelled: float) -> None:
    none, bias = Bias(), Bias.parse(["wrong:2,unsure:4", "early:5"])
    assert {none.chance(labelled, right, c) for right in (True, False) for c in (0.2, 0.95)} == {labelled}
    right, wrong, doubtful = (
        bias.chance(labelled, True, 0.95),
        bias.chance(labelled, False, 0.95),
        bias.chance(labelled, True, 0.4),
    )
    assert wrong / right == pytest.approx(2) and doubtful / right == pytest.approx(4)
    assert bias.chance(labelled, False, 0.4) <= 1
    assert (bias.delay(10, True), bias.delay(10, False), none.delay(10, False)) == (10, 2, 10)


@pytest.mark.parametrize("text", ["wrong", "wrong:0.5", "wrong:x", "rong:2", ""])
def test_a_bias_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ReplayError, match="allowed"):
        Bias.parse([text])


def test_npz(tmp_path: Path) -> None:
    y = np.arange(50) % 10
    np.savez(tmp_path / "a.npz", x_train=PIXELS, y_train=y, x_test=PIXELS[:20, :, :, 0], y_test=y[:20])
    rows = read(tmp_path / "a.npz", MODEL)
    assert rows.name.endswith("(test)") and len(rows) == 20 and rows.label(3) == 3
    assert (rows.row(7) == PIXELS[7]).all()
    assert len(read(tmp_path / "a.npz", MODEL, "train")) == 50
    np.savez(tmp_path / "named.npz", x_train=PIXELS, y_train=y, class_names=[f"c{k}" for k in range(10)])
    assert read(tmp_path / "named.npz", MODEL).label(3) == "c3"


def test_numbers_of_an_npz_are_the_names_of_classes_that_are_whole_numbers(tmp_path: Path) -> None:
    """Of 1..5 they would else be one class off; of other names they are indices."""
    model, y = ModelSignature(MODEL.input, tuple("12345")), 1 + np.arange(50) % 5
    np.savez(tmp_path / "a.npz", x_test=PIXELS, y_test=y)
    rows = read(tmp_path / "a.npz", model)
    assert [rows.label(int(k)) for k in rows.labels_N] == [str(label) for label in y]
    np.savez(tmp_path / "a.npz", x_test=PIXELS, y_test=y - 1)
    with pytest.raises(ReplayError, match="holds the label 0; the model's classes are '1', '2', '3', '4', '5'"):
        read(tmp_path / "a.npz", model)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": PIXELS}, "it has none, expected is x_<split> and y_<split>"),
        ({"x_test": PIXELS / 255, "y_test": np.zeros(50, int)}, "Send pixels as they are, not scaled"),
        ({"x_test": PIXELS[:, :4], "y_test": np.zeros(50, int)}, "the model takes uint8, N x 8 x 6 x 1"),
        ({"x_test": PIXELS, "y_test": np.zeros(50)}, "y_test is float64"),
        ({"x_test": PIXELS, "y_test": np.zeros(49, int)}, "expected 50 integers"),
        ({"x_test": PIXELS, "y_test": np.full(50, 10)}, "holds the label 10; allowed are 0..9"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ReplayError) as refused:
        read(tmp_path / "a.npz", MODEL)
    assert words in str(refused.value)


def test_folder(tmp_path: Path) -> None:
    for row, name in enumerate(("cat", "dog", "dog")):
        (tmp_path / "test" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "test" / name / f"{row}.png").write_bytes(pictures.encode_png(PIXELS[row]))
    rows = read(tmp_path, MODEL)
    assert [rows.label(int(k)) for k in rows.labels_N] == ["cat", "dog", "dog"]
    assert (rows.row(2) == PIXELS[2]).all()
    cropped = ImageInput(height=4, width=4, channels=3, resized=True, crop=0.5)
    (served,) = cropped.from_files([("0.png", pictures.encode_png(PIXELS[0]))], Limits())
    assert (read(tmp_path, ModelSignature(cropped, ("a", "b"))).row(0) == served).all(), (
        "scaled and cut as the service does"
    )
    Image.fromarray(PIXELS[1, :, :, 0]).save(tmp_path / "test" / "dog" / "3.webp", lossless=True)
    assert (read(tmp_path / "test", MODEL).row(3) == PIXELS[1]).all(), "classes without a split, and a WebP"
    (tmp_path / "rows.csv").touch()
    for path, split, words in (
        (tmp_path, "train", "has no split 'train'; it has test"),
        (tmp_path / "test" / "cat", None, "holds no image"),
        (tmp_path / "none", None, "does not exist"),
        (tmp_path / "rows.csv", None, "is no .npz; give an .npz with x_test"),
    ):
        with pytest.raises(ReplayError, match=words):
            read(path, MODEL, split)
    with pytest.raises(ReplayError, match=r"0\.png .*; the model takes 9 x 6"):
        read(tmp_path, ModelSignature(ImageInput(height=9, width=6, channels=1), ("a", "b")))


VECTORS = ModelSignature(VectorInput(features=["a", "b"], missing=True), ("a", "b"))
VECTOR_ROWS = np.array([[1, 10], [np.nan, 30], [3, 50], [5, 70]])


def test_vectors(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_test=VECTOR_ROWS, y_test=[0, 1, 0, 1], feature_names=["a", "b"])
    rows = read(tmp_path / "a.npz", VECTORS)
    assert rows.noun == "vector" and rows.deviation_D == pytest.approx([np.std([1, 3, 5]), np.std([10, 30, 50, 70])])
    assert np.array_equal(
        np.stack([np.asarray(rows.row(k)) for k in range(4)]), VECTOR_ROWS.astype(np.float32), equal_nan=True
    )
    assert instance(rows.row(1)) == [None, 30.0]

    def drawn(*drift: str) -> Any:
        stream = Stream(rows, 30.0, classes=2, drift=Schedule.parse(drift))
        return np.stack([event.row for event in islice(stream.events(), 4000)])

    plain, noisy = drawn("labels:0.5@0s"), drawn("noise:0.5@0s")
    assert noisy.dtype == np.float32 and np.array_equal(np.isnan(plain), np.isnan(noisy))
    assert np.nanstd(noisy - plain, axis=0) == pytest.approx(rows.deviation_D / 2, rel=0.05)
    with pytest.raises(
        ReplayError, match="--drift blur applies to images, but the model takes vectors; allowed are noise, l"
    ):
        drawn("noise:0.1@0s,blur:1@3s")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (
            {"x_test": VECTOR_ROWS[:, :1]},
            r"x_test is float64 of shape \(4, 1\); the model takes float32, N x 2, N from",
        ),
        ({"feature_names": ["b", "a"]}, "feature_names are 'b', 'a'; the model takes 'a', 'b'; put"),
        ({"x_test": VECTOR_ROWS * np.inf}, r"x_test at \[0, 0\] \('a'\) is inf"),
        ({"y_test": [0, 1, 2, 0]}, r"holds the label 2; allowed are 0\.\.1"),
    ],
)
def test_vectors_that_do_not_fit_are_named(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "a.npz", **{"x_test": VECTOR_ROWS, "y_test": [0, 1, 0, 1], **arrays})
    with pytest.raises(ReplayError, match=words):
        read(tmp_path / "a.npz", VECTORS)
    with pytest.raises(
        ReplayError, match=r"a folder of images, but the model takes vectors; give an \.npz with x_test"
    ):
        read(tmp_path, VECTORS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rate", "0"], "argument --rate: '0' is not allowed; allowed is 0.001 to 100000"),
        (["--labelled", "1.2"], "allowed is a share, 0 to 1"),
        (["--delay", "x"], "'x' is not a time"),
        (["--every", "0"], "any time above 0"),
        (["--speed", "fast"], "or max"),
        (["--seed", "-1"], "whole numbers from 0 on"),
        (["--wat"], "unrecognized arguments: --wat"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(
    capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main("trueodds", cli.COMMANDS, ["replay", "--data", "x.npz", *options])
    assert ended.value.code == 2 and words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("none.npz", [], "none.npz does not exist; give an .npz file or a folder"),
        ("broken.npz", [], "is not a complete .npz file"),
        ("good.npz", ["--split", "val"], "no split 'val'; it has test"),
        ("rows.csv", [], "has no column 'text'; it has 'a', 'b'"),
        ("rows.txt", [], "is no .npz; give an .npz with x_test and y_test, a folder, or a table of texts"),
        ("empty", [], "holds no image and no text; expected"),
        ("good.npz", [], "does not answer|no answer|refused"),
    ],
)
def test_bad_data_are_refused_before_the_service_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, options: list[str], words: str
) -> None:
    np.savez(tmp_path / "good.npz", x_test=PIXELS, y_test=np.zeros(50, int))
    (tmp_path / "broken.npz").write_bytes(b"no zip")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    (tmp_path / "rows.txt").write_text("a")
    (tmp_path / "empty").mkdir()
    away = ["--url", "http://127.0.0.1:9", "--patience", "0"]
    assert cli.main("trueodds", cli.COMMANDS, ["replay", "--data", str(tmp_path / name), *away, *options]) == 1
    assert re.search(words, capsys.readouterr().err)


def test_rows_keep_their_tags_unless_others_are_given(tmp_path: Path) -> None:
    tags = np.array([("day", "night", "")[row % 3] for row in range(50)])
    arrays: dict[str, Any] = {"x_test": PIXELS, "y_test": np.arange(50) % 10}
    places: dict[str, Any] = {"groups_test": np.arange(50) % 3 - 1, "groups_test_names": np.array(["night", ""])}
    own: dict[str, Any] = {"groups_test": tags}
    for tagged, expected in ((own, tags), (places, np.array(["", "night", ""])[np.arange(50) % 3])):
        np.savez(tmp_path / "a.npz", **arrays, **tagged)
        rows = read(tmp_path / "a.npz", MODEL)
        sent = list(islice(Stream(rows, 30.0, classes=10).events(), 200))
        assert {event.tag for event in sent} == {name or None for name in expected.tolist()}
        for event in sent:
            (row,) = np.flatnonzero(np.equal(event.row, PIXELS).all(axis=(1, 2, 3)))
            assert event.tag == (expected[row] or None)
        other = islice(Stream(rows, 30.0, tags=("mine",), classes=10).events(), 50)
        assert {event.tag for event in other} == {"mine"}
    np.savez(tmp_path / "a.npz", **arrays, groups_test=tags[:9])
    with pytest.raises(ReplayError, match="groups_test has 9 tags for 50 rows of x_test"):
        read(tmp_path / "a.npz", MODEL)
    np.savez(tmp_path / "a.npz", **arrays, groups_test=np.full(50, 0.5))
    with pytest.raises(ReplayError, match=r"groups_test has shape .* and type float64; expected one text or whole"):
        read(tmp_path / "a.npz", MODEL)
