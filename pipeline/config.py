"""params.yaml as frozen, validated sections.

Leaf names are unique over all sections, so a leaf can be named alone: on the command line
(`trueodds train epochs=3`), and as one parameter of a scheduled run.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trueodds.dialect import read_yaml
from trueodds.errors import ConfigError, nearest, unknown

OptionValue = bool | int | float | str | list[float]
"""Of a method's option; a list has a number for each class."""
CalibratorOption = bool | int | float | str | list[str]


_NoneAsEmpty = BeforeValidator(lambda value: {} if value is None else value)
"""DVC replaces a null by any mapping (`dvc exp run -S 'training.method_options={gamma: 2}'`), and no key of `{}`."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class Data(_Section):
    """The data set to learn from, and how its rows are split."""

    dataset: str = Field("digits", min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """digits, cifar10, cifar100, tiny-imagenet-200, breast_cancer, wine, 20news-bydate, 20_newsgroups, sst-binary,
    sst-fine, or the name of your own data set, found under `path`."""
    path: str = Field("datasets", min_length=1)
    """Your own data: an .npz, .csv or .parquet, a folder of images or texts, or a directory that holds one named
    `<dataset>`."""
    label_column: str = Field("label", min_length=1)
    """The column of a .csv or .parquet table that holds the labels; all others are features, or one is `text`."""
    positive: Annotated[str, Field(min_length=1)] | None = None
    """The one of two classes that the model is asked about, such as malignant; null: none."""
    image_size: Annotated[int, Field(ge=4, le=512)] | None = None
    """Side in pixels to which a folder's images are brought (centre crop); null: they all have one size already."""
    embeddings: Annotated[str, Field(min_length=1)] | None = None
    """Vectors of words for texts and trees: a file of GloVe's, such as glove.6B.100d.txt; null: drawn at random."""
    vocabulary_size: Annotated[int, Field(ge=3, le=1_000_000)] = 20_000
    """Words of texts that are known, the commonest; trees keep all of theirs."""
    max_tokens: Annotated[int, Field(ge=1, le=8192)] = 1000
    """Words of a text that are read."""
    truncation_side: Literal["right", "left"] = "right"
    """Where a longer text is cut off: right keeps its beginning, left its end, as in the focal paper's code."""
    remove: list[Literal["headers", "footers", "quotes"]] = ["headers"]
    """Of 20 Newsgroups: headers, footers, quotes, as scikit-learn does; [headers]: as in the focal paper's code."""
    unreadable_share: float = Field(0.0, ge=0, lt=1)
    """Share of a folder's images that may be damaged: up to it they are left out and named on the card; 0: an error."""
    benchmark_val: Literal["test", "val_and_test"] = "test"
    """What the labelled val images of Tiny-ImageNet and of ImageNet's layout are: test, or val_and_test, both at once,
    as in the papers' public code."""
    label_counts: Annotated[str, Field(min_length=1)] | None = None
    """How many people chose each class for each test row: a .npy file (rows x classes), or cifar10h; null: unknown."""
    train_size: Annotated[int, Field(ge=2)] | None = None
    """Rows to train on, drawn class-balanced; null: all that the other splits leave."""
    validation_size: Annotated[int, Field(ge=2)] | None = None
    """Rows held out for calibration; null: digits 300, CIFAR 5,000, Tiny-ImageNet 10,000, breast_cancer 95, wine 30,
    your own a tenth; recipe gamma-net a tenth of all."""
    held_out_size: Annotated[int, Field(ge=2)] | None = None
    """Rows set aside to learn from by penalties with `when: interleaved` and by parts that look ahead; null: as the
    recipe says, most have none."""
    test_fraction: float = Field(0.2, gt=0, lt=1)
    """Share of the rows held out for test when a data set of your own brings no test split."""
    split_seed: Annotated[int, Field(ge=0)] = 0
    """Which rows go into which split."""
    duplicates: Literal["keep", "leave_out"] = "keep"
    """What becomes of validation and test rows that are also training rows: keep counts them, leave_out removes
    them."""
    near_duplicates: Annotated[int, Field(ge=0, le=16)] | None = None
    """Of images: so many of 64 bits in which the perceptual hashes of near duplicates may differ, such as 4; they are
    counted and left out as duplicates are; null: they are not looked for."""
    group_column: Annotated[str, Field(min_length=1)] | None = None
    """A column, such as patient, whose equal rows all go into the same split; of an .npz an array, of an image folder
    `folder`, for train/<class>/<group>/; null: rows are drawn one by one."""


class Training(_Section):
    """How the network learns. null means: as the recipe says."""

    model: Annotated[str, Field(min_length=1)] | None = None
    """An ONNX file of your own in place of training: nothing is trained; null: the settings below."""
    model_options: Annotated[dict[str, str], _NoneAsEmpty] = Field(default_factory=dict)
    """Of that file, as `trueodds import` has them: {preprocess: imagenet, output: NAME}."""
    recipe: str = "auto"
    """auto, or a name that `trueodds recipes` lists."""
    net: str | None = None
    """A name that `trueodds nets` lists."""
    width: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Channels of the first stage, of a DenseNet those that a layer adds, of mlp units of a hidden layer; null: as the
    net's name says."""
    depth: Annotated[int, Field(ge=1, le=64)] | None = None
    """Blocks in every stage, or hidden layers; null: as the net's name says."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of the hidden units that each step drops, of mlp, Wide ResNets and DenseNets; null: for mlp 0.1, else 0."""
    resize: Annotated[int, Field(ge=8, le=1024)] | None = None
    """Edge to which torchvision's nets scale their images first, such as 224 for CIFAR; null: they do not."""
    start: Annotated[str, Field(min_length=1)] | None = None
    """Weights to begin with: a .safetensors, .pt or .pth file, or torchvision:NAME such as torchvision:resnet18; null:
    they are drawn."""
    freeze: str | None = None
    """What does not learn: nothing, body (all but the head), or a stage with all before it, such as stages.3."""
    head_epochs: Annotated[int, Field(ge=0)] | None = None
    """So many epochs at first in which the head learns alone."""
    method: str = "ce"
    """How to train for calibration: a name that `trueodds methods` lists, or a short form."""
    method_options: Annotated[dict[str, OptionValue], _NoneAsEmpty] = Field(default_factory=dict)
    """Options of the method's parts, such as {gamma: 2}."""
    epochs: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Passes over the training rows."""
    batch_size: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Rows per step."""
    optimizer: Literal["sgd", "adam", "adamw", "adagrad"] | None = None
    """sgd, adam, adamw, adagrad."""
    learning_rate: Annotated[float, Field(gt=0, le=100)] | None = None
    """The schedule's highest value; null and another optimizer than the recipe's: adam and adamw .001, adagrad .01,
    sgd .1."""
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Of sgd."""
    nesterov: bool | None = None
    """Nesterov's form of sgd's momentum."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] | None = None
    """Added to the gradient, times the weight; of adamw taken from the weight, times the learning rate."""
    schedule: Literal["step", "cosine", "constant"] | None = None
    """Of the learning rate: step (times `decay` at each milestone), cosine (down to 0), constant."""
    milestones: list[Annotated[float, Field(gt=0, lt=1)]] | None = None
    """Of the step schedule, as fractions of the run, such as [0.4, 0.6]."""
    decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Factor of the step schedule at each milestone."""
    warmup: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Fraction of the run over which the learning rate rises linearly from 0, such as 0.005; 0: none."""
    selection: Literal["last", "val_error", "val_nll", "val_refinement"] | None = None
    """Whose weights are taken: the last epoch's, or the first's of least validation error, NLL, or NLL after
    temperature scaling (val_refinement)."""
    reduction: Literal["mean", "sum"] | None = None
    """Of the loss over the batch."""
    clip: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Greatest norm of a step's gradient; 0: never clipped."""
    padding: Annotated[int, Field(ge=0, le=64)] | None = None
    """Augmentation: shifts of up to so many pixels; 0: none."""
    flip: bool | None = None
    """Augmentation: random horizontal flips."""
    crop_scale: Annotated[float, Field(ge=0, le=1)] | None = None
    """Augmentation of larger images: a random crop of at least this share of the area, scaled to the image's size, such
    as 0.08; 0: none."""
    randaugment: Annotated[int, Field(ge=0, le=8)] | None = None
    """Augmentation of larger images: so many operations of RandAugment, such as 2; 0: none."""
    held_out: Literal["apart", "official"] | None = None
    """Of held-out rows that the method does not learn from: apart (unused), official (training rows, as in public
    code)."""
    vectors_rate: Annotated[float, Field(ge=0, le=100)] | None = None
    """Of trees: the learning rate of the words' vectors, by plain sgd without decay; 0: they do not learn."""
    node_weight: Annotated[float, Field(ge=0, le=1000)] | None = None
    """Of trees: the weight of a node's loss below the root, whose weight is 1; 0: roots alone."""
    precision: Literal["float32", "bfloat16"] | None = None
    """Of the net's body in training steps: bfloat16 is faster on GPUs; head, loss and all logits stay float32."""
    compile: Literal["off", "features", "graphs"] | None = None
    """off; features: the net's body by torch.compile, which takes a minute at first; graphs: as CUDA graphs, too."""
    validate_every: Annotated[int, Field(ge=1)] | None = None
    """So many epochs lie between two measurements of the validation rows, such as 5; the last is always measured."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the initial weights, the order of the rows and the augmentation."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where torch sees it."""
    threads: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Of the CPU, in training; 0: torch's choice."""
    curves: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    """Epochs to look at closely, for `trueodds curves`; any: the test split is measured after every epoch."""
    epoch_metrics: list[Literal["adaptive_ece", "brier", "classwise_ece", "mce", "sweep_ece"]] = Field(
        default_factory=list
    )
    """Further columns of epochs.csv, of the validation rows and, with `curves`, of the test rows."""


class Calibration(_Section):
    """The calibrator that is fitted on the validation logits after training."""

    calibrator: str = "temperature"
    """A name that `trueodds calibrators` lists, or select: the one of least cross-validated NLL."""
    calibrator_options: Annotated[dict[str, CalibratorOption], _NoneAsEmpty] = Field(default_factory=dict)
    """Options of its fit, such as {objective: brier}; of select: {candidates: [temperature, vector], folds: 5}."""


class Evaluation(_Section):
    """How the test logits are judged."""

    bins: Annotated[int, Field(ge=1, le=1000)] = 15
    """Equal-width confidence bins; a divisor of 3,000."""
    level: float = Field(0.95, ge=0.5, le=0.999)
    """Nominal coverage of the intervals."""
    compare: list[str] = Field(default_factory=list)
    """Further calibrators, fitted on the validation rows and measured on the test rows, with options where they follow
    the name, such as temperature objective=ece; [all]: every one."""
    shift: Annotated[Literal["cifar-c"], Field(json_schema_extra={"enum": ["cifar-c"]})] | None = None
    """cifar-c: the test images under corruptions of five severities, too, as CIFAR-10-C has them; null: none."""
    shift_options: Annotated[dict[str, int | list[int] | list[str]], _NoneAsEmpty] = Field(default_factory=dict)
    """{corruptions: [fog, snow], severities: [1, 3, 5], rows: 1000, seed: 0}; without: the 15 common ones ([all]: all
    19), 1 to 5, every test row (rows are drawn class-balanced), seed 0."""


class Params(_Section):
    """All of params.yaml."""

    data: Data = Data()
    training: Training = Training()
    calibration: Calibration = Calibration()
    evaluation: Evaluation = Evaluation()

    def leaves(self) -> dict[str, Any]:
        """Every leaf by its own name: the flat form of the whole configuration."""
        return {name: value for section in self.model_dump().values() for name, value in section.items()}


SECTION_OF = {
    leaf: section
    for section, field in Params.model_fields.items()
    for leaf in field.annotation.model_fields  # type: ignore[union-attr]  # every field of Params is a _Section
}
"""Leaf name -> section name. tests/test_config.py holds that no leaf appears twice."""


def load(path: str | Path = "params.yaml", overrides: Mapping[str, Any] | None = None) -> Params:
    """Read params.yaml; `overrides` maps leaves, or names in them (`method_options.gamma`), to values.

    Raises:
        ConfigError: naming the file, the key, the value, what is allowed and the nearest valid key.
    """
    path = Path(path)
    try:
        tree = copy.deepcopy(_tree_of(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; run from the folder that holds params.yaml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    tree = {} if tree is None else tree  # an empty file: all defaults
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold sections ({', '.join(Params.model_fields)}), not {type(tree).__name__}")
    for name, value in (overrides or {}).items():
        leaf, _, option = name.partition(".")
        if leaf not in SECTION_OF:
            raise unknown("parameter", name, SECTION_OF)
        section = tree.get(SECTION_OF[leaf])
        if section is None:
            section = tree[SECTION_OF[leaf]] = {}
        if isinstance(section, dict):
            section[leaf] = {**(section.get(leaf) or {}), option: value} if option else value
    return parse(tree, source=str(path))


@cache
def _tree_of(text: str) -> Any:
    """Read YAML once: a study loads the same file for each of its hundreds of runs, 15 ms each."""
    return read_yaml(text)


def parse(tree: Mapping[str, Any], source: str = "params") -> Params:
    """Validate a tree of sections; see `load`. A section without keys (YAML's null) keeps its defaults."""
    sections = {key: {} if value is None and key in Params.model_fields else value for key, value in tree.items()}
    try:
        params = Params.model_validate(sections)
    except ValidationError as error:
        lines = dict.fromkeys(f"{source}: {_explain(e)}" for e in error.errors())  # a union reports each member
        raise ConfigError("\n".join(lines)) from None
    if 3000 % params.evaluation.bins:
        raise ConfigError(
            f"{source}: evaluation.bins = {params.evaluation.bins}: allowed are the divisors of 3000"
            " (10, 15, 20, 25, 30, 50, 60, 75, 100, ...), so that bins are unions of cells"
        )
    return params


def _explain(error: Any) -> str:
    """One error of pydantic's in this file's words: key = value: what is allowed, what is near."""
    section, leaf, *inside = (*(str(part) for part in error["loc"]), "", "")
    entry = f"{'.'.join(filter(None, (section, leaf)))} = {error['input']!r}"
    if error["type"] in ("extra_forbidden", "invalid_key"):
        return _explain_unknown(section, leaf, entry)
    if not leaf:
        return f"{entry}: '{section}' is a section; its keys are {', '.join(_keys(section))}"
    if error["type"] == "value_error":
        return f"{entry}: {error['ctx']['error']}"
    field = _section(section).model_json_schema()["properties"][leaf]
    if inside[0]:
        entry = f"{section}.{leaf}.{inside[0]} = {error['input']!r}"
        inner = (part.get("items") or part.get("additionalProperties") for part in [field, *field.get("anyOf", ())])
        field = next(filter(None, inner))
    choices = [str(choice) for part in [field, *field.get("anyOf", ())] for choice in part.get("enum", ())]
    hint = nearest(str(error["input"]), choices) if choices else ""
    return f"{entry}: allowed is {_allowed(field)}.{hint}"


def _explain_unknown(section: str, leaf: str, entry: str) -> str:
    name, allowed = (leaf, _keys(section)) if leaf else (section, list(Params.model_fields))
    if name in SECTION_OF:  # before the nearest spelling: data.batch_size is not a misspelt image_size
        hint = f" '{name}' belongs under '{SECTION_OF[name]}'."
    else:
        hint = nearest(name, allowed)
        elsewhere = difflib.get_close_matches(name, SECTION_OF, n=1, cutoff=0.75)
        if not hint and elsewhere:
            hint = f" Did you mean '{SECTION_OF[elsewhere[0]]}.{elsewhere[0]}'?"
    return f"unknown key {entry}; allowed here: {', '.join(allowed)}.{hint}"


def _section(name: str) -> type[_Section]:
    section: type[_Section] = Params.model_fields[name].annotation  # type: ignore[assignment]
    return section


def _keys(section: str) -> list[str]:
    return list(_section(section).model_fields)


def _allowed(schema: dict[str, Any]) -> str:
    """A field's JSON schema in words: `a whole number from 1 to 64, or null`."""
    if "anyOf" in schema:
        parts = [
            part for part in schema["anyOf"] if part != {"type": "integer"} or {"type": "number"} not in schema["anyOf"]
        ]
        return ", or ".join(_allowed(part) for part in parts)
    if "enum" in schema:
        return ", ".join(repr(choice) for choice in schema["enum"])
    kinds = {"integer": "a whole number", "number": "a number", "string": "text", "null": "null"}
    kinds |= {"boolean": "true or false", "object": "a mapping of names to values"}
    if schema["type"] == "array":
        return "a list of " + {"string": "names", "integer": "whole numbers"}.get(schema["items"]["type"], "numbers")
    words = kinds[schema["type"]]
    bounds = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    words += "".join(f" {word} {schema[key]:,}" for key, word in bounds.items() if key in schema)
    return words + (f" that matches {schema['pattern']}" if "pattern" in schema else "")
