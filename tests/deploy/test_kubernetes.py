"""deploy/kubernetes and deploy/kserve, built by kustomize and held against the schemas; no cluster is needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import trueodds
from tests.conftest import ROOT
from tests.deploy.manifests import (
    CONFINED,
    DEPLOY,
    IMAGE,
    VERSIONS,
    check,
    jsonschema,
    kustomize,
    misspellings,
    misspelt,
    templates,
)

FOLDER = DEPLOY / "kubernetes"
OVERLAYS = ("plain", "replicas", "monitoring", "reports")
FOLDERS = (*(f"kubernetes/{overlay}" for overlay in OVERLAYS), "kserve/plain", "kserve/replicas")
MANIFESTS = sorted(
    path.relative_to(DEPLOY) for kind in ("kubernetes", "kserve") for path in (DEPLOY / kind).rglob("*.yaml")
)


@pytest.mark.few(2)
@pytest.mark.parametrize("folder", FOLDERS)
def test_each_overlay_is_valid(folder: str) -> None:
    objects = kustomize(DEPLOY / folder)
    for version in VERSIONS:
        check(objects, version)
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_is_confined_probed_and_of_a_version(overlay: str) -> None:
    pods = list(templates(kustomize(FOLDER / overlay)))
    assert pods
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == CONFINED
            assert IMAGE.search(container["image"]), container["image"]
            assert container["readinessProbe"] and container["livenessProbe"]
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert container["resources"]["limits"]["memory"]


def test_the_service_ends_in_order_and_stays_up_while_nodes_are_drained() -> None:
    objects = kustomize(FOLDER / "replicas")
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    deployment, budget = by_kind["Deployment", "trueodds"], by_kind["PodDisruptionBudget", "trueodds"]
    pod = deployment["spec"]["template"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert budget["spec"]["maxUnavailable"] < deployment["spec"]["replicas"]
    container = pod["spec"]["containers"][0]
    # uvicorn's own limit is 8 s (service/cli/serving.py).
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] + 8 < pod["spec"]["terminationGracePeriodSeconds"]
    assert container["env"][0]["valueFrom"]["secretKeyRef"]["key"] == "url"
    database = by_kind["StatefulSet", "trueodds-store"]["spec"]["template"]["metadata"]["labels"]
    assert by_kind["Service", "trueodds"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert not by_kind["Service", "trueodds"]["spec"]["selector"].items() <= database.items()


def test_a_single_pod_keeps_its_store() -> None:
    objects = kustomize(FOLDER / "plain")
    claims = {one["metadata"]["name"] for one in objects if one["kind"] == "PersistentVolumeClaim"}
    (deployment,) = [one["spec"] for one in objects if one["kind"] == "Deployment"]
    assert deployment["replicas"] == 1 and deployment["strategy"] == {"type": "Recreate"}
    pod = deployment["template"]["spec"]
    named = {volume["name"]: volume.get("persistentVolumeClaim", {}).get("claimName") for volume in pod["volumes"]}
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: named[mount["name"]] for mount in container["volumeMounts"]}
    assert mounts == {"/store": "trueodds-store", "/models": "trueodds-models", "/tmp": None}
    assert claims == {"trueodds-store", "trueodds-models"}


def test_pods_that_only_read_have_a_store_and_no_model_and_are_asked_by_a_name_of_their_own() -> None:
    objects, beside = kustomize(FOLDER / "reports"), kustomize(FOLDER / "replicas")
    assert sorted(one["kind"] for one in objects) == ["Deployment", "Service"]
    by_kind = {one["kind"]: one for one in objects}
    assert not {(o["kind"], o["metadata"]["name"]) for o in objects} & {
        (o["kind"], o["metadata"]["name"]) for o in beside
    }
    (pod,), (answering, *_) = list(templates(objects)), templates(beside)
    (container,) = pod["containers"]
    assert container["args"] == ["trueodds", "serve", "--read-only"]
    (store,) = container["env"]
    assert store["name"] == "TRUEODDS_STORE" and store["valueFrom"]["secretKeyRef"]["name"] == "trueodds-store"
    assert store["valueFrom"]["secretKeyRef"] != answering["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"] and len(pod["volumes"]) == 1
    labels = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert by_kind["Service"]["spec"]["selector"].items() <= labels.items()
    for one in beside:
        if one["kind"] == "Service":
            assert not one["spec"]["selector"].items() <= labels.items()


def test_the_images_are_those_of_compose() -> None:
    compose = (ROOT / "docker" / "compose.yaml").read_text()
    images = {c["image"] for o in OVERLAYS for pod in templates(kustomize(FOLDER / o)) for c in pod["containers"]}
    for image in images - {f"registry.example.org/trueodds-serve:{trueodds.__version__}"}:
        assert f"image: {image}\n" in compose
    assert "image: trueodds-serve\n" in compose


def test_prometheus_has_the_rules_and_asks_every_pod() -> None:
    objects = kustomize(FOLDER / "monitoring")
    maps = {one["metadata"]["name"].rpartition("-")[0]: one["data"] for one in objects if one["kind"] == "ConfigMap"}
    assert maps["trueodds-rules"] == {"trueodds.rules.yml": (ROOT / "docker/prometheus/trueodds.rules.yml").read_text()}
    config = yaml.safe_load(maps["trueodds-prometheus"]["prometheus.yml"])
    assert config["rule_files"] == ["/etc/prometheus/rules/trueodds.rules.yml"]
    (job,) = config["scrape_configs"]
    beside = yaml.safe_load((ROOT / "docker/prometheus/prometheus.yml").read_text())["scrape_configs"][0]
    assert job["job_name"] == beside["job_name"], "the rules ask for the job by its name"
    (pods,) = [one for one in objects if one["metadata"]["name"] == job["dns_sd_configs"][0]["names"][0]]
    assert pods["spec"]["clusterIP"] == "None" and pods["spec"]["ports"][0]["port"] == job["dns_sd_configs"][0]["port"]


@pytest.mark.few(2)
@pytest.mark.parametrize("folder", FOLDERS)
def test_each_misspelt_key_is_found(folder: str) -> None:
    for one in kustomize(DEPLOY / folder):
        for where, changed in misspellings(one):
            with pytest.raises(jsonschema.ValidationError):
                check([changed])
                pytest.fail(f"{one['kind']}: {where} is misspelt, and nothing says so")


@pytest.mark.few(6)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=str)
def test_a_typo_in_any_file_is_found(manifest: Path, tmp_path: Path) -> None:
    copy = tmp_path / "deploy"
    shutil.copytree(DEPLOY, copy)
    for beside in ("prometheus", "grafana"):
        shutil.copytree(ROOT / "docker" / beside, tmp_path / "docker" / beside)
    (copy / manifest).write_text(misspelt((DEPLOY / manifest).read_text()))
    kind, part = manifest.parts[:2]
    with pytest.raises((subprocess.CalledProcessError, jsonschema.ValidationError)):
        for folder in FOLDERS:
            if folder in (f"{kind}/{part}", "kubernetes/plain" if part == "base" else ""):
                check(kustomize(copy / folder))
