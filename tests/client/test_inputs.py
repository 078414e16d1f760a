"""Inputs and labels in every form that the client takes, and those that it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from tests.client.data import images
from tests.service.hooks import until
from tests.service.tiny_bundle import write_bundle
from trueodds.bundle import open_models
from trueodds.client import CallError, Client, LabelSummary
from trueodds.client.instances import LARGE, instances_of
from trueodds.errors import ConfigError
from trueodds.inputs.image.pictures import ORIENTATION, encode_png


def test_inputs_of_every_form_get_the_same_answer(client: Client, tmp_path: Path) -> None:
    image_HWC = images(1)[0]
    png = encode_png(image_HWC)
    (tmp_path / "image.png").write_bytes(png)
    one = [image_HWC, image_HWC[:, :, 0], png, tmp_path / "image.png", str(tmp_path / "image.png")]
    picture = Image.fromarray(image_HWC[:, :, 0])
    turned = picture.transpose(Image.Transpose.ROTATE_90)
    turned.getexif()[ORIENTATION] = 6
    one += [picture, picture.convert("RGB"), turned]
    many = [
        [picture],
        image_HWC[None],
        image_HWC[None, :, :, 0],
        [image_HWC],
        [png],
        (path for path in [tmp_path / "image.png"]),
    ]
    answers = [client.predict(form).probabilities_NC for form in (*one, *many)]
    assert {answer.shape for answer in answers} == {(1, 10)} and len({answer.tobytes() for answer in answers}) == 1


def test_a_large_image_goes_alone_with_its_id(client: Client, folder: Path, tmp_path: Path) -> None:
    shape = (150, 120, 3)
    open_models(folder / "models").publish(write_bundle(tmp_path / "bundle", shape=shape, name="large"))
    large_NHWC = np.random.default_rng(1).integers(0, 256, (3, *shape), np.uint8)
    assert large_NHWC[0].size >= LARGE
    until(lambda: "large" in [served.model for served in client.models()])
    predictions = client.predict(large_NHWC, model="large", ids=["a", "b", "ü"], tag="x")
    assert predictions.ids == ("a", "b", "ü") and client.report(model="large", tag="x").answers == 3
    assert client.predict(large_NHWC[0], model="large", ids=["a"]).repeated == {0: predictions.version}
    with pytest.raises(CallError, match=r"the array has the shape \[120, 150, 3\]; the model takes N x 150 x 120"):
        client.predict(large_NHWC.transpose(0, 2, 1, 3), model="large")


@pytest.mark.parametrize(
    ("labels", "counts"),
    [
        (lambda ids: (ids, ["1", "2"]), LabelSummary(stored=2)),
        (lambda ids: (ids, np.array([1, 2])), LabelSummary(stored=2)),
        (lambda ids: (np.array(ids), np.array(["1", "2"])), LabelSummary(stored=2)),
        (lambda ids: ({ids[0]: 1, ids[1]: "2"},), LabelSummary(stored=2)),
        (lambda ids: (((id_, 1) for id_ in ids),), LabelSummary(stored=2)),
        (lambda ids: (ids[0], "1"), LabelSummary(stored=1)),
        (lambda ids: ([],), LabelSummary()),
    ],
    ids=["texts", "indices", "arrays", "mapping", "pairs", "one", "none"],
)
def test_labels_of_every_form(client: Client, labels: Any, counts: LabelSummary) -> None:
    arguments = labels(client.predict(images(2)).ids)
    assert client.feedback(*arguments) == counts


class Frame:
    """What pandas' data frames have of what the client uses: names of columns, and rows without the index."""

    def __init__(self, **columns: list[Any]) -> None:
        self.columns = np.array([name.replace("__", " ") for name in columns], object)
        self._rows = list(zip(*columns.values(), strict=True))

    def itertuples(self, index: bool = True, name: str | None = "Pandas") -> Iterator[tuple[Any, ...]]:
        assert not index and name is None
        return iter(self._rows)


class PolarsFrame:
    columns: ClassVar = ["b", "a"]

    def iter_rows(self) -> Iterator[tuple[Any, ...]]:
        return iter([(1, None), (2, 0.5)])


class Missing:
    """As pandas' NA: no comparison has a truth value."""

    def __ne__(self, other: object) -> Any:
        return self

    def __eq__(self, other: object) -> Any:
        return self

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


def trees(inputs: Any) -> list[Any]:
    return [json.loads(instance.body) for instance in instances_of(inputs)]


def test_data_frames_are_sent_by_the_names_of_their_columns() -> None:
    frame = Frame(age=[np.int64(3), 4], income=[np.float32(0.5), np.nan], height=[Missing(), None])
    assert trees(frame) == [{"age": 3, "income": 0.5, "height": None}, {"age": 4, "income": None, "height": None}]
    assert trees(PolarsFrame()) == [{"b": 1, "a": None}, {"b": 2, "a": 0.5}]
    assert trees(Frame(text=["so so", "good"])) == [{"text": "so so"}, {"text": "good"}]
    with pytest.raises(ConfigError, match="row 1 has 'tall' as feature 'height', which is not a number"):
        trees(Frame(height=[1.0, "tall"]))
    twice = Frame(a=[1], b=[2])
    twice.columns = np.array(["a", "a"])
    with pytest.raises(ConfigError, match="the data frame has the column 'a' twice; give each feature one column"):
        trees(twice)


def test_strings_are_texts_unless_they_name_a_file(tmp_path: Path) -> None:
    (tmp_path / "note").write_bytes(b"abc")
    assert trees(["good", np.str_("so so"), str(tmp_path / "note")]) == [
        {"text": "good"}, {"text": "so so"}, {"b64": "YWJj"}
    ]  # fmt: skip
    assert trees("one text.") == trees(np.array(["one text."])) == trees(iter(["one text."])) == [{"text": "one text."}]
    assert trees("I liked image.png") == [{"text": "I liked image.png"}]
    with pytest.raises(
        ConfigError, match=r"row 0 is 'photos/cat\.JPG', which is not a file on this machine; check the path"
    ):
        trees(["photos/cat.JPG"])


def test_frames_and_texts_reach_their_models(client: Client, folder: Path, tmp_path: Path) -> None:
    models = open_models(folder / "models")
    models.publish(write_bundle(tmp_path / "vectors", name="flowers", features=("sepal_length", "age")))
    models.publish(write_bundle(tmp_path / "texts", name="words", words=("good", "bad", "so")))
    until(lambda: {"flowers", "words"} <= {served.model for served in client.models()})
    expected = client.predict([[1.5, 3.0], [2.5, 4.0]], model="flowers")
    assert expected.columns == {} and expected.notes == ()
    exact = client.predict(Frame(age=[3, 4], sepal_length=[1.5, 2.5]), model="flowers")
    assert np.array_equal(exact.probabilities_NC, expected.probabilities_NC) and exact.notes == ()
    with pytest.warns(UserWarning, match="The column 'Sepal length' was read as the feature 'sepal_length'"):
        alike = client.predict(Frame(AGE=[3, 4], Sepal__length=[1.5, 2.5]), model="flowers", rows=1)
    assert np.array_equal(alike.probabilities_NC, expected.probabilities_NC)
    assert alike.columns == {"sepal_length": "Sepal length", "age": "AGE"} and len(alike.notes) == 2
    with pytest.raises(CallError, match=r"has the unknown feature 'weight'.*the model takes 'sepal_length', 'age'"):
        client.predict(Frame(age=[3], weight=[1.5]), model="flowers")
    with pytest.raises(CallError, match="unknown feature 'AGE'"):
        client.predict(Frame(age=[3], AGE=[1.5]), model="flowers")
    texts = client.predict(["good so", "bad"], model="words")
    assert np.array_equal(
        texts.probabilities_NC, client.predict([{"text": "good so"}, {"text": "bad"}], model="words").probabilities_NC
    )
    assert len(client.predict("good", model="words")) == 1


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (np.zeros((2, 8, 8, 1)), {}, "row 0 is an image of float64; pixels are uint8, 0 to 255, not scaled"),
        ([[1.0, "a"]], {}, "row 0 has 'a' as value 1, which is not a number; expected uint8 images"),
        ([{"age": 1.0}, {"age": float("inf")}], {}, "row 1 has inf as feature 'age'; allowed are finite numbers"),
        ([[1.0], None], {}, "row 1 is None; expected uint8 images"),
        (7, {}, "the inputs are 7; expected"),
        (Image.new("CMYK", (8, 8)), {}, r"row 0 is an image of mode 'CMYK'; convert it: image.convert\('RGB'\)"),
        (np.array(7.0), {}, r"row 0 is array\(7"),
        ([], {}, "the inputs are empty"),
        (images(2), {"ids": ["a"]}, "there are 1 ids and more rows; expected an id for each row"),
        (images(1), {"ids": ["a", "b"]}, "there are 1 rows and more ids"),
        (images(1), {"ids": "abc"}, "ids is the text 'abc'; expected a list"),
        (images(2), {"ids": np.array([7, 8])}, r"row 0 has the id np\.int64\(7\); expected a text, such as '7'"),
        (images(1), {"top_k": 2}, "unknown option 'top_k'"),
    ],
)
def test_inputs_that_cannot_be_sent(client: Client, inputs: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client.predict(inputs, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a", "b"], ["1"]), "there are 2 ids and 1 of labels; expected the same number"),
        ((iter(["a", "b"]), iter(["1"])), "the numbers of ids and classes differ"),
        ((["a"], ["1"], [0]), "labels and index are both given"),
        ((["a"], None, ["0"]), "row 0 has the index '0'; expected a whole number from 0 on"),
        ((["a"], None, [-1]), "row 0 has the index -1"),
        ((["a", "b"], None, 1), "index is 1, for several ids; expected one for each"),
        ((["a", "b"], "1"), "labels is '1', for several ids; expected one for each"),
        (([("a", 1.5)],), "row 0 has the label 1.5; expected the name of a class"),
        (([("a", True)],), "row 0 has the label True;.* Pass booleans as the names of their classes, such as 'True'"),
        (([(7, "1")],), "row 0 has the id 7; expected a text"),
        (([("a", "1", "b")],), "row 0 is .*; expected a pair"),
    ],
)
def test_labels_that_cannot_be_sent(client: Client, arguments: tuple[Any, ...], message: str) -> None:
    *positional, index = arguments if len(arguments) == 3 else (*arguments, None)
    with pytest.raises(ConfigError, match=message):
        client.feedback(*positional, index=index)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "127.0.0.1:8000"}, "url is '127.0.0.1:8000'; expected a URL such as http://127.0.0.1:8000"),
        ({"url": "http://a", "key": "with blank"}, "key has blanks or characters beyond ASCII"),
        ({"url": "http://a", "tries": 0}, "tries=0, .*expected tries of 1 or more"),
        ({"url": "http://a", "seconds": 0}, "seconds=0"),
    ],
)
def test_a_client_that_cannot_be(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Client(**arguments)


def test_features_as_they_are_sent() -> None:
    """Numbers keep every bit of a float32; a missing one is null."""
    table_NF = np.array([[0.1, np.nan], [1e-30, 3.0]], np.float32)
    assert [instance.body for instance in instances_of(table_NF)] == [
        b"[0.10000000149011612,null]",
        b"[1.0000000031710769e-30,3.0]",
    ]
    rows: Any = [{"a": np.float32(0.5), "b": None}, {"a": np.int64(2), "b": float("nan")}]
    assert [instance.body for instance in instances_of(rows)] == [b'{"a":0.5,"b":null}', b'{"a":2,"b":null}']
    assert [instance.body for instance in instances_of([1, None, 2.5])] == [b"[1,null,2.5]"]
    assert [instance.body for instance in instances_of(np.arange(3))] == [b"[0,1,2]"]
