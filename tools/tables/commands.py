"""The sections of docs/reference/commands.md: every command with its arguments, read from its parser.

The help text itself is not copied, because argparse lays it out by Python version and width of the terminal.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterator, Mapping

from benchmarks.markdown import table
from pipeline.cli import COMMANDS as PIPELINE
from service.cli import COMMANDS as SERVICE
from trueodds.cli import COMMANDS as LIBRARY
from trueodds.cli import Command, Parser

PROG = "trueodds"
PACKAGES = {"The library": LIBRARY, "The pipeline": PIPELINE, "The service": SERVICE}


def sections() -> str:
    """Return a section for each package, with one for each command in it."""
    return "\n\n".join(f"## {title}\n\n{package(commands)}" for title, commands in PACKAGES.items())


def package(commands: Mapping[str, Command]) -> str:
    """Return the commands of a package."""
    return "\n\n".join(section(name, command) for name, command in commands.items())


def section(name: str, command: Command) -> str:
    """Return one command: its description, its arguments and its examples."""
    parser = parser_of(name, command)
    extra = f" It needs the extra `{command.extra}`." if command.extra else ""
    about = f"{command.summary[:1].upper()}{command.summary[1:]}.{extra}"
    return "\n\n".join([f"### {PROG} {name}", about, *contents(parser)])


def parser_of(name: str, command: Command) -> Parser:
    """Return the parser of a command."""
    parser = Parser(prog=PROG)
    commands = parser.add_subparsers(prog=PROG)
    importlib.import_module(command.module).add_parser(commands)
    choices: dict[str, Parser] = commands.choices
    return choices[name]


def contents(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the parts of a parser's help: description, arguments, commands within it, and what its help ends with."""
    if parser.description:
        yield prose(parser.description)
    within = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    listed = [action for action in parser._actions if action not in within and is_shown(action)]
    if listed:
        yield table(("argument", "meaning"), [(written(action), meaning(parser, action)) for action in listed])
    for action in within:
        for name, command in action.choices.items():
            yield f"#### {parser.prog} {name}"
            yield from contents(command)
    if parser.epilog:
        yield indented(parser.epilog)


def is_shown(action: argparse.Action) -> bool:
    """Return whether an argument belongs in the table; `--help` and hidden ones do not."""
    return action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)


def written(action: argparse.Action) -> str:
    """Return an argument as it is typed, such as `--level SHARE`."""
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices is not None else ""
    metavar = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
    value = metavar or choices or (action.dest.upper() if action.option_strings else action.dest)
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(f"`{option}`" if action.nargs == 0 else f"`{option} {value}`" for option in action.option_strings)


def meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the help of an argument, with its default where the help names it."""
    return escaped(" ".join(parser._get_formatter()._expand_help(action).split())) if action.help else ""


def prose(description: str) -> str:
    """Return a description in Markdown: paragraphs, and what is laid out by spaces as it stands."""
    paragraphs = re.split(r"\n\s*\n", description.strip())
    laid_out = re.compile(r"^ |\S {3,}\S", re.MULTILINE)
    return "\n\n".join(indented(part) if laid_out.search(part) else escaped(part) for part in paragraphs)


def indented(text: str) -> str:
    """Return a text as a block of code."""
    return "\n".join(f"    {line}".rstrip() for line in text.rstrip().splitlines())


def escaped(text: str) -> str:
    """Return a text in which no character is markup, apart from `code`; options are set as code."""
    text = re.sub(r"(?<![\w`-])(--[a-z][a-z0-9-]*)(?![^`]*`(?:[^`]*`[^`]*`)*[^`]*$)", r"`\1`", text)
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\*<\[]|_\b|\b_)", r"\\\1", part) for part in parts)
