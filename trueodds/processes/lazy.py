"""Imports that cost less: names of a package at their first use, and imports without the garbage collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module


def at_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package.

    No name may be that of a module in the package's folder: an import of that module would hide it.

    Args:
        package: Name of the package.
        homes: Module -> names that the package takes from it, with spaces between them. Modules of the package that are
            names themselves have the package as their home.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}

    def attribute(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = modules[name]
        value = import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return attribute


@contextmanager
def collector_pause() -> Iterator[None]:
    """Import without the garbage collector, in a sixth less time: it would find again and again that all is in use."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
