"""DVC's graph as the flow walks it. The `meta` of a stage in dvc.yaml holds its settings for Prefect."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trueodds.errors import ConfigError, unknown


class StageMeta(BaseModel):
    """The keys of a stage's `meta` in dvc.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tags: list[str] = Field(default_factory=list)
    """Tags of the task in Prefect, such as gpu."""
    retries: int = Field(0, ge=0)
    retry_delay_seconds: float = Field(0, ge=0)
    timeout_seconds: float | None = Field(None, gt=0)
    """Time limit from the start of the stage's process. Waiting for a slot does not count."""
    concurrency: str | None = None
    """Global concurrency limit of the Prefect server in which the stage takes one slot; unknown there: no limit."""


@dataclass(frozen=True)
class Stage:
    """One node: its name for `dvc repro -s`, the stages it needs, and its settings."""

    name: str
    needs: tuple[str, ...]
    meta: StageMeta


def read(folder: Path) -> list[Stage]:
    """Read the stages of the DVC repository in `folder`, each after those it needs.

    matrix and foreach are expanded.

    Raises:
        ConfigError: A stage's meta has an unknown key or a bad value, or dvc.yaml cannot be read.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(str(folder)) as repo:
            graph = repo.index.graph
            nodes = {_name(node, folder): node for node in graph if not node.is_data_source}
            needs = {name: sorted(_name(n, folder) for n in graph.successors(nodes[name])) for name in sorted(nodes)}
            needs = {name: [n for n in before if n in nodes] for name, before in needs.items()}
            order = TopologicalSorter(needs).static_order()
            return [Stage(name, tuple(needs[name]), _meta(name, nodes[name].meta)) for name in order]
    except DvcException as error:
        raise ConfigError(f"{folder / 'dvc.yaml'}: {error}") from None


def _name(node: Any, folder: Path) -> str:
    """Return the stage's name for `dvc repro` in `folder`. DVC's `addressing` is relative to the current directory."""
    file = Path(node.path).resolve().relative_to(folder.resolve()).as_posix()
    name = getattr(node, "name", None)  # None for a .dvc file
    if name is None:
        return file
    return str(name) if file == "dvc.yaml" else f"{file}:{name}"


def _meta(stage: str, tree: Any) -> StageMeta:
    """Validate the meta of a stage."""
    where = f"dvc.yaml, stage {stage}, meta"
    try:
        return StageMeta.model_validate({} if tree is None else tree)
    except ValidationError as failure:
        error = failure.errors()[0]
        key = ".".join(str(part) for part in error["loc"]) or "meta"
        if error["type"] == "extra_forbidden":
            raise ConfigError(f"{where}: {unknown('key', key, StageMeta.model_fields)}") from None
        raise ConfigError(f"{where}: {key} = {error['input']!r}: {error['msg']}") from None
