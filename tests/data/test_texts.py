"""Texts, trees of words and vectors of words, as they come; small ones here, the published ones where they are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from pipeline.data.raw import DataError, TextRows, Tree, TreeRows
from pipeline.data.texts import encoding, glove, newsgroups, own, sst
from pipeline.data.texts.newsgroups import without
from trueodds.inputs import TextInput
from trueodds.inputs.text.labelled_texts import LARGEST

POST = "From: a@b.c\nSubject: x\n\nIn article <1> b wrote:\n> said so\nI do not agree.\n\nYours\n-- \nA. Nonymous\n"


def data(name: str) -> Path:
    """A folder or file of the development data."""
    folder = os.environ.get("TRUEODDS_DATA")
    if not folder or not (Path(folder) / name).exists():
        pytest.skip(f"TRUEODDS_DATA does not name a folder with {name}; bare clone")
    return Path(folder) / name


@pytest.mark.parametrize(
    "post", [POST, "no header", "", "a\n\nb", "h\n\n\n--\nend", "h\n\ntext\n\n|\n> x", "h\n\n\n\n"]
)
def test_what_is_removed_is_what_scikit_learn_removes(post: str) -> None:
    from sklearn.datasets import _twenty_newsgroups as theirs

    header, footer, quotes = (getattr(theirs, f"strip_newsgroup_{part}") for part in ("header", "footer", "quoting"))
    assert without(post, ["headers"]) == header(post)
    assert without(post, ["footers"]) == footer(post)
    assert without(post, ["quotes"]) == quotes(post)
    assert without(post, ["quotes", "footers", "headers"]) == quotes(footer(header(post)))
    assert without(post, []) == post


def test_newsgroups_by_date(tmp_path: Path) -> None:
    for split, group, name, text in [
        ("train", "alt", "10", POST), ("train", "sci", "7", "h\n\nplan\xe9t"), ("train", "alt", "9", "h\n\nnine"),
        ("test", "alt", "1", "h\n\none"), ("test", "sci", "2", "h\n\ntwo"),
    ]:  # fmt: skip
        path = tmp_path / f"20news-bydate-{split}" / group / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="latin-1")
    raw = newsgroups.read_by_date(tmp_path, ["headers", "quotes", "footers"])
    assert raw.kind == "text" and raw.classes == ("alt", "sci")
    assert isinstance(raw.x_train, TextRows) and raw.x_train.texts == ["I do not agree.\n\nYours", "nine", "plan\xe9t"]
    assert raw.y_train.tolist() == [0, 0, 1] and raw.y_test is not None and raw.y_test.tolist() == [0, 1]
    (tmp_path / "20news-bydate-test" / "sci").rename(tmp_path / "20news-bydate-test" / "rec")
    with pytest.raises(DataError, match=r"only one of its two folders has the group 'rec'"):
        newsgroups.read_by_date(tmp_path, [])
    with pytest.raises(DataError, match=r"20news-bydate-train does not exist; unpack 20news-bydate\.tar\.gz"):
        newsgroups.read_by_date(tmp_path / "nowhere", [])


def test_own_texts_in_folders(tmp_path: Path) -> None:
    for name, text in {"train/no/a.txt": "bad", "train/yes/b.txt": "good", "test/yes/c.txt": "fine"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert own.is_folder(tmp_path) and not own.is_folder(tmp_path / "train")
    (tmp_path / "train/no/0.webp").touch()
    assert not own.is_folder(tmp_path), "the first file is an image"
    (tmp_path / "train/no/0.webp").unlink()
    raw = own.read_folder(tmp_path)
    assert raw.classes == ("no", "yes") and raw.y_train.tolist() == [0, 1] and raw.x_val is None
    assert isinstance(raw.x_test, TextRows) and raw.x_test.texts == ["fine"]
    (tmp_path / "train/no/a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"a\.txt is not UTF-8: byte 3 is 0xe9; save it as UTF-8"):
        own.read_folder(tmp_path)
    (tmp_path / "train/no/a.txt").write_text(" \n")
    with pytest.raises(DataError, match=r"a\.txt holds an empty text; take it out"):
        own.read_folder(tmp_path)
    (tmp_path / "train/no/a.txt").write_text("x" * (LARGEST + 1))
    with pytest.raises(DataError, match=r"a\.txt has 1,048,577 bytes; allowed are 1,048,576"):
        own.read_folder(tmp_path)
    (tmp_path / "train/no/a.txt").unlink()
    with pytest.raises(DataError, match=r"train/no holds no \.txt file"):
        own.read_folder(tmp_path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_own_texts_in_a_table(tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / f"mine{suffix}"
    columns = {"id": [1, 2, 3], "text": ["so, so", "good", "bad"], "label": [10, 9, 10]}
    if suffix == ".csv":
        path.write_text('id,text,label\n1,"so, so",10\n2,good,9\n3,bad,10\n')
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table(columns), path)
    assert own.is_table(path)
    raw = own.read_table(path, "label")
    assert isinstance(raw.x_train, TextRows) and raw.x_train.texts == ["so, so", "good", "bad"]
    assert raw.classes == ("9", "10") and raw.y_train.tolist() == [1, 0, 1]
    assert "columns other than text and label are ignored: 'id'" in caplog.text
    with pytest.raises(DataError, match=r"no column 'lable'; it has .*Did you mean 'label'"):
        own.read_table(path, "lable")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("text,label\n,a\nx,b\n", r"row 2 holds an empty text"),
        ("text,label\ny,a\nx,\n", r"row 3 has no label"),
        ("text,label\ny,a\nx,a\n", r"class_names must be at least two"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, table: str, message: str) -> None:
    (tmp_path / "mine.csv").write_text(table)
    with pytest.raises(DataError, match=message):
        own.read_table(tmp_path / "mine.csv", "label")


def test_vectors_of_words(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("the 1 2.5 3e-1\nat home 4 5 6\n1 7 8 9\nthe 0 0 0\n", encoding="utf-8")
    vectors, width = glove.read(path, {"the", "at home", "1", "absent"})
    assert width == 3 and {word: vector.tolist() for word, vector in vectors.items()} == {
        "the": [1, 2.5, pytest.approx(0.3)], "at home": [4, 5, 6], "1": [7, 8, 9],
    }  # fmt: skip
    rows = glove.table(["The", "x", "1"], vectors, 3, np.full((3, 3), -1, np.float32))
    assert rows.tolist() == [[1, 2.5, pytest.approx(0.3)], [-1, -1, -1], [7, 8, 9]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("a 1 2 3\nb 1 2\n", r"glove\.txt, line 2: the word 'b' has 2 numbers, and earlier words 3"),
        ("a 1 2 3\nb 1 2 3\nc 1 2 3 4\n", r"line 3: the word 'c' has 4 numbers"),
        ("a 1 2 3\nb 1 x 3\n", r"line 2 has 'x'; expected a number"),
        ("a 1 2 3\nb 1 inf 3\n", r"line 2 has a number that is not finite"),
        ("a picture\n", r"line 1 is 'a picture.*expected a word and its numbers"),
        ("", r"glove\.txt is empty"),
    ],
)
def test_vectors_that_are_refused(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "glove.txt").write_text(lines)
    with pytest.raises(DataError, match=message):
        glove.read(tmp_path / "glove.txt", {"a", "b", "c"})
    with pytest.raises(DataError, match=r"data\.embeddings is .*nowhere.*does not exist"):
        glove.read(tmp_path / "nowhere", set())


TREES = "(3 (2 It) (4 (2 's) (3 -LRB-)))\n(2 (1 not) (3 5\xa01/2))\n(0 (2 no) (1 (0 bad) (2 .)))\n"


def treebank(folder: Path, train: str = TREES) -> Path:
    for name in sst.FILES.values():
        (folder / name).write_text(train if name == "train.txt" else TREES, encoding="utf-8")
    return folder


def test_trees_in_post_order(tmp_path: Path) -> None:
    raw = sst.read(treebank(tmp_path), fine=True)
    assert isinstance(raw.x_train, TreeRows)
    first, second, _ = raw.x_train.trees
    assert first == Tree(["It", "'s", "(", None, None], [-1, -1, -1, 1, 0], [-1, -1, -1, 2, 3], [2, 2, 3, 4, 3])
    assert second.words == ["not", "5\xa01/2", None] and raw.classes == sst.FINE and raw.y_train.tolist() == [3, 2, 0]
    binary = sst.read(tmp_path, fine=False)
    assert isinstance(binary.x_train, TreeRows) and binary.classes == ("negative", "positive")
    assert [tree.labels for tree in binary.x_train.trees] == [[2, 2, 1, 1, 1], [2, 0, 2, 0, 0]]
    assert binary.y_train.tolist() == [1, 0] and binary.kind == "tree"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("(3 (2 It) (4 good)", r"train\.txt, line 2: the brackets are unbalanced: 1 are not closed"),
        ("(3 (2 It) (4 good)))", r"line 2: the brackets are unbalanced: one is closed that was not opened"),
        ("(3 (2 It) (4 good)) (1 x)", r"line 2: a second tree"),
        ("(7 (2 It) (4 good))", r"line 2: the label '7' is not one of 0 to 4"),
        ("(3 (2 It) (4 good) (1 x))", r"line 2: a node has 3 nodes and 0 words"),
        ("(3 (2 It))", r"line 2: a node has 1 nodes and 0 words"),
        ("(3 so good)", r"line 2: a node has 0 nodes and 2 words"),
        ("good", r"line 2: 'good' is outside all brackets"),
        ("(", r"line 2: the label 'nothing' is not one"),
    ],
)
def test_lines_that_are_no_trees(tmp_path: Path, line: str, message: str) -> None:
    treebank(tmp_path, f"(2 x)\n{line}\n")
    with pytest.raises(DataError, match=message):
        sst.read(tmp_path, fine=False)


def test_texts_become_ids(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("the 1 2\ncat 3 4\n")
    train = TextRows(["The cat, the Cat!", "the end: an-end", "..."])
    words = encoding.of_texts(train, 5, tmp_path / "glove.txt", seed=0)
    assert words.words == ("[PAD]", "[UNK]", "the", "cat", "end")
    assert words.vectors_VD.tolist() == [[0, 0], [0, 0], [1, 2], [3, 4], [0, 0]]
    assert words.notes == ("The word vectors are those of glove.txt, 2 numbers each; it lacks 1 of 3 words.",)
    kind = TextInput(max_tokens=5, vocabulary_size=5).with_tokenizer(words.tokenizer.encode())
    rows = encoding.encode_texts(train, kind)
    assert rows.dtype == np.int32 and rows.tolist() == [[4, 2, 3, 2, 3, 0], [4, 2, 4, 1, 4, 0], [0] * 6]
    last = kind.model_copy(update={"max_tokens": 2, "truncation_side": "left"})
    assert encoding.encode_texts(train, last).tolist() == [[4, 2, 3], [4, 1, 4], [0, 0, 0]]
    assert Tokenizer.from_str(words.tokenizer).encode("A CAT").ids == [1, 3]
    drawn = encoding.of_texts(train, 5, None, seed=0)
    assert drawn.vectors_VD.shape == (5, 100) and not drawn.vectors_VD[0].any() and "are random" in drawn.notes[0]
    with pytest.raises(DataError, match="have no words"):
        encoding.of_texts(TextRows(["...", "?"]), 5, None, seed=0)


def test_trees_become_nodes(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("it 1 2\nseen 3 4\n")
    train = TreeRows([Tree(["It", "is", None], [-1, -1, 0], [-1, -1, 1], [2, 2, 1])], sst.NODES)
    test = TreeRows([Tree(["seen", "new", None], [-1, -1, 0], [-1, -1, 1], [2, 2, 0])], sst.NODES)
    words = encoding.of_trees({"train": train, "test": test}, tmp_path / "glove.txt", seed=0)
    assert words.words == ("[PAD]", "[UNK]", "It", "is", "seen") and not words.tokenizer
    assert words.vectors_VD[[2, 4]].tolist() == [[1, 2], [3, 4]] and abs(words.vectors_VD[[1, 3]]).max() < 0.3
    assert encoding.encode_trees(test, words, 4).tolist() == [
        [[4, -1, -1, 2, 0], [1, -1, -1, 2, 0], [0, 0, 1, 0, 1], [-1] * 5]
    ]
    assert len(encoding.of_trees({"train": train, "test": test}, None, seed=0).words) == 4


@pytest.mark.full
def test_the_published_numbers_of_rows() -> None:
    raw = newsgroups.read_by_date(data("20news-bydate"), [])
    assert (raw.x_train.shape, raw.x_test is not None and raw.x_test.shape) == ((11_314,), (7_532,))
    assert len(raw.classes) == 20
    for fine, counts in ((False, (6920, 872, 1821)), (True, (8544, 1101, 2210))):
        trees = sst.read(data("sst"), fine=fine)
        assert tuple(len(y) for y in (trees.y_train, trees.y_val, trees.y_test) if y is not None) == counts
    vectors, width = glove.read(data("glove.6B.50d.txt"), {"the", "xyzzy-none"})
    assert width == 50 and list(vectors) == ["the"]
