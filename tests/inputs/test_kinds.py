"""What holds for every kind of input, and that nothing outside asks which kind it is."""

from __future__ import annotations

import ast
import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from pydantic import TypeAdapter, ValidationError

from tests.conftest import ROOT
from trueodds.inputs import KINDS, SERVED, ImageInput, Input, InputError, InputKind, Limits, VectorInput
from trueodds.inputs.image.pictures import encode_png

ANY = Limits()
CARDS: dict[str, dict[str, Any]] = {
    "grey": {"kind": "image", "height": 2, "width": 3, "channels": 1, "resized": False},
    "colour": {"kind": "image", "height": 2, "width": 2, "channels": 3, "resized": True},
    "cropped": {
        "kind": "image",
        "height": 2,
        "width": 2,
        "channels": 3,
        "resized": True,
        "crop": 0.875,
        "interpolation": "bicubic",
    },
    "vector": {"kind": "vector", "features": ["a", "b"], "missing": False},
}
"""Texts: tests/inputs/test_text.py."""
UNION: TypeAdapter[InputKind] = TypeAdapter(Input)


@pytest.mark.parametrize("name", CARDS)
def test_a_cards_entry_is_written_as_it_is_read(name: str) -> None:
    """What has its default and came after cards were first written is left out: the card's hash is its version."""
    entry = UNION.validate_python(CARDS[name])
    assert list(entry.model_dump().items()) == list(CARDS[name].items())
    assert UNION.validate_json(entry.model_dump_json()) == entry


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "sound"}, "'image', 'vector'"),
        ({"height": 2, "width": 2, "channels": 1}, "discriminator 'kind'"),
        (CARDS["grey"] | {"features": ["a"]}, "Extra inputs"),
        (CARDS["grey"] | {"crop": 0.5}, "crop and interpolation are of resized images"),
        (CARDS["cropped"] | {"crop": 0}, "greater than 0"),
        (CARDS["cropped"] | {"crop": 1.5}, "less than or equal to 1"),
        (CARDS["cropped"] | {"interpolation": "nearest"}, "'bilinear' or 'bicubic'"),
        (CARDS["cropped"] | {"height": 3}, "resized images are square"),
    ],
)
def test_entries_that_do_not_validate(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        UNION.validate_python(entry)


def test_the_union_names_every_kind() -> None:
    text = {"kind": "text", "max_tokens": 8, "vocabulary_size": 9}
    entries = (CARDS["grey"], CARDS["vector"], text)
    assert [type(UNION.validate_python(entry)) for entry in entries] == list(KINDS)
    assert len(SERVED) == len(KINDS) and set(InputKind.__subclasses__()) == set(KINDS)
    assert len({kind.tensor for kind in KINDS}) == len(KINDS)


def test_a_copy_is_a_kind_of_its_own() -> None:
    gaps = VectorInput(features=["a"], missing=True)
    assert np.isnan(gaps.from_json([[None]], ANY)).all()
    with pytest.raises(InputError, match="takes no missing values"):
        gaps.model_copy(update={"missing": False}).from_json([[None]], ANY)
    with pytest.raises(ValidationError, match="stands twice"):
        gaps.model_copy(update={"features": ["a", "a"]})


@pytest.mark.parametrize("name", CARDS)
def test_bytes_give_the_row_back_and_all_examples_one_made_up_row(name: str) -> None:
    kind = UNION.validate_python(CARDS[name])
    row = np.arange(int(np.prod(kind.shape))).reshape(kind.shape).astype(kind.dtype)
    assert np.array_equal(kind.decode(kind.encode(row), "x")[0], row)
    assert np.array_equal(kind.from_values(kind.values(row), 1, kind.tensor)[0], row)
    made_up = kind.from_values(kind.made_up(), 1, kind.tensor)
    for instance in kind.examples().values():
        same = np.array_equal(kind.from_json([instance], ANY), made_up)
        assert same or (name == "cropped" and "b64" in instance), "a picture file is cut and scaled"
    assert len(np.unique(made_up)) > 1 and len(kind.examples()) >= 1
    with pytest.raises(InputError, match="x does not have shape"):
        kind.decode(kind.encode(row)[1:], "x")


def npy(array: npt.NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


GREY = ImageInput(height=2, width=3, channels=1)
FORMS: dict[str, Callable[[npt.NDArray[np.uint8]], npt.NDArray[Any]]] = {
    "lists": lambda x: GREY.from_json(x.tolist(), ANY),
    "lists without channels": lambda x: GREY.from_json(x[..., 0].tolist(), ANY),
    "numbers with a point": lambda x: GREY.from_json(x.astype(float).tolist(), ANY),
    "PNG": lambda x: GREY.from_json([{"b64": base64.b64encode(encode_png(i)).decode()} for i in x], ANY),
    "raw in JSON": lambda x: GREY.from_json(
        [{"pixels_b64": base64.b64encode(GREY.encode(i)).decode()} for i in x], ANY
    ),
    "files": lambda x: GREY.from_files([("a.png", encode_png(i)) for i in x], ANY),
    "npy": lambda x: GREY.read(npy(x), "npy", ANY),
    "npy by columns": lambda x: GREY.read(npy(np.asfortranarray(x.astype(float))), "npy", ANY),
    "raw": lambda x: GREY.read(x.tobytes(), "bytes", ANY),
    "tensor as JSON": lambda x: GREY.from_values(x.ravel().tolist(), len(x), "images"),
    "tensor": lambda x: GREY.check_rows(x.astype(np.float16), "x"),
}


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=20, deadline=None)
@given(x=arrays.arrays(np.uint8, st.tuples(st.integers(1, 3), *map(st.just, GREY.shape))))
def test_images_in_every_form(form: str, x: npt.NDArray[np.uint8]) -> None:
    found = FORMS[form](x)
    assert found.dtype == np.uint8 and np.array_equal(found, x)


@pytest.mark.parametrize(("interpolation", "pillow"), [("bilinear", 2), ("bicubic", 3)])
@pytest.mark.parametrize("size", [(512, 512), (512, 1024)])
def test_a_crop_is_that_of_torchvision_and_timm(interpolation: str, pillow: int, size: tuple[int, int]) -> None:
    """Resize(256) and CenterCrop(224), step by step, where the size in between needs no rounding."""
    height, width = size
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))
    resized = image.resize((256 * width // height, 256), Image.Resampling(pillow))
    left, top = (resized.width - 224) // 2, (resized.height - 224) // 2
    expected = np.asarray(resized.crop((left, top, left + 224, top + 224))).astype(int)
    entry = {"height": 224, "width": 224, "channels": 3, "resized": True, "crop": 0.875, "interpolation": interpolation}
    found = ImageInput.model_validate(entry).from_files([("a", encode_png(np.asarray(image)))], ANY)[0].astype(int)
    assert np.abs(found - expected).max() <= 1
    whole = ImageInput.model_validate(entry | {"crop": 1.0})
    assert not np.array_equal(whole.from_files([("a", encode_png(np.asarray(image)))], ANY)[0], found)


def test_a_crop_is_cut_where_the_size_is_right_already() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 1), np.uint8)
    kind = ImageInput(height=8, width=8, channels=1, resized=True, crop=0.5)
    (found,) = kind.from_files([("a", encode_png(pixels))], ANY)
    (twice,) = kind.model_copy(update={"crop": 1.0}).from_files([("a", encode_png(pixels[2:6, 2:6]))], ANY)
    assert np.abs(found[2:6, 2:6].astype(int) - twice[2:6, 2:6]).max() <= 1


MAKERS = {
    "pipeline/data/vectors.py": "rows of training data",
    "pipeline/data/texts/": "the same of texts",
    "trueodds/importing/": "the card of a model from elsewhere: it finds out what its graph takes",
    "trueodds/cli/import_model.py": "the same: it passes on what the user says",
    "trueodds/cli/multi_label.py": "the same for models of independent labels",
}
READERS = {
    "pipeline/data/": "training data that are image files",
    "trueodds/replay/": "images and texts, as they drift",
    "service/settings.py": "the limit on pixels",
}
"""Of image files, by the functions below the kind."""


def mentions(path: Path) -> set[str]:
    """Names of kinds that a module mentions, and modules of one kind that it imports."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and node.id in {kind.__name__ for kind in KINDS}:
            found.add("kind")
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            ("trueodds.inputs.image", "trueodds.inputs.vector", "trueodds.inputs.text")
        ):
            found.add("module")
        if isinstance(node, ast.Compare):
            found |= {"kind" for value in node.comparators if isinstance(value, ast.Constant) and value.value in SERVED}
    return found


def test_nobody_else_asks_which_kind_it_is() -> None:
    files = [path for folder in ("trueodds", "pipeline", "service") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): mentions(path) for path in files}
    assert found["trueodds/inputs/image/kind.py"] and found["pipeline/data/vectors.py"] == {"kind", "module"}
    own = ("trueodds/inputs/", *MAKERS)
    assert {name for name in found if "kind" in found[name] and not name.startswith(own)} == set()
    assert {name for name in found if "module" in found[name] and not name.startswith((*own, *READERS))} == set()


def test_vectors_have_no_files() -> None:
    kind = VectorInput(features=["a"])
    assert not kind.files
    with pytest.raises(NotImplementedError, match="vectors are not sent as files"):
        kind.from_files([], ANY)


@pytest.mark.parametrize("kind", ["WEBP", "TIFF", "BMP", "GIF"])
def test_every_format_comes_in_as_a_file_and_as_base64(kind: str) -> None:
    out = io.BytesIO()
    Image.fromarray(np.full((8, 8), 7, np.uint8)).save(out, kind, **({"lossless": True} if kind == "WEBP" else {}))
    images = ImageInput(height=8, width=8, channels=1)
    instance = {"b64": base64.b64encode(out.getvalue()).decode()}
    for rows in (images.from_files([("a", out.getvalue())], Limits()), images.from_json([instance], Limits())):
        assert (rows == 7).all() and rows.shape == (1, 8, 8, 1)
