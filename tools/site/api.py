"""The pages of the API reference: which public object stands on which page. Sphinx fills them from the docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import get_args

from sphinx.pycode import ModuleAnalyzer

from tools import PACKAGES

FOLDER = "reference/api"
"""Folder of the pages within the site."""
WHOLE = ("trueodds", "trueodds.metrics", "trueodds.calibrators", "trueodds.client", "trueodds.bundle")
"""Packages of which every public name stands on a page."""


def public_names(module: ModuleType) -> list[str]:
    """List what a module exports: `__all__` without modules, or the public functions and classes that it defines."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
    own = {name: value for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
    return [name for name, value in own.items() if not name.startswith("_") and callable(value)]


def _results_of(function: Callable[..., object]) -> tuple[type, ...]:
    """Return the classes that a function returns, by its annotation."""
    result = eval(str(inspect.signature(function).return_annotation), vars(inspect.getmodule(function)))
    return get_args(result) or (result,)


@dataclass(frozen=True)
class Section:
    """Names of one module that stand together on a page."""

    module: str
    homes: tuple[str, ...] = ()
    """Modules that define the names, where not every public name of `module` is meant."""
    names: tuple[str, ...] = ()
    """The names, where `module` exports others too."""
    returned_by: tuple[str, ...] = ()
    """Functions of `module` whose results are described instead."""

    def entries(self) -> list[tuple[str, str]]:
        """List module and name of each object."""
        module = importlib.import_module(self.module)
        if self.returned_by:
            results = [one for name in self.returned_by for one in _results_of(getattr(module, name))]
            return [(result.__module__, result.__name__) for result in results]
        names = self.names or public_names(module)
        return [(self.module, name) for name in names if not self.homes or self._is_meant(home(self.module, name))]

    def _is_meant(self, module: str) -> bool:
        """Return whether a module is one of `homes` or in one of them."""
        return f"{module}.".startswith(tuple(f"{own}." for own in self.homes))


@dataclass(frozen=True)
class Page:
    """A page of the API reference."""

    file: str
    title: str
    about: str
    sections: tuple[Section, ...]


_METRICS = "trueodds.metrics"
LIBRARY = (
    Page(
        "trueodds",
        "trueodds",
        "The functions that most programs need. `import trueodds` is cheap: each name is imported at its first use.",
        (
            Section(
                "trueodds",
                names=(
                    "report",
                    "fit",
                    "load",
                    "logits_of",
                    "threshold",
                    "table_sums",
                    "compare",
                    "Calibrated",
                ),
            ),
            Section("trueodds", returned_by=("report", "compare")),
            Section("trueodds.reports.warehouse.history", names=("history_sums",)),
            Section("trueodds.reports.display.report_files", names=("DisplayedReport",)),
        ),
    ),
    Page(
        "calibrators",
        "trueodds.calibrators",
        "Post-hoc calibrators. `fit` returns a fitted calibrator, which maps logits to probabilities.",
        (Section("trueodds.calibrators"),),
    ),
    Page(
        "conformal",
        "trueodds.calibrators.conformal",
        "Sets of classes that hold the true one with a stated probability.",
        (Section("trueodds.calibrators.conformal"),),
    ),
    Page(
        "calibration-errors",
        "Calibration errors",
        "Estimates of the calibration error, as functions in `trueodds.metrics`. Each takes sums, or probabilities"
        " and labels.",
        (
            Section(
                _METRICS,
                (
                    "trueodds.metrics.binned",
                    "trueodds.metrics.classwise",
                    "trueodds.metrics.ranked",
                    "trueodds.metrics.smooth",
                ),
            ),
        ),
    ),
    Page(
        "scores",
        "Scores",
        "Proper scores, accuracy and confidence, as functions in `trueodds.metrics`.",
        (
            Section(
                _METRICS,
                (
                    "trueodds.metrics.scores",
                    "trueodds.metrics.decomposition",
                    "trueodds.metrics.ranked_probability",
                    "trueodds.metrics.standard_set",
                ),
            ),
        ),
    ),
    Page(
        "intervals",
        "Intervals and noise floors",
        "Confidence intervals, confidence sequences and noise floors, as functions in `trueodds.metrics`.",
        (Section(_METRICS, ("trueodds.metrics.intervals",)),),
    ),
    Page(
        "tests",
        "Significance tests",
        "Tests of calibration, of differences and of drift, as functions in `trueodds.metrics`.",
        (Section(_METRICS, ("trueodds.metrics.significance",)),),
    ),
    Page(
        "alarms",
        "Alarms",
        "Sequential tests that stay valid when they are read after every label, in `trueodds.metrics`.",
        (Section(_METRICS, ("trueodds.metrics.alarms", "trueodds.processes.choices")),),
    ),
    Page(
        "decisions",
        "Decisions",
        "Costs of decisions and thresholds for acting, as functions in `trueodds.metrics`.",
        (Section(_METRICS, ("trueodds.metrics.decisions",)),),
    ),
    Page(
        "labelling",
        "Labelling bias and human labels",
        "Checks of selected, delayed and disputed labels, as functions in `trueodds.metrics`.",
        (Section(_METRICS, ("trueodds.metrics.labelling", "trueodds.metrics.human_labels")),),
    ),
    Page(
        "sums",
        "Calibration sums",
        "The additive statistics from which every metric of the top class is computed.",
        (Section(_METRICS, ("trueodds.sums",)),),
    ),
    Page(
        "client",
        "trueodds.client",
        "The client of a running service. It needs the extra `client`.",
        (Section("trueodds.client"), Section("trueodds.reports.display.live", names=("LiveReport",))),
    ),
    Page(
        "bundle",
        "trueodds.bundle",
        "Models with their calibrators, and the folder or bucket in which they are published.",
        (Section("trueodds.bundle"),),
    ),
    Page(
        "errors",
        "Errors",
        "Errors that a user can mend. Each message names the wrong value, the allowed values and the cure.",
        (
            Section("trueodds", names=("UserError",)),
            Section("trueodds.errors", names=("ConfigError", "MissingExtraError")),
        ),
    ),
)
EXTENDING = (
    Page(
        "inputs",
        "Kinds of input",
        "The base class of a kind of input, and the three kinds that exist.",
        (Section("trueodds.inputs"),),
    ),
    Page(
        "methods",
        "Training methods",
        "Losses, penalties and label changes, and how a method is built from them.",
        (
            Section("pipeline.methods"),
            Section("pipeline.methods.method", names=("Method", "Moment")),
            Section("pipeline.methods.losses"),
            Section("pipeline.methods.penalties"),
            Section("pipeline.methods.targets"),
        ),
    ),
    Page(
        "nets",
        "Networks",
        "The networks by name, and the base classes of a network of your own.",
        (Section("pipeline.nets"), Section("pipeline.nets.net", names=("Net",))),
    ),
    Page(
        "data",
        "Data sets",
        "The form of a data set, and how one is loaded and split.",
        (Section("pipeline.data"),),
    ),
    Page(
        "config",
        "Parameters",
        "`params.yaml` as validated sections.",
        (Section("pipeline.config"),),
    ),
    Page(
        "settings",
        "Service settings",
        "The settings of the service, from environment variables and options.",
        (Section("service.settings", names=("Settings",)),),
    ),
)
PAGES = LIBRARY + EXTENDING


def home(module: str, name: str) -> str:
    """Return the module that defines a public name of another module."""
    value = getattr(importlib.import_module(module), name)
    defined = getattr(value, "__module__", None) if callable(value) else None
    if isinstance(defined, str) and defined.partition(".")[0] in PACKAGES:
        return defined
    for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            return home(node.module, name)
    return module


def constant(module: str, name: str) -> list[str]:
    """Return the lines that describe a constant, with the docstring under its definition."""
    described = ModuleAnalyzer.for_module(home(module, name)).find_attr_docs()
    text = described.get(("", name), [])
    value = getattr(importlib.import_module(module), name)
    shown = [f"   :value: {value!r}"] if isinstance(value, str | int | float) else []
    return [f".. py:data:: {module}.{name}", *shown, "", *(f"   {line}" for line in text), ""]


def directive(module: str, name: str) -> list[str]:
    """Return the lines that have Sphinx document one name."""
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value):
        return [f".. autoclass:: {module}.{name}", ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {module}.{name}", ""]
    return constant(module, name)


def is_class(entry: tuple[str, str]) -> bool:
    """Return whether a module's name is a class."""
    module, name = entry
    return inspect.isclass(getattr(importlib.import_module(module), name))


def documented() -> Iterator[tuple[str, str]]:
    """Yield module and name of each object that has an entry."""
    for page in PAGES:
        for section in page.sections:
            yield from section.entries()


def underlined(title: str, line: str = "=") -> list[str]:
    """Return a heading in reStructuredText."""
    return [title, line * len(title), ""]


def text_of(page: Page) -> str:
    """Return a page: its title, a table of its names, functions first, and an entry for each."""
    entries = [entry for section in page.sections for entry in sorted(section.entries(), key=is_class)]
    directives = [directive(module, name) for module, name in entries]
    listed = [
        f"   ~{module}.{name}"
        for (module, name), lines in zip(entries, directives, strict=True)
        if lines and "auto" in lines[0]
    ]
    table = [".. autosummary::", "   :nosignatures:", "", *listed, ""]
    return "\n".join([*underlined(page.title), page.about, "", *table, *chain.from_iterable(directives)])


def index() -> str:
    """Return the first page of the reference: one list for the library, one for people who extend the rest."""
    lines = [*underlined("Python API"), "Every public object, from its docstring.", ""]
    for title, pages in (("The library", LIBRARY), ("For extensions", EXTENDING)):
        lines += underlined(title, "-")
        lines += [f"- :doc:`{page.title} <{page.file}>`: {page.about}" for page in pages]
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {page.file}" for page in pages), ""]
    return "\n".join(lines)


def write(folder: Path) -> None:
    """Write the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        (folder / f"{page.file}.rst").write_text(text_of(page), encoding="utf-8")
    (folder / "index.rst").write_text(index(), encoding="utf-8")
