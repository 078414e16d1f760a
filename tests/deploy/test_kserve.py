"""deploy/kserve: what KServe makes of the runtime and the service that uses it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.deploy import kserve_schema
from tests.deploy.manifests import CONFINED, DEPLOY, IMAGE, KSERVE, Object, check, jsonschema, kustomize, templates

OVERLAYS = ("plain", "replicas")


def deployment(objects: list[Object]) -> Object:
    """The deployment that KServe makes: the runtime's containers with what the model sets, in the predictor's pod."""
    by_kind = {one["kind"]: one for one in objects}
    runtime, predictor = by_kind["ServingRuntime"]["spec"], by_kind["InferenceService"]["spec"]["predictor"]
    own = {"model", "minReplicas", "maxReplicas", "deploymentStrategy"}
    (container,) = runtime["containers"]
    set_by_the_model = {key: value for key, value in predictor["model"].items() if key == "env"}
    labels = {"app": f"isvc.{by_kind['InferenceService']['metadata']['name']}-predictor"}
    pod = {key: value for key, value in predictor.items() if key not in own}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "trueodds-predictor"},
        "spec": {
            "replicas": predictor["minReplicas"],
            "strategy": predictor["deploymentStrategy"],
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": pod | {"containers": [container | set_by_the_model], "volumes": runtime["volumes"]},
            },
        },
    }


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_pod_is_confined_probed_and_of_a_version(overlay: str) -> None:
    made = deployment(kustomize(DEPLOY / "kserve" / overlay))
    check([made])
    (pod,) = templates([made])
    (container,) = pod["containers"]
    assert container["name"] == "kserve-container", "KServe mounts the model into the container of this name alone"
    assert container["securityContext"] == CONFINED and IMAGE.search(container["image"])
    assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
    assert container["resources"]["limits"].keys() == {"memory"}
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] + 8 < pod["terminationGracePeriodSeconds"]


def test_the_container_serves_what_the_initialiser_mounts_by_the_protocol_that_the_runtime_names() -> None:
    objects = {one["kind"]: one for one in kustomize(DEPLOY / "kserve" / "plain")}
    runtime = objects["ServingRuntime"]["spec"]
    (container,) = runtime["containers"]
    assert container["args"] == ["trueodds", "serve", "--bundle=/mnt/models"]
    assert runtime["protocolVersions"] == ["v2"]
    from service.infer.infer_route import router

    paths = {route.path for route in router.routes if hasattr(route, "path")}
    assert {
        container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    } <= paths
    model = objects["InferenceService"]["spec"]["predictor"]["model"]
    assert model["runtime"] == objects["ServingRuntime"]["metadata"]["name"]
    assert model["modelFormat"]["name"] in {one["name"] for one in runtime["supportedModelFormats"]}
    account = objects["InferenceService"]["spec"]["predictor"]["serviceAccountName"]
    assert account == objects["ServiceAccount"]["metadata"]["name"]


def test_a_store_in_a_pod_has_one_pod_and_several_pods_have_one_store() -> None:
    """The image's own store is a file under /store, which has to be writable."""
    image = (ROOT / "docker" / "serve.Dockerfile").read_text()
    assert "TRUEODDS_STORE=/store/store.sqlite" in image
    plain, replicas = (deployment(kustomize(DEPLOY / "kserve" / overlay))["spec"] for overlay in OVERLAYS)
    (container,) = plain["template"]["spec"]["containers"]
    assert plain["replicas"] == 1 and "env" not in container
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/store", "/tmp"}
    assert all("emptyDir" in volume for volume in plain["template"]["spec"]["volumes"])
    (store,) = replicas["template"]["spec"]["containers"][0]["env"]
    assert replicas["replicas"] > 1 and store["valueFrom"]["secretKeyRef"] == {"name": "trueodds-store", "key": "url"}


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("ServingRuntime", "supportedModelFormats.0.priority", 0),
        ("ServingRuntime", "supportedModelFormats.0", {"autoSelect": True}),
        ("ServingRuntime", "protocolVersions.0", "v3"),
        ("ServingRuntime", "containers", []),
        ("InferenceService", "predictor.minReplicas", -1),
        ("InferenceService", "predictor.maxReplicas", -1),
        ("InferenceService", "predictor.containerConcurrency", -1),
        ("InferenceService", "predictor.scaleMetric", "gpu"),
        ("InferenceService", "predictor.storageUris", []),
        ("InferenceService", "predictor.storageUris", [{"uri": ""}]),
        ("InferenceService", "predictor.storageUris", [{"uri": "s3://b", "mountPath": "mnt"}]),
        ("InferenceService", "predictor.onnx", {}),
        ("InferenceService", "predictor.model.name", "digits"),
        ("InferenceService", "predictor.model.modelFormat", {"version": "1"}),
        ("InferenceService", "predictor.model.protocolVersion", "http"),
    ],
)
def test_what_kserve_would_refuse_is_refused(kind: str, place: str, value: object) -> None:
    (one,) = [one for one in kustomize(DEPLOY / "kserve" / "plain") if one["kind"] == kind]
    *path, last = [int(step) if step.isdigit() else step for step in place.split(".")]
    inside: Any = one["spec"]
    for step in path:
        inside = inside[step]
    inside[last] = value
    with pytest.raises(jsonschema.ValidationError, match=re.escape(str(path[-1] if path else last))):
        check([one])


def test_names_and_replicas_are_such_as_kserve_takes() -> None:
    (one,) = [one for one in kustomize(DEPLOY / "kserve" / "plain") if one["kind"] == "InferenceService"]
    with pytest.raises(jsonschema.ValidationError, match="does not match"):
        check([one | {"metadata": {"name": "9-odds"}}])
    predictors = [
        one["spec"]["predictor"]
        for overlay in OVERLAYS
        for one in kustomize(DEPLOY / "kserve" / overlay)
        if one["kind"] == "InferenceService"
    ]
    assert all(1 <= predictor["minReplicas"] <= predictor["maxReplicas"] for predictor in predictors)


def test_the_schema_is_what_the_package_says(tmp_path: Path) -> None:
    """On a package of one model; that of KServe's release is in KSERVE, one definition a line."""
    from zipfile import ZipFile

    model = """
class V1alpha1ServingRuntime(object):
    openapi_types = {'spec': 'dict(str, V1Volume)', 'api_version': 'list[str]', 'status': 'X', 'worker': 'V1beta1Y'}
    attribute_map = {'spec': 'spec', 'api_version': 'apiVersion', 'status': 'status', 'worker': 'worker'}
    def spec(self, spec):
        raise ValueError("Invalid value for `spec`, must not be `None`")
"""
    other = "class V1beta1Y(object):\n    openapi_types = {'n': 'int'}\n    attribute_map = {'n': 'maxN'}\n"
    wheel = tmp_path / "kserve-1.2-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("kserve/models/a.py", model)
        archive.writestr("kserve/models/b.py", other)
    assert kserve_schema.of_package(wheel)["$defs"] == {
        "V1alpha1ServingRuntime": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "apiVersion": {"type": "array", "items": {"type": "string"}},
                "spec": {
                    "type": "object",
                    "additionalProperties": {"$ref": "_definitions.json#/$defs/io.k8s.api.core.v1.Volume"},
                },
                "worker": {"$ref": "#/$defs/V1beta1Y"},
            },
            "required": ["spec"],
        },
        "V1beta1Y": {"type": "object", "additionalProperties": False, "properties": {"maxN": {"type": "integer"}}},
    }
    kept: dict[str, Any] = json.loads(KSERVE.read_text())
    assert "kserve 0.21.0" in kept["$comment"] and set(kserve_schema.KINDS.values()) <= kept["$defs"].keys()
