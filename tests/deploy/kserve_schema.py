"""KServe's kinds as a JSON schema, made of its Python package, whose types its maintainers generate from its API.

    python -m tests.deploy.kserve_schema kserve-0.21.0-py3-none-any.whl > tests/deploy/kserve-0.21.0.json

Every key, its type and whether it is required come from there; an unknown key is refused. What the custom resource
definitions and the admission webhook demand beyond that stands in `BOUNDS`. Kubernetes' own types, such as containers
and volumes, are those of kubernetes-validate. Two types that neither has are left open.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

KINDS = {
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): "V1alpha1ServingRuntime",
    ("serving.kserve.io/v1beta1", "InferenceService"): "V1beta1InferenceService",
}
BASE = "https://kubernetes.io/api/"
CORE = "_definitions.json"
"""Of kubernetes-validate; its own `$id` is that of BASE."""
_ELSEWHERE = {
    "V1ObjectMeta": "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "ResourceQuantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "K8sIoApiAppsV1DeploymentStrategy": "io.k8s.api.apps.v1.DeploymentStrategy",
    "K8sIoApiAutoscalingV2HorizontalPodAutoscalerBehavior": "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior",
}
_PLAIN = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "datetime": "string"}
_OPEN = {"object", "V1alpha1WorkerSpec", "V1beta1MetricQuantity"}
FRAMEWORKS = [
    *("sklearn", "xgboost", "tensorflow", "pytorch", "triton", "onnx", "huggingface", "pmml", "lightgbm", "paddle")
]
_REQUIRED = re.compile(r"Invalid value for `(\w+)`, must not be `None`")

Schema = dict[str, Any]

BOUNDS: dict[str, Schema] = {
    "V1alpha1SupportedModelFormat": {"required": ["name"], "properties": {"priority": {"minimum": 1}}},
    "V1alpha1ServingRuntimeSpec": {
        "properties": {
            "containers": {"minItems": 1},
            "protocolVersions": {"items": {"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}},
        }
    },
    "V1beta1ModelFormat": {"required": ["name"]},
    "V1beta1ModelSpec": {
        "properties": {"name": False, "protocolVersion": {"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}}
    },
    "V1beta1StorageUri": {"properties": {"uri": {"minLength": 1}, "mountPath": {"pattern": "^/", "maxLength": 255}}},
    "V1beta1PredictorSpec": {
        "properties": {
            "minReplicas": {"minimum": 0},
            "maxReplicas": {"minimum": 0},
            "containerConcurrency": {"minimum": 0},
            "scaleMetric": {"enum": ["cpu", "memory", "concurrency", "rps"]},
            "storageUris": {"minItems": 1},
        },
        "oneOf": [{"required": [one]} for one in (*FRAMEWORKS, "model", "containers")],
    },
    "V1beta1InferenceService": {
        "properties": {"metadata": {"properties": {"name": {"pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}}}}
    },
}
"""Of KServe's API: the markers beside the Go types of pkg/apis/serving/v1alpha1 and v1beta1, of which its custom
resource definitions are generated, the protocols of pkg/constants, and its webhook
(inference_service_validation.go), which wants one predictor and no name in its `model`."""


def of_package(wheel: Path) -> Schema:
    """The definitions of KINDS and of all that they hold; a status, which nobody writes by hand, is left out."""
    with ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"kserve/models/\w+\.py", name)]
        classes = dict(_class(archive.read(name).decode()) for name in names if not name.endswith("__init__.py"))
        version = wheel.name.split("-")[1]
    definitions: dict[str, Schema] = {}
    waiting = list(KINDS.values())
    while waiting:
        name = waiting.pop()
        if name not in definitions and name in classes:
            definitions[name] = classes[name]
            waiting += re.findall(r"#/\$defs/(\w+)", json.dumps(classes[name]))
    source = (
        f"Made by tests/deploy/kserve_schema.py of kserve {version}'s models (PyPI; The KServe Authors, Apache-2.0)"
    )
    return {"$comment": source, "$id": f"{BASE}kserve.json", "$defs": dict(sorted(definitions.items()))}


def bounded(schema: Schema) -> Schema:
    """The schema with `BOUNDS` beside what the package says of each definition."""
    unknown = BOUNDS.keys() - schema["$defs"].keys()
    assert not unknown, f"no definitions: {unknown}"
    definitions = {
        name: {"allOf": [one, BOUNDS[name]]} if name in BOUNDS else one for name, one in schema["$defs"].items()
    }
    return schema | {"$defs": definitions}


def _class(source: str) -> tuple[str, Schema]:
    """A model's name and its schema, read without importing it."""
    (model,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    tables = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in model.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    keys, types = tables["attribute_map"], tables["openapi_types"]
    schema: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {keys[name]: _type(kind) for name, kind in sorted(types.items()) if name != "status"},
    }
    if required := sorted({keys[name] for name in _REQUIRED.findall(source)} - {"status"}):
        schema["required"] = required
    return model.name, schema


def _type(kind: str) -> Schema:
    if inner := re.fullmatch(r"list\[(.+)\]", kind):
        return {"type": "array", "items": _type(inner[1])}
    if inner := re.fullmatch(r"dict\(str, (.+)\)", kind):
        return {"type": "object", "additionalProperties": _type(inner[1])}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind in _OPEN:
        return {}
    if kind in _ELSEWHERE:
        return {"$ref": f"{CORE}#/$defs/{_ELSEWHERE[kind]}"}
    if core := re.fullmatch(r"V1([A-Z]\w+)", kind):
        return {"$ref": f"{CORE}#/$defs/io.k8s.api.core.v1.{core[1]}"}
    return {"$ref": f"#/$defs/{kind}"}


if __name__ == "__main__":
    text = json.dumps(of_package(Path(sys.argv[1])), separators=(",", ":"))
    print(re.sub(r'(?<=\},)(?="V1\w+":\{"type":"object")', "\n", text))
