"""The caller's options for a model: input, output, classes, and the preprocessing of pixels or features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trueodds.dialect import read_yaml
from trueodds.errors import nearest
from trueodds.importing.errors import ModelFileError
from trueodds.importing.forms import PRESETS

Numbers = Annotated[
    tuple[float, ...], BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,))
]
"""One number for all channels or features, or one for each."""
Kind = Literal["image", "vector", "text"]
Layout = Literal["NCHW", "NHWC"]
PIXEL = 1 / 255
"""Default scale of pixels: that of torchvision's ToTensor."""


class Preprocessing(BaseModel):
    """Preprocessing (scale * x - mean) / std of each channel or feature, as timm and Hugging Face define it.

    Examples:
        >>> Preprocessing.parse("{mean: 0.5, std: 0.5}").mean
        (0.5,)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: Annotated[Numbers, Field(min_length=1)] = (0.0,)
    std: Annotated[Numbers, Field(min_length=1)] = (1.0,)
    scale: float | None = None
    """Factor of x before the mean is subtracted. None: 1/255 for pixels (torchvision's ToTensor), 1 for features."""
    size: Annotated[int, Field(ge=1)] | None = None
    """Side of the images, if the graph allows any size."""
    crop: float | None = Field(None, gt=0, le=1)
    """Share of an encoded image's shorter edge that the centre square keeps (timm's crop_pct)."""
    interpolation: Literal["bilinear", "bicubic"] | None = None
    layout: Layout | None = None
    """Order of the axes in the graph's input. None: determined from the sizes."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a preset's name, a mapping, or the name of a YAML file with a mapping.

        Raises:
            ModelFileError: A preset or key is unknown, or a value is not allowed.
        """
        if text in PRESETS:
            return cls.model_validate(PRESETS[text])
        try:
            tree = read_yaml(Path(text).read_text(encoding="utf-8") if Path(text).is_file() else text)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ModelFileError(f"--preprocess {text}: not a mapping ({' '.join(str(error).split())})") from None
        if not isinstance(tree, Mapping):
            near = nearest(text, PRESETS)
            allowed = f"{', '.join(PRESETS)}, a mapping such as {{mean: 0.5, std: 0.5}}, or a YAML file with one"
            raise ModelFileError(f"--preprocess is {text!r}; allowed are {allowed}.{near}")
        return cls.of(tree)

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Self:
        """Build the preprocessing from a mapping.

        Raises:
            ModelFileError: A key is unknown, or a value is not allowed.
        """
        try:
            read = cls.model_validate(tree)
        except ValidationError as error:
            first = error.errors()[0]
            key = str(first["loc"][0])
            if first["type"] == "extra_forbidden":
                allowed = ", ".join(cls.model_fields)
                near = nearest(key, cls.model_fields)
                raise ModelFileError(f"preprocess has no key {key!r}; allowed: {allowed}.{near}") from None
            raise ModelFileError(f"preprocess: {key} = {first['input']!r}: {first['msg']}") from None
        if 0 in read.std or read.scale == 0:
            raise ModelFileError(
                "preprocess: std and scale must not be 0, because the model would get the same input for every row"
            )
        return read

    def factor(self, scale: float) -> float:
        """Return the factor of x; the default is `scale`."""
        return scale if self.scale is None else self.scale

    def changes(self, scale: float) -> bool:
        """Return whether some value changes. `scale` is that of `factor`."""
        return self.factor(scale) != 1 or any(self.mean) or set(self.std) != {1.0}

    def check_channels(self, count: int, noun: str) -> None:
        """Check that mean and std have one number or `count` numbers.

        Raises:
            ModelFileError: They have another number.
        """
        for name in ("mean", "std"):
            if (numbers := len(getattr(self, name))) not in (1, count):
                problem = f"preprocess: {name} has {numbers} numbers, but the model takes {count} {noun}"
                raise ModelFileError(f"{problem}; give one number, or one for each")


@dataclass(frozen=True)
class ImportOptions:
    """The caller's options for a model. None or empty means the value from its file."""

    input: Kind | None = None
    output: str | None = None
    """Name of the output with logits or probabilities."""
    preprocessing: Preprocessing | None = None
    classes: tuple[str, ...] = ()
    """Names of the classes in the order of the output's columns."""
    expected: Path | None = None
    """File of the maker's own probabilities for the labelled rows, which the model must reproduce."""
    allow_unseen: bool = False
    """Allow classes without a labelled row."""
    tokenizer: Path | None = None
    """tokenizer.json of a text model."""
    max_tokens: int | None = None
    max_characters: int | None = None
    multilabel: bool = False
    """The output has one number for each independent yes/no label: a logit, or a sigmoid's probability."""
