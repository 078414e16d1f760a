"""The parameters of a run: params.yaml as frozen, validated sections.

Each parameter's name is unique over all sections. Commands and scheduled runs can therefore leave the section out, as
in `trueodds train epochs=3`.
"""

from __future__ import annotations

import ast
import copy
import difflib
import inspect
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trueodds.dialect import read_yaml
from trueodds.errors import ConfigError, nearest, unknown

OptionValue = bool | int | float | str | list[float]
"""Value of one option of a method. A list has one number for each class."""
CalibratorOption = bool | int | float | str | list[str]
"""Value of one option of a calibrator or of `select`."""

_NoneAsEmpty = BeforeValidator(lambda value: {} if value is None else value)
"""Reads null as an empty mapping.

`dvc exp run -S 'training.method_options={gamma: 2}'` can replace null by any mapping, but cannot add a key to `{}`.
"""


class _Section(BaseModel):
    # `descriptions` reads the texts under the parameters. Pydantic would read them at each import.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Data(_Section):
    """The data set, and how its rows are split."""

    dataset: str = Field("digits", min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """The data set: digits, cifar10, cifar100, tiny-imagenet-200, breast_cancer, wine, 20news-bydate, 20_newsgroups,
    sst-binary, sst-fine, or the name of your own data under `path`."""
    path: str = Field("datasets", min_length=1)
    """Location of your own data: an .npz, .csv or .parquet file, a folder of images or texts, or a directory that
    contains one of these with the name `dataset`."""
    label_column: str = Field("label", min_length=1)
    """Column of a .csv or .parquet table that holds the labels. All other columns are features, or one is `text`."""
    positive: Annotated[str, Field(min_length=1)] | None = None
    """Name of the positive class of a two-class data set, such as malignant; null: no class is marked as positive."""
    image_size: Annotated[int, Field(ge=4, le=512)] | None = None
    """Side in pixels to which the images of a folder are scaled and centre-cropped; null: all images already have one
    size."""
    embeddings: Annotated[str, Field(min_length=1)] | None = None
    """File of word vectors in GloVe's format for texts and trees, such as glove.6B.100d.txt; null: random vectors."""
    vocabulary_size: Annotated[int, Field(ge=3, le=1_000_000)] = 20_000
    """Number of words that the vocabulary of texts keeps, the most frequent first. Trees keep all their words."""
    max_tokens: Annotated[int, Field(ge=1, le=8192)] = 1000
    """Number of words of each text that the model reads; the rest is cut off."""
    truncation_side: Literal["right", "left"] = "right"
    """Side on which a longer text is cut off: right keeps its beginning, left its end. The focal paper's code uses
    left."""
    remove: list[Literal["headers", "footers", "quotes"]] = ["headers"]
    """Parts that are removed from 20 Newsgroups: headers, footers, quotes, as scikit-learn defines them. [headers] is
    the setting of the focal paper's code."""
    unreadable_share: float = Field(0.0, ge=0, lt=1)
    """Largest share of unreadable images in a folder. Up to this share they are left out and listed on the card; 0: any
    unreadable image is an error."""
    benchmark_val: Literal["test", "val_and_test"] = "test"
    """Use of the labelled val images of Tiny-ImageNet and of folders in ImageNet's layout: test, or val_and_test, which
    uses the same images for both splits, as the papers' public code does."""
    label_counts: Annotated[str, Field(min_length=1)] | None = None
    """Votes of human annotators per test row and class: a .npy file (rows x classes), or cifar10h; null: none."""
    train_size: Annotated[int, Field(ge=2)] | None = None
    """Number of training rows, drawn class-balanced; null: all rows that the other splits leave."""
    validation_size: Annotated[int, Field(ge=2)] | None = None
    """Number of validation rows, which fit the calibrator; null: 300 for digits, 5,000 for CIFAR, 10,000 for
    Tiny-ImageNet, 95 for breast_cancer, 30 for wine, a tenth of your own data, and a tenth of all rows with recipe
    gamma-net."""
    held_out_size: Annotated[int, Field(ge=2)] | None = None
    """Number of rows set aside for methods that learn from them separately: penalties with `when: interleaved` and
    parts that look ahead; null: as the recipe says, which is none for most."""
    test_fraction: float = Field(0.2, gt=0, lt=1)
    """Share of the rows held out for testing when your own data set has no test split."""
    split_seed: Annotated[int, Field(ge=0)] = 0
    """Random seed of the split into training, validation and test rows."""
    duplicates: Literal["keep", "leave_out"] = "keep"
    """Treatment of validation and test rows that are also training rows: keep only counts them, leave_out removes
    them."""
    near_duplicates: Annotated[int, Field(ge=0, le=16)] | None = None
    """Largest number of the 64 bits in which the perceptual hashes of two images may differ for them to count as near
    duplicates, such as 4. They are treated as `duplicates` says; null: no search for near duplicates."""
    group_column: Annotated[str, Field(min_length=1)] | None = None
    """Column, such as patient, that groups rows: rows with the same value go into the same split. For an .npz it names
    an array; for images in train/<class>/<group>/ it is `folder`; null: rows are drawn one by one."""
    groups: Annotated[str, Field(min_length=1)] | None = None
    """Column, such as country, of the groups for a temperature each (calibrator: select or group_temperature). It is no
    feature. For an .npz it names an array, for a folder a column of its table groups.csv, or `folder`, as in
    `group_column`. In the service, the tag of a request names the group; null: no groups."""


class Training(_Section):
    """Settings of training. null means: as the recipe says."""

    model: Annotated[str, Field(min_length=1)] | None = None
    """Path of your own ONNX model, used in place of training; null: a network is trained with the settings below."""
    model_options: Annotated[dict[str, str], _NoneAsEmpty] = Field(default_factory=dict)
    """Options of `model`, the same as those of `trueodds import`, such as {preprocess: imagenet, output: NAME}."""
    recipe: str = "auto"
    """Recipe that sets the defaults below: auto, or a name that `trueodds recipes` lists."""
    net: str | None = None
    """Network architecture: a name that `trueodds nets` lists."""
    width: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Width of the network: channels of the first stage, growth rate of a DenseNet, or units per hidden layer of mlp;
    null: as the net's name says."""
    depth: Annotated[int, Field(ge=1, le=64)] | None = None
    """Number of blocks per stage, or of hidden layers; null: as the net's name says."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Dropout rate of mlp, Wide ResNets and DenseNets; null: 0.1 for mlp, 0 for the others."""
    resize: Annotated[int, Field(ge=8, le=1024)] | None = None
    """Side in pixels to which torchvision's nets scale their images first, such as 224 for CIFAR; null: no scaling."""
    start: Annotated[str, Field(min_length=1)] | None = None
    """Initial weights: a .safetensors, .pt or .pth file, or torchvision:NAME, such as torchvision:resnet18; null:
    random weights."""
    freeze: str | None = None
    """Part of the network that is not trained: nothing, body (all but the head), or the name of a stage, such as
    stages.3, which also freezes all stages before it."""
    head_epochs: Annotated[int, Field(ge=0)] | None = None
    """Number of epochs at the start in which only the head is trained."""
    method: str = "ce"
    """Training method: a name that `trueodds methods` lists, or a short form."""
    method_options: Annotated[dict[str, OptionValue], _NoneAsEmpty] = Field(default_factory=dict)
    """Options of the method, such as {gamma: 2}."""
    epochs: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of passes over the training rows."""
    batch_size: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Number of rows per training step."""
    optimizer: Literal["sgd", "adam", "adamw", "adagrad"] | None = None
    """Optimizer: sgd, adam, adamw or adagrad."""
    learning_rate: Annotated[float, Field(gt=0, le=100)] | None = None
    """Highest learning rate of the schedule; null with another optimizer than the recipe's: 0.001 for adam and adamw,
    0.01 for adagrad, 0.1 for sgd."""
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Momentum of sgd."""
    nesterov: bool | None = None
    """Whether sgd uses Nesterov momentum."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] | None = None
    """Weight decay: added to the gradient, times the weight. adamw subtracts it from the weight, times the learning
    rate."""
    schedule: Literal["step", "cosine", "constant"] | None = None
    """Schedule of the learning rate: step (multiplied by `decay` at each milestone), cosine (down to 0), constant."""
    milestones: list[Annotated[float, Field(gt=0, lt=1)]] | None = None
    """Milestones of the step schedule as fractions of the run, such as [0.4, 0.6]."""
    decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Factor by which the step schedule multiplies the learning rate at each milestone."""
    warmup: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Fraction of the run over which the learning rate rises linearly from 0, such as 0.005; 0: no warmup."""
    selection: Literal["last", "val_error", "val_nll", "val_refinement"] | None = None
    """Epoch whose weights are kept: last, or the first epoch with the lowest validation error (val_error), NLL
    (val_nll), or NLL after temperature scaling (val_refinement)."""
    reduction: Literal["mean", "sum"] | None = None
    """Reduction of the loss over a batch: mean or sum."""
    clip: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Largest norm of a step's gradient; larger gradients are clipped; 0: no clipping."""
    padding: Annotated[int, Field(ge=0, le=64)] | None = None
    """Augmentation: largest random shift of an image in pixels; 0: none."""
    flip: bool | None = None
    """Augmentation: whether images are randomly flipped horizontally."""
    crop_scale: Annotated[float, Field(ge=0, le=1)] | None = None
    """Augmentation of larger images: smallest share of the area that a random crop covers, such as 0.08; the crop is
    scaled to the image's size; 0: no crops."""
    randaugment: Annotated[int, Field(ge=0, le=8)] | None = None
    """Augmentation of larger images: number of RandAugment operations per image, such as 2; 0: none."""
    held_out: Literal["apart", "official"] | None = None
    """Use of set-aside rows that the method does not learn from: apart (not used), or official (added to the training
    rows, as in the papers' public code)."""
    vectors_rate: Annotated[float, Field(ge=0, le=100)] | None = None
    """For trees: learning rate of the word vectors, by plain sgd without weight decay; 0: the vectors are fixed."""
    node_weight: Annotated[float, Field(ge=0, le=1000)] | None = None
    """For trees: weight of the loss of each node below the root, whose own weight is 1; 0: only roots count."""
    precision: Literal["float32", "bfloat16"] | None = None
    """Precision of the network's body in training steps. bfloat16 is faster on GPUs; head, loss and all logits stay
    float32."""
    compile: Literal["off", "features", "graphs"] | None = None
    """Compilation: off; features (the network's body by torch.compile, which takes a minute at the start); graphs (the
    same, captured as CUDA graphs)."""
    validate_every: Annotated[int, Field(ge=1)] | None = None
    """Number of epochs between two measurements on the validation rows, such as 5. The last epoch is always
    measured."""
    ema: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Decay of an exponential moving average of the weights over the steps, such as 0.999, which the run keeps; 0:
    none."""
    swa: Annotated[float, Field(ge=0, le=1)] | None = None
    """Stochastic weight averaging: share of the epochs, at the end of the run, whose weights are averaged, such as
    0.25; 0: none."""
    swa_rate: Annotated[float, Field(ge=0, le=100)] | None = None
    """Constant learning rate in the epochs that `swa` averages; 0: that of the schedule."""
    sam: Annotated[float, Field(ge=0, le=100)] | None = None
    """Sharpness-aware minimisation: radius rho of the step to the worst weights nearby, such as 0.05; each step takes
    two passes; 0: none."""
    snapshots: Annotated[int, Field(ge=1, le=100)] | None = None
    """Snapshot ensemble: number of cycles of a cosine schedule. The nets at their ends are pooled and exported as one
    model; 1: none."""
    members: Annotated[int, Field(ge=1, le=100)] | None = None
    """Deep ensemble: number of nets of other seeds that are trained one after another, pooled and exported as one
    model, such as 5; 1: a single net."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the initial weights, the order of the rows and the augmentation."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device for training: cpu, cuda, or auto, which takes CUDA if torch finds it."""
    threads: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Number of CPU threads in training; 0: torch's default."""
    curves: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    """Epochs for which `trueodds curves` draws details. If any are listed, the test rows are measured after every
    epoch."""
    epoch_metrics: list[Literal["adaptive_ece", "brier", "classwise_ece", "mce", "sweep_ece"]] = Field(
        default_factory=list
    )
    """Additional columns of epochs.csv, for the validation rows and, with `curves`, for the test rows."""


class Calibration(_Section):
    """The calibrator that is fitted on the validation logits after training."""

    calibrator: str = "temperature"
    """Calibrator: a name that `trueodds calibrators` lists, or select, which takes the one with the lowest
    cross-validated NLL."""
    calibrator_options: Annotated[dict[str, CalibratorOption], _NoneAsEmpty] = Field(default_factory=dict)
    """Options of the calibrator's fit, such as {objective: brier}; for select, such as {candidates: [temperature,
    vector], folds: 5}."""
    conformal: Literal["lac", "aps", "raps", "class"] | None = None
    """Method of conformal sets, which hold the true class with a stated probability: lac, aps, raps or class; null: no
    sets."""
    conformal_options: Annotated[dict[str, OptionValue], _NoneAsEmpty] = Field(default_factory=dict)
    """Options of `conformal`, such as {levels: [0.9, 0.95], confidence: 0.95, share: 0.5, seed: 0}. `share` of the
    validation rows gives the thresholds, and the calibrator is fitted on the others."""


class Evaluation(_Section):
    """Settings of the measurement on the test logits."""

    bins: Annotated[int, Field(ge=1, le=1000)] = 15
    """Number of equal-width confidence bins, a divisor of 3,000."""
    level: float = Field(0.95, ge=0.5, le=0.999)
    """Confidence level of the intervals."""
    compare: list[str] = Field(default_factory=list)
    """Additional calibrators that are fitted on the validation rows and measured on the test rows. Options follow the
    name, as in temperature objective=ece; [all]: every calibrator."""
    shift: Annotated[Literal["cifar-c"], Field(json_schema_extra={"enum": ["cifar-c"]})] | None = None
    """Distribution shift to measure: cifar-c corrupts the test images at five severities, as in CIFAR-10-C; null:
    none."""
    shift_options: Annotated[dict[str, int | list[int] | list[str]], _NoneAsEmpty] = Field(default_factory=dict)
    """Options of `shift`, such as {corruptions: [fog, snow], severities: [1, 3, 5], rows: 1000, seed: 0}. Defaults:
    the 15 common corruptions ([all]: all 19), severities 1 to 5, every test row, seed 0. `rows` are drawn
    class-balanced."""


class Params(_Section):
    """All of params.yaml."""

    data: Data = Data()
    training: Training = Training()
    calibration: Calibration = Calibration()
    evaluation: Evaluation = Evaluation()

    def leaves(self) -> dict[str, Any]:
        """Return every parameter by its short name: the flat form of the whole configuration."""
        return {name: value for section in self.model_dump().values() for name, value in section.items()}


SECTION_OF = {
    leaf: section
    for section, field in Params.model_fields.items()
    for leaf in field.annotation.model_fields  # type: ignore[union-attr]  # every field of Params is a _Section
}
"""Section of each parameter. tests/test_config.py checks that no parameter's name appears twice."""


@cache
def descriptions() -> Mapping[str, str]:
    """Return the meaning of each parameter: the text under it in this file."""
    classes = [node for node in ast.parse(Path(__file__).read_bytes()).body if isinstance(node, ast.ClassDef)]
    texts = {
        field.target.id: inspect.cleandoc(text.value.value)
        for section in classes
        for field, text in pairwise(section.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
    return MappingProxyType(texts)  # cached, so shared


def load(path: str | Path = "params.yaml", overrides: Mapping[str, Any] | None = None) -> Params:
    """Read and validate params.yaml.

    Args:
        path: The file.
        overrides: Values by parameter, or by option of one, such as `method_options.gamma`.

    Raises:
        ConfigError: The file cannot be read, or a key or value is not allowed. The message names the file, the key, the
            value, what is allowed and the nearest valid key.
    """
    path = Path(path)
    try:
        tree = copy.deepcopy(_tree_of(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist; run from the folder that holds params.yaml, or write it with trueodds init"
        ) from None
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
    """Parse YAML once per text. A study loads the same file for each of its hundreds of runs, at 15 ms each."""
    return read_yaml(text)


def parse(tree: Mapping[str, Any], source: str = "params") -> Params:
    """Validate a tree of sections.

    A section without keys (null in YAML) keeps its defaults.

    Args:
        tree: Section -> parameter -> value.
        source: Name of the file in messages.

    Raises:
        ConfigError: As `load` raises it.
    """
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
    """Return one error of pydantic as `key = value: allowed is ...`, with the nearest allowed value."""
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
    return f"{entry}: allowed is {_allowed_values(field)}.{hint}"


def _explain_unknown(section: str, leaf: str, entry: str) -> str:
    """Return the message for an unknown section or parameter."""
    name, allowed = (leaf, _keys(section)) if leaf else (section, list(Params.model_fields))
    if name in SECTION_OF:  # checked before similar spellings: data.batch_size is not a misspelt data.image_size
        hint = f" '{name}' belongs under '{SECTION_OF[name]}'."
    else:
        hint = nearest(name, allowed)
        elsewhere = difflib.get_close_matches(name, SECTION_OF, n=1, cutoff=0.75)
        if not hint and elsewhere:
            hint = f" Did you mean '{SECTION_OF[elsewhere[0]]}.{elsewhere[0]}'?"
    return f"unknown key {entry}; allowed here: {', '.join(allowed)}.{hint}"


def _section(name: str) -> type[_Section]:
    """Return the class of a section."""
    section: type[_Section] = Params.model_fields[name].annotation  # type: ignore[assignment]
    return section


def _keys(section: str) -> list[str]:
    """Return the names of a section's parameters."""
    return list(_section(section).model_fields)


def _allowed_values(schema: dict[str, Any]) -> str:
    """Return a field's JSON schema in words, such as `a whole number from 1 to 64, or null`."""
    if "anyOf" in schema:
        parts = [
            part for part in schema["anyOf"] if part != {"type": "integer"} or {"type": "number"} not in schema["anyOf"]
        ]
        return ", or ".join(_allowed_values(part) for part in parts)
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
