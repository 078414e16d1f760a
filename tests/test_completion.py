"""`trueodds completion`: what a shell offers. The script starts no Python."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cli import COMMANDS as PIPELINE
from service.cli import COMMANDS as SERVICE
from tests.conftest import ROOT
from trueodds import cli
from trueodds.cli import COMMANDS as LIBRARY
from trueodds.cli import Command, completion

COMMANDS = LIBRARY | PIPELINE | SERVICE


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The script of each shell, as the installed program prints it: from one tree, whose making takes seconds."""
    folder = tmp_path_factory.mktemp("completion")
    root, incomplete = completion.tree(COMMANDS)
    assert incomplete == []
    for shell in completion.SHELLS:
        (folder / shell).write_text(completion.script(root, shell))
    return {shell: folder / shell for shell in completion.SHELLS}


def offered(script: Path, folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word, with a PATH on which there is no Python to start."""
    code = (
        f"source {script}; spec=$(complete -p trueodds); [[ $spec =~ -F\\ ([^ ]+) ]];"
        ' COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE};'
        ' "${BASH_REMATCH[1]}" trueodds "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}";'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    bash = shutil.which("bash")
    assert bash is not None
    command = [bash, "--norc", "-c", code, "bash", "trueodds", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env={"PATH": "/nonexistent"})
    assert done.stderr == ""
    return sorted(filter(None, done.stdout.split("\n")))


def test_bash_offers_commands_options_choices_and_files(scripts: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    (tmp_path / "more").mkdir()

    def of(*words: str) -> list[str]:
        return offered(scripts["bash"], tmp_path, *words)

    assert of("") == sorted(COMMANDS) and of("re") == sorted(name for name in COMMANDS if name.startswith("re"))
    assert of("--v") == ["--version"]
    assert {"--labelled", "--classes", "--help"} < {*of("import", "--")}
    assert of("import", "m") == ["model.onnx", "more"] and of("import", "model.onnx", "--input", "") == [
        "image",
        "text",
        "vector",
    ]
    assert of("import", "--publish", "m") == ["more"] and of("import", "--test", "m") == ["model.onnx", "more"]
    assert of("completion", "") == ["bash", "fish", "zsh"] and of("report", "--binning", "w") == ["width"]
    assert of("store", "") == ["mature", "settle", "upgrade"]
    assert {"--store", "--dry-run"} < {*of("store", "settle", "--")}
    assert {"--admin-key-hash", "--port"} < {*of("serve", "--")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_in_every_script(name: str, scripts: dict[str, Path]) -> None:
    parser = completion.tree({name: COMMANDS[name]})[0]
    (group,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    shown = {
        option
        for action in group.choices[name]._actions
        for option in action.option_strings
        if action.help != argparse.SUPPRESS and option.startswith("--")
    }
    assert "--help" in shown
    for shell, script in scripts.items():
        text = script.read_text()
        missing = {option for option in shown if (option if shell != "fish" else f"-l {option[2:]}") not in text}
        assert name in text and missing == set(), shell


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_read_their_script(shell: str, scripts: dict[str, Path]) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed here")
    if shell == "fish":
        code = f"source {scripts[shell]}; complete -C 'trueodds import --inp'"
        done = subprocess.run([program, "-N", "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("--input")
    else:
        subprocess.run([program, "-n", str(scripts[shell])], capture_output=True, text=True, check=True)


def test_commands_whose_packages_are_missing_stand_there_without_options(capsys: pytest.CaptureFixture[str]) -> None:
    missing = {"own": Command("tests.no_such_module", "a command", "train")}
    root, incomplete = completion.tree({"compare": LIBRARY["compare"], **missing})
    assert incomplete == ["own"] and "own" in completion.script(root, "bash")
    with pytest.raises(ModuleNotFoundError):
        completion.tree({"own": Command("tests.no_such_module", "a command")})


def test_without_shtab_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    monkeypatch.setattr("trueodds.cli.completion.registered_commands", lambda: ({"compare": LIBRARY["compare"]}, []))
    assert cli.main("trueodds", LIBRARY, ["completion", "bash"]) == 1
    assert "needs the package shtab" in (error := capsys.readouterr().err) and "trueodds[completion]" in error


def test_the_program_prints_it_without_torch() -> None:
    code = (
        "import sys; sys.argv[1:] = ['completion', 'fish']; from trueodds.__main__ import main; status = main();"
        " print('torch' in sys.modules, file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == "False\n"
    assert "complete -c trueodds" in done.stdout and "admin-key-hash" in done.stdout
