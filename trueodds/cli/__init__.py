"""Command lines: each package has a table of its commands, and each command has a module.

`pipeline.cli.COMMANDS`, `service.cli.COMMANDS` and `COMMANDS` here are such tables. pyproject.toml registers them in
the entry-point group `trueodds.commands`. A module is imported only if its command is called. It has
`add_parser(commands)`, which adds the parser of the command or of each command of a group, and `run(arguments)`, which
returns the exit status.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeAlias, cast

from trueodds.errors import MissingExtraError, UserError, nearest, unknown
from trueodds.processes import output
from trueodds.processes.lazy import spare_old_objects
from trueodds.processes.version import __version__

_NO_PERMISSION = "run this as a user who may write there, or change the permissions (chown, chmod)"
_CURES = {
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.EROFS: "run this where the folder is not mounted read-only",
    errno.ENOSPC: "free some space, then run this again",
    errno.EDQUOT: "free some of this user's quota, then run this again",
    errno.EFBIG: "the file system, or ulimit -f, takes no larger files; raise the limit, then run this again",
}

_OUTPUTS = ("out", "json", "html")
"""Options that name a file to write."""

Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"


class OutputError(UserError, ValueError):
    """Error for a file that a command would both read and write."""


class CommandModule(Protocol):
    """Module of a command."""

    def add_parser(self, commands: Subparsers) -> None:
        """Add the parser of the command, or of each command of a group."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command and return the exit status."""


@dataclass(frozen=True)
class Command:
    """Entry of a package's table: the command's module and its line in the list of commands."""

    module: str
    summary: str
    extra: str = ""
    """Optional dependencies that it needs, as pip names them: `train`, or `train,serve`."""


COMMANDS = {
    "alarm": Command("trueodds.cli.alarm", "tell from daily sums whether the calibration error is too large"),
    "audit": Command("trueodds.cli.audit", "find the group of answers whose confidence is furthest off"),
    "calibrate": Command("trueodds.cli.calibrate", "fit a calibrator to the logits of a model served elsewhere"),
    "compare": Command("trueodds.cli.compare", "compare models by their answers on the same rows"),
    "completion": Command("trueodds.cli.completion", "print a script for the completion of a shell", "completion"),
    "consume": Command("trueodds.cli.consume", "send answers and labels of Kafka topics to a running service", "kafka"),
    "import": Command("trueodds.cli.import_model", "make a bundle of an ONNX model of your own", "import"),
    "label": Command("trueodds.cli.label", "draw answers of a running service for people to label", "client"),
    "replay": Command("trueodds.cli.replay", "send a data set to a running service, with drift", "client"),
    "report": Command("trueodds.cli.report", "report on a table of answers with their labels"),
    "sample": Command("trueodds.cli.sample", "draw the answers that people should label next"),
    "sums": Command("trueodds.cli.sums", "make the calibration sums of a day of answers, for reports", "warehouse"),
    "threshold": Command("trueodds.cli.threshold", "find the confidence from which on answers may act alone"),
}
"""Commands of the library. They need neither the pipeline nor the service."""


class Parser(argparse.ArgumentParser):
    """An argparse parser that suggests the nearest option, with error messages of two lines.

    `intermix` allows positional arguments on both sides of an option.
    """

    def __init__(self, *, intermix: bool = False, **options: Any) -> None:
        super().__init__(**options | {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False})
        self._intermix = intermix

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments. If some are unknown, the process ends with status 2."""
        parse_known = self.parse_known_intermixed_args if self._intermix else self.parse_known_args
        arguments, rest = parse_known(words)
        if rest:
            names = [name for action in self._actions if action.dest != "help" for name in action.option_strings]
            near = nearest(rest[0].partition("=")[0], names)
            self.error(f"unrecognized arguments: {' '.join(rest)}.{near}")
        return arguments

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse an empty value, which a variable of a script leaves if it is not set: "" may mean everything.

        A setting of the service (`trueodds serve`) may be empty: that overrides its environment variable.
        """
        if "" in arg_strings and self.argument_default is not argparse.SUPPRESS:
            raise argparse.ArgumentError(action, "is empty; give a value, or leave it out")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n{self.prog} --help lists the options and commands\n")


def main(prog: str, commands: Mapping[str, Command], words: Sequence[str], *, default: str = "") -> int:
    """Run one command and return its exit status (see `status_of`).

    Args:
        prog: Name of the program.
        commands: Table of the commands.
        words: Command-line arguments.
        default: Command to run if the first argument is missing or an option.

    Raises:
        SystemExit: With status 2 if the arguments are invalid, and with 0 after a help text.
    """
    spare_old_objects()
    return status_of(lambda: _main(prog, commands, words, default))


def status_of(work: Callable[[], int]) -> int:
    """Run the work of a command and return the exit status.

    It is the command's own status, 1 after the message of an error, or 130 after Ctrl-C. It is 141, without a message,
    if nobody reads the output any more, as in `trueodds report answers.csv | head -1`.
    """
    try:
        return _status(work)
    except BrokenPipeError:
        if not output.is_unread():
            raise
        output.drop()
        return output.UNREAD


def _status(work: Callable[[], int]) -> int:
    try:
        try:
            return work()
        finally:
            output.flush()
    except (UserError, OSError) as error:
        if isinstance(error, BrokenPipeError) and output.is_unread():
            raise
        print(f"error: {error}{_cure(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print("; ".join(["stopped", *map(str, stop.args)]), file=sys.stderr)
        return 130


def _main(prog: str, commands: Mapping[str, Command], words: Sequence[str], default: str) -> int:
    first = words[0] if words else ""
    if first == "--version":
        print(f"{prog} {__version__}")
        return 0
    if default and (not first or first.startswith("-")):
        first, words = default, [default, *words]
    parser = Parser(prog=prog, usage=f"{prog} COMMAND ...", epilog=_list(prog, commands))
    parsers = parser.add_subparsers(prog=prog, metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    if first not in commands:
        if first and not first.startswith("-"):
            parser.error(str(unknown("command", first, commands)))
        parser.parse(words)
    return _run(commands[first], parsers, words)


def _cure(error: Exception) -> str:
    """Return what to do after an error of the operating system; "" for others, whose messages say it."""
    cure = _CURES.get(error.errno or 0, "") if isinstance(error, OSError) else ""
    return cure and f"; {cure}"


def _list(prog: str, commands: Mapping[str, Command]) -> str:
    width = max(map(len, commands), default=0)
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in commands.items()]
    hints = [f"{prog} COMMAND --help describes one.", f"{prog} --version prints the version."]
    return "\n".join(["commands:", *lines, "", *hints])


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Check that no file that the command writes is also one that it reads, as `--out answers.csv` may be.

    Raises:
        OutputError: It is.
    """
    lists = {name: value if isinstance(value, list) else [value] for name, value in vars(arguments).items()}
    inputs = [one for name, values in lists.items() if name not in _OUTPUTS for one in values]
    for name in _OUTPUTS:
        path = getattr(arguments, name, None)
        if isinstance(path, Path) and path.is_file() and any(_is_file(path, one) for one in inputs):
            raise OutputError(f"--{name} {path} is a file that this command reads; give another name")


def _is_file(path: Path, value: object) -> bool:
    """Return whether a value of an option names an existing file."""
    try:
        return isinstance(value, str | Path) and path.samefile(value)
    except (OSError, ValueError):  # no path, such as a reason with a NUL byte
        return False


def _run(command: Command, parsers: Subparsers, words: Sequence[str]) -> int:
    try:
        module = cast(CommandModule, importlib.import_module(command.module))
        module.add_parser(parsers)
        arguments = parsers.choices[words[0]].parse(words[1:])
        _check_outputs(arguments)
        return module.run(arguments)
    except ModuleNotFoundError as error:
        package, ours = (error.name or "").partition(".")[0], (command.module.partition(".")[0], "trueodds", "")
        if not command.extra or package in ours:
            raise
        raise MissingExtraError(words[0], package, command.extra) from None
