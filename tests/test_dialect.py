"""Values of YAML that its readers understand differently are refused; all others are what DVC reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ruamel.yaml import YAML

from pipeline import config
from pipeline.flows.workspace import write_params
from pipeline.parameters import parse_value
from pipeline.studies import format as studies
from pipeline.studies import names
from trueodds.dialect import read_yaml
from trueodds.errors import ConfigError
from trueodds.importing.errors import ModelFileError
from trueodds.importing.import_options import Preprocessing

DIFFER = [
    *("010", "-010", "09", "00", "0o10", "0b11", "yes", "No", "ON", "off", "1:30", "190:20:30", "1_000", "0x1_F"),
    *("1_0.5", "+.5", "-.5", "2020-01-01"),
]
AGREE = [
    *("10", "-3", "0", "0.10", ".5", "1.", "1e3", "1E3", "1e-3", "1.5e3", "0x1F", "true", "FALSE", "null", "~", ".inf"),
    *("focal", "y", "1.2.3", "a_1", "v010", "10:x", "2020-1"),
]


@pytest.mark.parametrize("value", DIFFER)
def test_what_two_readers_read_differently_is_refused_by_name(value: str) -> None:
    with pytest.raises(yaml.YAMLError, match=f"line 2: {value.replace('+', '.')} is .*'{value.replace('+', '.')}', in"):
        read_yaml(f"a: 1\nb: [{value}]")
    assert read_yaml(f"b: '{value}'") == {"b": value}
    with pytest.raises(yaml.YAMLError, match="is "):
        read_yaml(f"{value}: 1")


@pytest.mark.parametrize("value", AGREE)
def test_all_else_is_what_dvc_reads(value: str) -> None:
    theirs = YAML(typ="safe").load(f"a: {value}")
    assert repr(read_yaml(f"a: {value}")) == repr(theirs)


def test_a_number_that_python_does_not_convert_is_refused_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(f"training:\n  epochs: {'1' * 5000}\n")
    with pytest.raises(ConfigError, match=r"params\.yaml is not valid YAML: line 2: '1+\.\.\.1+' has 5,000 digits"):
        config.load(tmp_path / "params.yaml")


def test_every_door_refuses(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text("training:\n  epochs: 010\n")
    with pytest.raises(ConfigError, match=r"params\.yaml is not valid YAML: line 2: 010 is a number in base 8"):
        config.load(file)
    file.write_text("training:\n  epochs: 3\n  epochs: 4\n")
    with pytest.raises(ConfigError, match="the key epochs comes twice"):
        config.load(file)
    with pytest.raises(ConfigError, match="010 is a number in base 8"):
        parse_value("010", "epochs=010")
    (tmp_path / "study.yaml").write_text("seeds: [0o10]\n")
    with pytest.raises(studies.StudyError, match="0o10 is a number to one reader"):
        studies.read(str(tmp_path / "study.yaml"))
    with pytest.raises(ModelFileError, match="010 is a number in base 8"):
        Preprocessing.parse("{mean: 010}")


def test_a_text_that_would_be_read_differently_is_written_in_quotes(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text("training:\n  method: focal\n")
    write_params(file, {"method_options": {"mode": "off", "other": "010", "third": "plain"}})
    options = read_yaml(file.read_text())["training"]["method_options"]
    assert options == {"mode": "off", "other": "010", "third": "plain"} and "third: plain" in file.read_text()


def test_the_studies_that_are_installed_can_be_read() -> None:
    for name in names():
        studies.read(name)
