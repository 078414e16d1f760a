"""Print a script with which a shell completes commands, options, choices and files.

The script is static: completing starts no Python. Print it again after an update or after another extra is installed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trueodds.cli import Command, Parser, Subparsers
from trueodds.cli.registered import registered_commands
from trueodds.errors import MissingExtraError
from trueodds.processes.version import __version__

SHELLS = ("bash", "zsh", "fish")
PROG = "trueodds"
FOLDERS = {"FOLDER", "DIR", "MODELS", "BUNDLE", "CACHE"}
"""Metavars of options that take a folder."""
FILES = {"FILE", "STORE", "ROWS"}
"""Metavars of options that take a file; an argument of type Path takes one too."""
EPILOG = """examples:
  trueodds completion bash > ~/.local/share/bash-completion/completions/trueodds
  trueodds completion zsh > ~/.zfunc/_trueodds
  trueodds completion fish > ~/.config/fish/completions/trueodds.fish

bash needs the package bash-completion to load the file. Without it, load the file in ~/.bashrc: source FILE
zsh needs these lines in ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit && compinit"""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("completion", description=__doc__, epilog=EPILOG)
    parser.add_argument("shell", choices=SHELLS, help="shell that will load the script")


def run(arguments: argparse.Namespace) -> int:
    """Print the script. A message names the commands whose options are missing because their extra is not installed."""
    commands, _ = registered_commands()
    root, incomplete = tree(commands)
    print(script(root, arguments.shell))
    if incomplete:
        extras = sorted({commands[name].extra for name in incomplete})
        cure = f"pip install 'trueodds[{','.join(extras)}]', then print the script again"
        print(f"without options, because packages are missing: {', '.join(incomplete)}; {cure}", file=sys.stderr)
    return 0


def script(root: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell.

    Raises:
        MissingExtraError: shtab is not installed.
    """
    try:
        import shtab
    except ModuleNotFoundError:
        raise MissingExtraError("trueodds completion", "shtab", "completion") from None
    for parser in _parsers(root):
        _mark_files(parser, shtab.FILE, shtab.DIRECTORY)
    text: str = shtab.complete(root, shell)
    return text


def tree(commands: Mapping[str, Command]) -> tuple[Parser, list[str]]:
    """Build one parser with all commands. Return it with the names of commands whose packages are not installed."""
    root = Parser(prog=PROG)
    root.add_argument("--version", action="version", version=__version__, help="print the version")
    parsers: Subparsers = root.add_subparsers(prog=PROG)
    incomplete: list[str] = []
    for name, command in commands.items():
        parser, is_complete = _parser_of(name, command)
        if not is_complete:
            incomplete.append(name)
        parsers.choices[name] = parser
    for each in _parsers(root):
        _list_commands(each, commands if each is root else {})
    return root, incomplete


def _parser_of(name: str, command: Command) -> tuple[Parser, bool]:
    """Return a command's parser, and whether it has its options. A module may add the parsers of several commands."""
    parsers: Subparsers = Parser(prog=PROG).add_subparsers(prog=PROG)
    try:
        importlib.import_module(command.module).add_parser(parsers)
    except ModuleNotFoundError:
        if not command.extra:
            raise
        return Parser(prog=f"{PROG} {name}"), False
    return parsers.choices[name], True


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of its commands, at any depth."""
    yield parser
    for group in _groups(parser):
        for inner in group.choices.values():
            yield from _parsers(inner)


def _groups(parser: argparse.ArgumentParser) -> list[Any]:
    """Return the actions of a parser that hold commands."""
    return [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]


def _list_commands(parser: argparse.ArgumentParser, commands: Mapping[str, Command]) -> None:
    """List the commands of a parser in its help. shtab takes an unlisted command for a hidden one."""
    for group in _groups(parser):
        listed = {action.dest for action in group._choices_actions}
        for name, inner in group.choices.items():
            if name not in listed:
                first = next(iter((inner.description or "").splitlines()), "")
                summary = commands[name].summary if name in commands else first.rstrip(".")
                group._choices_actions.append(group._ChoicesPseudoAction(name, (), summary.replace("%", "%%")))


def _mark_files(parser: argparse.ArgumentParser, file: object, folder: object) -> None:
    """Set the attribute `complete` of arguments that take files or folders, which shtab reads."""
    for action in parser._actions:
        if action.choices is None and action.nargs != 0:
            kind = folder if action.metavar in FOLDERS else file if _takes_file(action) else None
            if kind is not None:
                action.complete = kind  # type: ignore[attr-defined]


def _takes_file(action: argparse.Action) -> bool:
    return action.type is Path or action.metavar in FILES
