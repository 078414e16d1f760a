"""The parameters of the flow `train`: every parameter of params.yaml, with a schema that Prefect's server checks."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo

from pipeline import config
from pipeline.parameters import parse_value

Publish = Literal["shadow", "displace", "default", "never"]
PUBLISH = "publish"
_PUBLISH_WORDS = (
    "shadow: the net is scored beside the served version of its model until somebody promotes it. It waits if another"
    " net is under judgement, and is served at once only if the model has no served version yet. displace: it replaces"
    " the net under judgement, whose evidence ends and is kept in the audit log. default: it is served at once. never:"
    " it is not published. It never replaces another model."
)
_AS_TEXT = {dict: r"^\s*\{", list: r"^\s*\["}
"""Patterns of YAML text. `prefect deployment run -p` passes values that are not JSON, such as {gamma: 2}, as text."""


def signature() -> inspect.Signature:
    """Return the flow's signature: every parameter as a keyword with its type, bounds and allowed names, and `publish`.

    null means that params.yaml decides. The allowed names are those of the code that registers the deployment.
    """
    parameters, names = [], _names()
    for name, field in _leaves().items():
        checked = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        kind: Any = names.get(name) or checked
        if pattern := _AS_TEXT.get(_container(field)):
            kind = kind | Annotated[str, Field(pattern=pattern)]
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind | None))
    role = inspect.Parameter(PUBLISH, inspect.Parameter.KEYWORD_ONLY, default="shadow", annotation=Publish)
    return inspect.Signature([*parameters, role])


def descriptions() -> str:
    """Return a docstring from which Prefect reads the parameters' descriptions for the schema in its UI."""
    lines = [
        f"    {name}: {' '.join(words.split())} None: as params.yaml says."
        for name, words in config.descriptions().items()
    ]
    lines.append(f"    {PUBLISH}: {_PUBLISH_WORDS}")
    return "\n".join(["Fetch, plan, train, shift, calibrate, evaluate, export.", "", "Args:", *lines])


def read_text(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters, with mappings and lists parsed that were given as YAML text.

    Raises:
        ConfigError: A text is not valid YAML.
    """
    fields = _leaves()
    return {
        name: parse_value(value, f"{name}={value}")
        if isinstance(value, str) and name in fields and _container(fields[name]) in _AS_TEXT
        else value
        for name, value in parameters.items()
    }


def _leaves() -> dict[str, FieldInfo]:
    """Return the field of each parameter."""
    sections = [field.annotation for field in config.Params.model_fields.values()]
    return {name: field for section in sections for name, field in section.model_fields.items()}  # type: ignore[union-attr]


def _container(field: FieldInfo) -> Any:
    """Return dict or list if the parameter is one, otherwise None."""
    kinds = [get_origin(kind) for kind in (field.annotation, *getattr(field.annotation, "__args__", ()))]
    return next((kind for kind in kinds if kind in _AS_TEXT), None)


def _names() -> dict[str, Any]:
    """Return the types of parameters whose allowed names come from the code rather than from params.yaml's types."""
    from pipeline import methods, nets
    from pipeline.training.recipes import RECIPES
    from trueodds import calibrators

    def one_of(names: list[Any]) -> Any:
        return Annotated[str, Field(json_schema_extra={"enum": names})]

    added = [name for name, part in methods.parts().items() if part.role != "primary"]
    entry = rf"^({'|'.join(calibrators.names())})( +\w+=\S+)*$|^all$"
    method = f"^({'|'.join(methods.names())})(\\+({'|'.join(added)}))*$"
    return {
        "recipe": one_of(["auto", *RECIPES]),
        "net": one_of(nets.names()),
        "method": Annotated[str, Field(pattern=method)],
        "calibrator": one_of([*calibrators.names(), calibrators.SELECT]),
        "compare": list[Annotated[str, Field(pattern=entry)]],
    }
