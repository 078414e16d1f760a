"""Manifests as kustomize builds them, held against the schemas of Kubernetes and KServe; no cluster is needed."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.deploy import kserve_schema

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="the extra dev brings kubernetes-validate")
jsonschema = pytest.importorskip("jsonschema", reason="kubernetes-validate brings it")
referencing = pytest.importorskip("referencing", reason="kubernetes-validate brings it")

DEPLOY = ROOT / "deploy"
VERSIONS = ("1.32", "1.37")
"""Of Kubernetes: the oldest that the pages name, and the newest that the validator knows."""
KSERVE = ROOT / "tests" / "deploy" / "kserve-0.21.0.json"
FREE = {"annotations", "labels", "matchLabels", "limits", "requests", "data", "selector"}
"""Keys under which anything may be called anything."""
CONFINED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
IMAGE = re.compile(r":v?\d[\w.-]*$")
"""The end of an image's name: a version."""
Object = dict[str, Any]


def kustomize(folder: Path) -> list[Object]:
    """The objects of an overlay.

    Raises:
        subprocess.CalledProcessError: kustomize refuses it.
    """
    return list(yaml.safe_load_all(kustomized(folder)))


def kustomized(folder: Path) -> str:
    """The overlay as text, as `kubectl kustomize` prints it."""
    if shutil.which("kubectl"):
        command = ["kubectl", "kustomize"]
    elif shutil.which("kustomize"):
        command = ["kustomize", "build"]
    else:
        pytest.skip("neither kubectl nor kustomize is on the PATH")
    return subprocess.run([*command, str(folder)], check=True, capture_output=True, text=True, timeout=300).stdout


def check(objects: list[Object], version: str = VERSIONS[-1]) -> None:
    """Raises `jsonschema.ValidationError` at a key that no schema knows, a missing key, a wrong type or value."""
    for one in objects:
        _validator(one["apiVersion"], one["kind"], version).validate(one)


@cache
def _validator(api: str, kind: str, version: str) -> Any:
    load, folder = kubernetes_validate.utils.schema_contents, f"kubernetes-json-schema/v{version}.0-local-strict"
    registry = referencing.Resource.from_contents(load(f"{folder}/_definitions.json", version)) @ referencing.Registry()
    if name := kserve_schema.KINDS.get((api, kind)):
        own = kserve_schema.bounded(json.loads(KSERVE.read_text()))
        registry = referencing.Resource(own, referencing.jsonschema.DRAFT202012) @ registry
        schema: Any = {"$ref": f"{own['$id']}#/$defs/{name}"}
    else:
        group, _, number = api.rpartition("/")
        prefix = f"{group.partition('.')[0]}-" if group else ""
        schema = load(f"{folder}/{kind.lower()}-{prefix}{number}.json", version)
    return jsonschema.validators.Draft202012Validator(schema, registry=registry)


def templates(objects: list[Object]) -> Iterator[Object]:
    """The pods of deployments and stateful sets."""
    for one in objects:
        if one["kind"] in ("Deployment", "StatefulSet"):
            yield one["spec"]["template"]["spec"]


def misspellings(one: Object) -> Iterator[tuple[str, Object]]:
    """The object with a letter too many in one key, for each of its keys that is not free; and where it is."""
    for path in _keys(one):
        if path in (("apiVersion",), ("kind",)):  # by them the schema is found
            continue
        changed = copy.deepcopy(one)
        place: Any = changed
        for step in path[:-1]:
            place = place[step]
        place[f"{path[-1]}x"] = place.pop(path[-1])
        yield ".".join(map(str, path)), changed


def _keys(tree: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (key,)
            if key not in FREE or (key == "selector" and "matchLabels" in value):
                yield from ((key, *rest) for rest in _keys(value))
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from ((number, *rest) for rest in _keys(value))


def misspelt(text: str) -> str:
    """A file with a letter too many in a key, the third that is not a name."""
    keys = [key for key in re.finditer(r"(?m)^[ -]*([a-z]\w+):", text) if key[1] not in ("name", "labels")]
    end = keys[2].end(1)
    return f"{text[:end]}x{text[end:]}"
