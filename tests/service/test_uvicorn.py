"""The parts of uvicorn that the service builds upon, some of them private: a newer one fails here, with words."""

from __future__ import annotations

import ast
import inspect
import textwrap
import tomllib
from importlib.metadata import version

import pytest
import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState
from uvicorn.supervisors import multiprocess

from service.cli import serving
from service.http import connections, lean, limits, server, transport
from tests.conftest import ROOT

CURE = (
    "Adapt {file}, run tests/service/test_http.py, test_connections.py and test_process.py, and then move the pin of"
    " uvicorn in pyproject.toml."
)
PARSER = {"on_chunk_header"}
"""Hooks that httptools calls and uvicorn has not."""


def used(node: ast.AST, owners: tuple[str, ...], context: type[ast.expr_context] = ast.expr_context) -> set[str]:
    """Return the names of the attributes that code takes from one of some expressions."""
    parts = (part for part in ast.walk(node) if isinstance(part, ast.Attribute) and isinstance(part.ctx, context))
    return {part.attr for part in parts if ast.unparse(part.value) in owners}


def tree(thing: type) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(thing)))


def provided(thing: type) -> set[str]:
    """Return the names that objects of a class have: its members, and what its methods and annotations set."""
    annotated = (one.__annotations__ for one in thing.__mro__ if "__annotations__" in one.__dict__)
    sources = (tree(one) for one in thing.__mro__ if one.__module__.partition(".")[0] != "builtins")
    names = set(dir(thing)).union(*annotated)
    return names.union(*(used(source, ("self",), ast.Store) for source in sources))


def parameters(method: object) -> list[str]:
    assert callable(method)
    return [name for name in inspect.signature(method).parameters if name != "self"]


def changes(ours: type, theirs: type) -> list[str]:
    """Return what a class of ours takes from its base of uvicorn's, and no longer finds there."""
    code, base = tree(ours), theirs.__name__
    own = set(vars(ours)) | set(vars(ours).get("__annotations__", ())) | used(code, ("self",), ast.Store)
    there = provided(theirs)
    missing = [f"{base}.{name} is gone" for name in used(code, ("self", "super()")) - own - there]
    missing += [f"{base}.{name} is gone" for name in used(code, ("super()",)) - there]
    for name, method in vars(ours).items():
        if not inspect.isfunction(method) or name.startswith("__"):
            continue
        if name not in there:
            if name not in used(code, ("self",)) | PARSER:
                missing.append(f"{base} has no {name}, so nobody calls ours")
        elif inspect.isfunction(original := getattr(theirs, name)) and parameters(original) != parameters(method):
            missing.append(f"{base}.{name} takes {parameters(original)}, ours {parameters(method)}")
    return sorted(set(missing))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (limits.LimitedHTTP, HttpToolsProtocol),
        (lean.LeanHTTP, HttpToolsProtocol),
        (transport.Flow, FlowControl),
        (connections.ConnectionsState, ServerState),
        (server.Config, uvicorn.Config),
        (server.Server, uvicorn.Server),
        (serving.Worker, multiprocess.Process.__mro__[1]),
        (serving.Workers, multiprocess.Multiprocess),
    ],
)
def test_uvicorn_has_what_the_service_builds_upon(ours: type, theirs: type) -> None:
    assert issubclass(ours, theirs)
    found = changes(ours, theirs)
    file = inspect.getsourcefile(ours)
    assert not found, f"uvicorn {version('uvicorn')}: {'; '.join(found)}. {CURE.format(file=file)}"


def test_a_request_in_work_has_what_its_limits_read_and_set() -> None:
    names = used(tree(limits.LimitedHTTP), ("self.cycle", "self._running", "cycle"))
    gone = sorted(names - provided(RequestResponseCycle))
    assert "response_complete" in names
    assert not gone, (
        f"uvicorn {version('uvicorn')}: RequestResponseCycle has no {gone}. {CURE.format(file=limits.__file__)}"
    )


def test_a_request_has_every_field_that_uvicorn_sets() -> None:
    """Its constructor is ours. `access_logger` is read only with an access log, which the service has switched off."""
    ours = set(vars(lean.LeanCycle)) | used(tree(lean.LeanCycle), ("self",), ast.Store)
    assert provided(RequestResponseCycle) - ours - set(dir(RequestResponseCycle)) == {"access_logger"}


def test_uvicorn_is_of_the_minor_release_that_was_tested() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (pin,) = (one for one in map(Requirement, extras["serve"]) if one.name == "uvicorn")
    here = version("uvicorn")
    assert here in pin.specifier, f"uvicorn {here} was never tested. {CURE.format(file=limits.__file__)}"
    major, minor, *_ = here.split(".")
    assert f"{major}.{int(minor) + 1}" not in pin.specifier, "the next minor release may change its private parts"


class Theirs:
    """A base as uvicorn might have it tomorrow."""

    def __init__(self) -> None:
        self.transport = None

    def on_header(self, name: bytes, value: bytes, index: int) -> None: ...


class Ours(Theirs):
    def on_header(self, name: bytes, value: bytes) -> None:  # type: ignore[override]
        self.cycle.stop()  # type: ignore[attr-defined]
        self._mine()

    def send_400_response(self, message: str) -> None:
        print(self.transport, message)

    def _mine(self) -> None: ...


def test_what_changed_is_said_in_words() -> None:
    assert changes(Ours, Theirs) == [
        "Theirs has no send_400_response, so nobody calls ours",
        "Theirs.cycle is gone",
        "Theirs.on_header takes ['name', 'value', 'index'], ours ['name', 'value']",
    ]
