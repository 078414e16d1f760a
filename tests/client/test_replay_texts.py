"""A replay of texts: where they come from, and how their words drift."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.service.tiny_bundle import tokenizer_json
from trueodds.files import write_npz
from trueodds.inputs import TextInput
from trueodds.replay import ReplayError
from trueodds.replay.caller import instance
from trueodds.replay.drift import Schedule, change_words
from trueodds.replay.source import ModelSignature, RowSource, read
from trueodds.replay.stream import Event, Stream

BOATS, TEA = "ship sail mast keel " * 50, "cup tea milk pot " * 50
KIND = TextInput(max_tokens=5, vocabulary_size=6)
MODEL = ModelSignature(KIND, ("a", "b"))
SOURCE = RowSource("here", [BOATS, TEA].__getitem__, np.array([0, 1]), ("boats", "tea"), "text")


def events(*drift: str) -> list[Event]:
    stream = Stream(SOURCE, 10.0, drift=Schedule.parse(drift), classes=2, seed=3)
    return list(islice(stream.events(), 40))


def foreign(event: Event) -> float:
    """The share of words that are of the other class."""
    own = {0: BOATS, 1: TEA}[event.label].split()
    words = str(event.row).split()
    return sum(word not in own for word in words) / len(words)


def test_words_are_lost_and_replaced() -> None:
    assert {event.row for event in events()} == {BOATS, TEA} and instance(BOATS) == BOATS
    lost = events("words:0.5@0s")
    assert np.mean([len(str(event.row).split()) for event in lost]) == pytest.approx(100, abs=5)
    assert not any(map(foreign, lost))
    moved = events("topic:0.3@0s")
    assert np.mean([foreign(event) for event in moved]) == pytest.approx(0.3, abs=0.02)
    assert {len(str(event.row).split()) for event in moved} == {200}
    assert [event.row for event in moved] == [event.row for event in events("topic:0.3@0s")]
    assert [event.label for event in moved] == [event.label for event in events()]


def test_a_word_stays() -> None:
    generator = np.random.default_rng(0)
    assert change_words("one two", "three", 1.0, 0.0, generator) == "one"
    assert change_words("one two", "three", 0.0, 1.0, generator) == "three three"


@pytest.mark.parametrize("entry", ["noise:0.5@0s", "blur:1@0s"])
def test_drift_of_other_rows(entry: str) -> None:
    with pytest.raises(ReplayError, match=r"the model takes texts; allowed are words, topic, labels"):
        events(entry)


def test_texts_of_files(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("text,label\na ship,boats\nsome tea,tea\n")
    for split, name, text in (("test", "boats", "a ship"), ("test", "tea", "some tea"), ("train", "tea", "no")):
        file = tmp_path / "rows" / split / name / "1.txt"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    for path in (table, tmp_path / "rows", tmp_path / "rows" / "test"):
        source = read(path, MODEL)
        assert [source.row(n) for n in (0, 1)] == ["a ship", "some tea"]
        assert source.classes == ("boats", "tea") and source.labels_N.tolist() == [0, 1] and source.noun == "text"
    assert read(tmp_path / "rows", MODEL, "train").labels_N.tolist() == [0]
    table.write_text("words,label\na ship,boats\n")
    with pytest.raises(
        ReplayError, match=r"has no column 'text'; it has 'words', 'label'; give the column of the texts this name"
    ):
        read(table, MODEL)
    with pytest.raises(ReplayError, match=r"holds no texts; allowed are a \.csv or \.parquet table"):
        read(Path(__file__), MODEL)


def test_arrays_of_the_pipeline(tmp_path: Path) -> None:
    data = tokenizer_json(("ship", "sail", "cup", "tea"))
    rows = KIND.with_tokenizer(data).of_texts(["a ship sail", "Cup tea"])
    arrays = {"x_test": rows, "y_test": np.array([0, 1]), "tokenizer": np.frombuffer(data, np.uint8)}
    write_npz(tmp_path / "arrays.npz", arrays)
    source = read(tmp_path / "arrays.npz", MODEL)
    assert [source.row(n) for n in (0, 1)] == ["ship sail", "cup tea"]
    del arrays["tokenizer"]
    write_npz(tmp_path / "arrays.npz", arrays)
    with pytest.raises(ReplayError, match="has no tokenizer; expected are the arrays of dvc repro, or texts"):
        read(tmp_path / "arrays.npz", MODEL)
