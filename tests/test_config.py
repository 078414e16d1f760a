"""params.yaml: every message names the key, the value, what is allowed and what is near."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dvc.exceptions import DvcException
from dvc.utils.hydra import apply_overrides
from pydantic._internal._docs_extraction import extract_docstrings_from_cls

from pipeline import config, parameters
from pipeline.config import SECTION_OF, Params
from tests.conftest import ROOT
from trueodds.errors import ConfigError, nearest, unknown

EVALUATION = "bins, level, compare, shift, shift_options"


def message_of(tree: Mapping[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        config.parse(tree, "params.yaml")
    return str(caught.value)


def written(folder: Path, text: str) -> Path:
    path = folder / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_leaf_names_are_unique() -> None:
    leaves = [leaf for section in Params.model_fields.values() for leaf in section.annotation.model_fields]  # type: ignore[union-attr]
    assert len(leaves) == len(set(leaves)) == len(SECTION_OF) == len(Params().leaves())
    assert not set(leaves) & set(Params.model_fields), "a leaf with a section's name could not be named alone"


def test_descriptions_are_what_pydantic_reads() -> None:
    described = dict(config.descriptions())
    assert list(described) == list(SECTION_OF)
    for field in Params.model_fields.values():
        section: Any = field.annotation
        for name, text in extract_docstrings_from_cls(section, use_inspect=True).items():
            assert described.pop(name) == text
    assert not described


def test_defaults_are_valid() -> None:
    assert config.parse(Params().model_dump()) == config.parse({}) == Params()


def test_sections_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Params().training.epochs = 3  # type: ignore[misc]


MESSAGES: list[tuple[Mapping[Any, Any], str]] = [
    ({"trainning": {}}, "unknown key trainning = {}; allowed here: data, training, calibration, evaluation."
     " Did you mean 'training'?"),
    ({"epochs": 3}, "unknown key epochs = 3; allowed here: data, training, calibration, evaluation."
     " 'epochs' belongs under 'training'."),
    ({"zzz": 3}, "unknown key zzz = 3; allowed here: data, training, calibration, evaluation."),
    ({1: 2}, "unknown key 1 = 1; allowed here: data, training, calibration, evaluation."),
    ({"calibration": {"calibrater": "x"}}, "unknown key calibration.calibrater = 'x'; allowed here: calibrator,"
     " calibrator_options, conformal, conformal_options. Did you mean 'calibrator'?"),
    ({"evaluation": {"epoch": 3}}, f"unknown key evaluation.epoch = 3; allowed here: {EVALUATION}."
     " Did you mean 'training.epochs'?"),
    ({"evaluation": {"batch_size": 3}}, f"unknown key evaluation.batch_size = 3; allowed here: {EVALUATION}."
     " 'batch_size' belongs under 'training'."),
    ({"evaluation": {"float": 3}}, f"unknown key evaluation.float = 3; allowed here: {EVALUATION}."),
    ({"evaluation": 3}, f"evaluation = 3: 'evaluation' is a section; its keys are {EVALUATION}"),
    ({"training": {"epochs": 0}}, "training.epochs = 0: allowed is a whole number from 1 to 100,000, or null."),
    ({"training": {"epochs": "3"}}, "training.epochs = '3': allowed is a whole number from 1 to 100,000, or null."),
    ({"training": {"epochs": 3.5}}, "training.epochs = 3.5: allowed is a whole number from 1 to 100,000, or null."),
    ({"training": {"epochs": True}}, "training.epochs = True: allowed is a whole number from 1 to 100,000, or null."),
    ({"training": {"seed": 2**31}},
     "training.seed = 2147483648: allowed is a whole number from 0 below 2,147,483,648."),
    ({"training": {"learning_rate": False}},
     "training.learning_rate = False: allowed is a number above 0 to 100, or null."),
    ({"training": {"learning_rate": float("nan")}},
     "training.learning_rate = nan: allowed is a number above 0 to 100, or null."),
    ({"training": {"device": "cud"}},
     "training.device = 'cud': allowed is 'auto', 'cpu', 'cuda'. Did you mean 'cuda'?"),
    ({"training": {"optimizer": "adm"}},
     "training.optimizer = 'adm': allowed is 'sgd', 'adam', 'adamw', 'adagrad', or null. Did you mean 'adam'?"),
    ({"training": {"milestones": 0.4}}, "training.milestones = 0.4: allowed is a list of numbers, or null."),
    ({"training": {"milestones": [0.4, 60]}}, "training.milestones.1 = 60: allowed is a number above 0 below 1."),
    ({"data": {"held_out_size": 1}}, "data.held_out_size = 1: allowed is a whole number from 2, or null."),
    ({"training": {"curves": 3}}, "training.curves = 3: allowed is a list of whole numbers."),
    ({"training": {"curves": [1, 0]}}, "training.curves.1 = 0: allowed is a whole number from 1."),
    ({"training": {"method": None}}, "training.method = None: allowed is text."),
    ({"training": {"method_options": 3}}, "training.method_options = 3: allowed is a mapping of names to values."),
    ({"training": {"method_options": {"interval": {"a": 1}}}},
     "training.method_options.interval = {'a': 1}: allowed is true or false, or a number, or text, or a list of"
     " numbers."),
    ({"evaluation": {"compare": "vector"}}, "evaluation.compare = 'vector': allowed is a list of names."),
    ({"evaluation": {"compare": ["vector", 3]}}, "evaluation.compare.1 = 3: allowed is text."),
    ({"calibration": {"calibrator_options": {"bins": None}}},
     "calibration.calibrator_options.bins = None: allowed is true or false, or a number, or text, or a list of names."),
    ({"data": {"dataset": "../etc"}},
     "data.dataset = '../etc': allowed is text that matches ^[A-Za-z0-9][A-Za-z0-9._-]*$."),
    ({"evaluation": {"level": True}}, "evaluation.level = True: allowed is a number from 0.5 to 0.999."),
    ({"evaluation": {"bins": 0}}, "evaluation.bins = 0: allowed is a whole number from 1 to 1,000."),
    ({"evaluation": {"bins": 16}}, "evaluation.bins = 16: allowed are the divisors of 3000"
     " (10, 15, 20, 25, 30, 50, 60, 75, 100, ...), so that bins are unions of cells"),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "message"), MESSAGES, ids=[str(tree) for tree, _ in MESSAGES])
def test_messages(tree: Mapping[str, Any], message: str) -> None:
    assert message_of(tree) == f"params.yaml: {message}"


def test_every_error_has_its_line() -> None:
    lines = message_of({"training": {"epochs": 0, "sed": 1}, "data": {"path": 3}}).splitlines()
    assert len(lines) == 3
    assert all(line.startswith("params.yaml: ") for line in lines)


@pytest.mark.parametrize("leaf", SECTION_OF)
def test_a_wrong_value_of_any_leaf_is_explained(leaf: str) -> None:
    key, of_a_list = re.escape(f"{SECTION_OF[leaf]}.{leaf}"), re.escape(".0 = None")
    with pytest.raises(ConfigError, match=rf"^p: {key}( = \[None\]|{of_a_list}): allowed is "):
        config.parse({SECTION_OF[leaf]: {leaf: [None]}}, "p")


@pytest.mark.parametrize("bins", [1, 10, 15, 20, 25, 50, 100, 200, 500, 1000])
def test_divisors_are_bins(bins: int) -> None:
    assert config.parse({"evaluation": {"bins": bins}}).evaluation.bins == bins


def test_whole_numbers_are_numbers() -> None:
    rate = config.parse({"training": {"learning_rate": 1}}).training.learning_rate
    assert (rate, type(rate)) == (1.0, float)


def test_method_options_keep_their_types() -> None:
    options = {"gamma": 2, "rate": 0.5, "gra": True, "variant": "official"}
    values = config.parse({"training": {"method_options": options}}).training.method_options
    assert {k: (v, type(v)) for k, v in values.items()} == {k: (v, type(v)) for k, v in options.items()}


def test_lists_of_calibrators() -> None:
    tree = {"calibration": {"calibrator": "select", "calibrator_options": {"candidates": ["vector"], "folds": 3}},
            "evaluation": {"compare": ["all"]}}  # fmt: skip
    params = config.parse(tree)
    assert params.calibration.calibrator_options == {"candidates": ["vector"], "folds": 3}
    assert params.evaluation.compare == ["all"]


def test_load_and_override(tmp_path: Path) -> None:
    path = written(tmp_path, "training:\n  epochs: 3\n  weight_decay: 5e-4\nevaluation:\n")
    params = config.load(path, {"epochs": 7, "bins": 10, "dataset": "cifar10"})
    assert (params.training.epochs, params.evaluation.bins, params.data.dataset) == (7, 10, "cifar10")
    assert params.training.weight_decay == 5e-4  # text for PyYAML, a number for DVC
    assert params.evaluation.level == 0.95  # a section without keys keeps its defaults


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert config.load(written(tmp_path, "# nothing\n")) == Params()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: [1\n", "is not valid YAML: while parsing"),
        ("a\tb: : c", "is not valid YAML"),
        ("- 1\n", r"must hold sections \(data, training, calibration, evaluation\), not list"),
        ("[]", "must hold sections .* not list"),
        ("text", "must hold sections .* not str"),
        ("training:\n  epochs: 0\n", "params.yaml: training.epochs = 0: allowed is"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        config.load(written(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path / "params.yaml"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not exist; run from the folder that holds params.yaml, or write"):
        config.load(tmp_path / "params.yaml")
    with pytest.raises(ConfigError, match=r"cannot be read: .*directory"):
        config.load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"data:\n  path: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"cannot be read: .*utf-8"):
        config.load(tmp_path / "latin.yaml")


def test_unknown_override(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown parameter 'epoch'; allowed: dataset, .*Did you mean 'epochs'"):
        config.load(written(tmp_path, ""), {"epoch": 1})


def test_override_of_a_broken_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="training = 3: 'training' is a section"):
        config.load(written(tmp_path, "training: 3"), {"epochs": 1})


def test_words_from_the_command_line() -> None:
    words = ["epochs=3", "learning_rate=1e-3", "method=focal+sb_ece", "net=", "method_options={gamma: 2}", "path=a=b"]
    assert parameters.parse_overrides(words) == {
        "epochs": 3,
        "learning_rate": 0.001,
        "method": "focal+sb_ece",
        "net": None,
        "method_options": {"gamma": 2},
        "path": "a=b",
    }
    assert parameters.parse_overrides([]) == {}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("epochs", "'epochs' is not of the form name=value, such as epochs=3"),
        ("epoch=3", "unknown parameter 'epoch'; .* Did you mean 'epochs'?"),
        ("training.epoch=3", "unknown parameter 'training.epoch'; .* Did you mean 'training.epochs'?"),
        ("data.epochs=3", "unknown parameter 'data.epochs'; its name is training.epochs, or epochs for short"),
        ("training.epochs.gamma=3", "unknown parameter 'training.epochs.gamma'; epochs takes a value: epochs=V"),
        ("training.method_options.=3", "unknown parameter 'training.method_options.'; method_options takes a value"),
        ("training=3", "unknown parameter 'training'"),
        ("epochs=[1", r"the value of 'epochs=\[1' is not valid YAML"),
    ],
)
def test_words_that_are_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parameters.parse_overrides([word])


def test_names_as_dvc_has_them(tmp_path: Path) -> None:
    words = ["training.epochs=3", "training.method_options.gamma=2", "+training.method_options.mmce.beta=1e-2"]
    overrides = parameters.parse_overrides(words)
    assert overrides == {"epochs": 3, "method_options.gamma": 2, "method_options.mmce.beta": 0.01}
    training = config.load(written(tmp_path, "training:\n  method_options: {gamma: 1, alpha: 3}\n"), overrides).training
    assert training.epochs == 3 and training.method_options == {"gamma": 2, "alpha": 3, "mmce.beta": 0.01}
    assert config.load(written(tmp_path, ""), {"method_options.gamma": 2}).training.method_options == {"gamma": 2}


def test_options_are_set_as_dvc_users_do(tmp_path: Path) -> None:
    """`dvc exp run -S`: DVC puts a mapping in the place of null, and says how a single new name is written."""
    params = shutil.copy(ROOT / "params.yaml", tmp_path)
    for leaf in ("training.method_options", "calibration.calibrator_options"):
        apply_overrides(params, [f"{leaf}={{gamma: 2}}"])
    loaded = config.load(params)
    assert loaded.training.method_options == loaded.calibration.calibrator_options == {"gamma": 2}
    apply_overrides(params, ["+training.method_options.alpha=3"])
    assert config.load(params).training.method_options == {"gamma": 2, "alpha": 3}
    with pytest.raises(DvcException) as caught:
        apply_overrides(params, ["training.method_options.epsilon=3"])
    assert "To append to your config use +training.method_options.epsilon=3" in str(caught.value.__cause__)


def test_nearest() -> None:
    assert nearest("temprature", ["identity", "temperature"]) == " Did you mean 'temperature'?"
    assert nearest("zzz", ["identity"]) == ""
    assert str(unknown("net", "x", [])) == "unknown net 'x'; allowed: none."
