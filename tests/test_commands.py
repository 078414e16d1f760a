"""The command lines: what they list, refuse and say where a package is missing."""

from __future__ import annotations

import errno
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import pipeline.__main__
import pipeline.cli
import service.__main__
import service.cli
from pipeline.stages import STAGES
from tests.conftest import ROOT, environment, run
from trueodds import cli

COMMANDS = pipeline.cli.COMMANDS | service.cli.COMMANDS | cli.COMMANDS
MAIN: dict[str, Callable[[Sequence[str]], int]] = {
    "pipeline": pipeline.__main__.main,
    "service": service.__main__.main,
    "trueodds": lambda words: cli.main("trueodds", cli.COMMANDS, words),
}


def ended(package: str, words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    """Status and both outputs of a command line that argparse ends."""
    with pytest.raises(SystemExit) as end:
        MAIN[package](words)
    return end.value.code, *capsys.readouterr()


def test_a_name_is_one_command_of_one_package() -> None:
    assert len(COMMANDS) == len(pipeline.cli.COMMANDS) + len(service.cli.COMMANDS) + len(cli.COMMANDS)
    assert set(STAGES) <= {*pipeline.cli.COMMANDS, *pipeline.cli.STAGE_COMMANDS}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {extra for command in COMMANDS.values() for extra in command.extra.split(",")} - {""}
    assert extras <= set(project["optional-dependencies"])


def test_the_list_of_commands_is_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main("trueodds", COMMANDS, ["--help"])
    lines = capsys.readouterr().out.partition("commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [tuple(line.split(maxsplit=1)) for line in lines] == [(n, c.summary) for n, c in COMMANDS.items()]
    assert max(map(len, lines)) <= 80


def test_what_is_to_be_typed_is_the_console_script() -> None:
    """It is in every environment; `python -m pipeline` needs the checkout's folder, which no image's user is in."""
    folders = ("trueodds", "pipeline", "service", "docs", "docker", "README.md", "params.yaml", "datasets/README.md")
    files = run(["git", "ls-files", "-co", "--exclude-standard", *folders], ROOT).stdout.splitlines()
    texts = {name: (ROOT / name).read_bytes() for name in files if (ROOT / name).is_file()}
    assert {name for name, text in texts.items() if re.search(rb"python -m (pipeline|service) [a-z]", text)} == set()


def test_without_a_command_the_service_serves(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = ended("service", ["--help"], capsys)
    assert status == 0 and out.startswith("usage: python -m service serve ")
    status, _, err = ended("service", ["nothing"], capsys)
    assert status == 2 and "unknown command 'nothing'; allowed: serve, key, store." in err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_describes_itself_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    package = COMMANDS[name].module.partition(".")[0]
    status, out, _ = ended(package, [name, "--help"], capsys)
    prog = "trueodds" if package == "trueodds" else f"python -m {package}"
    assert status == 0 and out.startswith(f"usage: {prog} {name} ")
    assert f"examples:\n  trueodds {name}" in out


@pytest.mark.parametrize(
    ("package", "words", "message"),
    [
        ("pipeline", [], "the following arguments are required: COMMAND"),
        ("pipeline", ["trian"], "Did you mean 'train'?"),
        ("service", ["kye"], "Did you mean 'key'?"),
        ("service", ["--prot", "0"], "unrecognized arguments: --prot 0. Did you mean '--port'?"),
        ("pipeline", ["export", "--in8"], "unrecognized arguments: --in8. Did you mean '--int8'?"),
        ("pipeline", ["export", "--fold", "--int8"], "argument --int8: not allowed with argument --fold"),
        ("pipeline", ["fetch", "--fold"], "unrecognized arguments: --fold."),
        ("pipeline", ["fetch", "--artifacts", "artifacts"], "unrecognized arguments: --artifacts"),
        ("pipeline", ["curves", "epochs=3"], "unrecognized arguments: epochs=3."),
        ("pipeline", ["versions", "--model", "folder"], "Did you mean '--models'?"),
        ("pipeline", ["publish", "--int8", "--bundle", "folder"], "not allowed with argument --int8"),
        ("pipeline", ["publish", "--role", "boss"], "invalid choice: 'boss' (choose from"),
        ("pipeline", ["default", "--rollback", "tiny"], "argument model: not allowed with argument --rollback"),
        ("pipeline", ["judge", "--candidates", "x"], "unrecognized arguments: --candidates x"),
        ("pipeline", ["recalibrate", "--promote", "evidence"], "invalid choice: 'evidence' (choose from"),
    ],
)
def test_what_no_command_knows_is_refused(
    package: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = ended(package, words, capsys)
    assert (status, out) == (2, "") and err.startswith("error: ") and message in err
    assert err.splitlines()[-1].endswith(" --help lists the options and commands")


@pytest.mark.parametrize(
    "words", [["report", "x.csv", "--positive", ""], ["audit", "x.csv", "--positive="], ["report", ""]]
)
def test_an_empty_value_is_refused_as_the_service_does(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A variable of a script that is not set leaves "", which must not mean all answers, or the folder here."""
    with pytest.raises(SystemExit):
        cli.main("trueodds", cli.COMMANDS, words)
    assert "is empty; give a value, or leave it out" in capsys.readouterr().err


def test_parameters_may_stand_on_both_sides_of_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["params", "epochs=7", "--params", str(ROOT / "params.yaml"), "method=focal"]
    assert MAIN["pipeline"](words) == 0
    assert {"epochs = 7", "method = 'focal'"} <= set(capsys.readouterr().out.splitlines())


def test_a_missing_package_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in ("service.cli.serving", "service.http.server"):  # another test may have imported them
        monkeypatch.delitem(sys.modules, name, raising=False)
        package, _, module = name.rpartition(".")
        monkeypatch.delattr(importlib.import_module(package), module, raising=False)
    assert MAIN["service"]([]) == 1
    assert "serve needs the package uvicorn, which is not installed here" in (err := capsys.readouterr().err)
    assert err.endswith("pip install 'trueodds[serve]'\n")


def test_the_list_of_calibrators_needs_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import pipeline.__main__ as it; sys.exit(it.main(['calibrators']))"
    assert "structured_vector" in run([sys.executable, "-c", code], ROOT).stdout


@pytest.mark.skipif(not Path("/sys").is_dir(), reason="a folder that nobody may write into is needed: /sys")
def test_what_the_system_forbids_comes_with_a_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("cat,dog,label\n" + "2,0,cat\n0,2,dog\n1,0,dog\n" * 10, encoding="utf-8")
    assert MAIN["trueodds"](["calibrate", str(rows), "--out", "/sys/calibration", "--candidates", "temperature"]) == 1
    assert re.search(
        r"'/sys/calibration'; run this (as a user who may write there|where the folder)", capsys.readouterr().err
    )


@pytest.fixture
def answers(tmp_path: Path) -> str:
    path = tmp_path / "answers.csv"
    path.write_text("cat,dog,label\n" + ".9,.1,cat\n.2,.8,dog\n.6,.4,dog\n" * 10, encoding="utf-8")
    return str(path)


def ended_unread(words: Sequence[str], *, errors_too: bool = False, unbuffered: str = "") -> tuple[int, str | None]:
    """Status and errors of a process whose output has lost its reader before the first line, as `head -0` leaves it."""
    reader, writer = os.pipe()
    os.close(reader)
    errors = writer if errors_too else subprocess.PIPE
    variables = environment() | {"PYTHONUNBUFFERED": unbuffered}
    try:
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, cwd=ROOT, env=variables, stdout=writer, stderr=errors, text=True, timeout=300)
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.skipif(os.name == "nt", reason="a pipe without a reader is another error there")
@pytest.mark.parametrize(
    "words",
    [["trueodds", "--help"], ["pipeline", "params"], ["service", "key"], ["pipeline.flows", "--help"]],
    ids=" ".join,
)
def test_a_command_ends_quietly_when_nobody_reads_on(words: list[str]) -> None:
    assert ended_unread(words) == (141, "")


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="a pipe without a reader is another error there")
def test_a_report_that_nobody_reads_on(answers: str) -> None:
    assert ended_unread(["trueodds", "report", answers]) == (141, "")
    assert ended_unread(["trueodds", "report", answers], unbuffered="1") == (141, "")
    assert ended_unread(["trueodds", "report", "nothing.csv"], errors_too=True)[0] == 141


def test_a_connection_that_breaks_is_an_error_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise BrokenPipeError(errno.EPIPE, "the service hung up")

    assert cli.status_of(work) == 1
    assert capsys.readouterr().err == f"error: [Errno {errno.EPIPE}] the service hung up\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device without space is needed: /dev/full")
def test_output_for_which_there_is_no_space(answers: str) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "trueodds", "report", answers]
        done = subprocess.run(command, cwd=ROOT, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and re.fullmatch(r"error: .*; free some space, then run this again\n", done.stderr)
