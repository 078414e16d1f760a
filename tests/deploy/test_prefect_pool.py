"""deploy/prefect: the work pool's template, read by Prefect's own code; its job, held against Kubernetes' schemas.

prefect-kubernetes is not needed. What its worker (0.8.0) asks of a template stands in POD and JOB.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from configparser import ConfigParser
from typing import Any

import pytest
import yaml
from prefect.utilities.schema_tools import validation
from prefect.utilities.templating import apply_values, find_placeholders
from prefect.workers.base import BaseJobConfiguration

from tests.conftest import ROOT
from tests.deploy.manifests import CONFINED, DEPLOY, IMAGE, Object, check, jsonschema, misspellings

TEMPLATE = DEPLOY / "prefect" / "base-job-template.json"
POD = {"parallelism": 1, "completions": 1, "restartPolicy": "Never"}
"""Of the pod's spec: the worker refuses a template without them. The first two are a job's: Kubernetes drops them."""
JOB = {
    "annotations",
    "namespace",
    "job_manifest",
    "cluster_config",
    "job_watch_timeout_seconds",
    "pod_watch_timeout_seconds",
    "stream_output",
}
"""What the worker reads besides what every worker reads."""
SCHEMA_KEYS = {"title", "type", "description", "default", "enum", "minimum", "additionalProperties"}


def template() -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(TEMPLATE.read_text())
    return tree


def manifest(tree: dict[str, Any]) -> Object:
    """The job with every default, and what the worker sets for a run."""
    values = {key: one["default"] for key, one in tree["variables"]["properties"].items() if "default" in one}
    values |= {"name": "train", "command": "prefect flow-run execute", "labels": {}, "annotations": {}}
    job: Object = apply_values(tree["job_configuration"]["job_manifest"], values)
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["args"] = container["args"].split()
    return job


def validate(tree: dict[str, Any]) -> None:
    """Raises where Prefect's server, its worker or Kubernetes would refuse it, or would not see a part of it."""
    # The server takes seconds of each process that collects the tests, so it is loaded here.
    from prefect.server.schemas.actions import WorkPoolCreate

    WorkPoolCreate(name="gpu", type="kubernetes", base_job_template=tree)
    variables = tree["variables"]
    if set(tree) != {"variables", "job_configuration"} or set(variables) != {"type", "properties"}:
        raise ValueError("unknown key")
    if not set(tree["job_configuration"]) <= JOB | set(BaseJobConfiguration.model_fields):
        raise ValueError("unknown key of the configuration")
    for name, one in variables["properties"].items():
        if not set(one) <= SCHEMA_KEYS:
            raise ValueError(f"unknown key of {name}")
    used = {placeholder.name for placeholder in find_placeholders(json.dumps(tree["job_configuration"]))}
    if used != set(variables["properties"]):
        raise ValueError("a variable that nothing uses")
    validation.is_valid_schema(variables, preprocess=False)
    defaults = {key: one["default"] for key, one in variables["properties"].items() if "default" in one}
    validation.validate(defaults, variables, raise_on_error=True)
    job = manifest(tree)
    pod = job["spec"]["template"]["spec"]
    if (
        any(pod.get(key) != value for key, value in POD.items())
        or not {"annotations", "labels"} <= job["metadata"].keys()
    ):
        raise ValueError("the worker refuses it")
    for key in ("parallelism", "completions"):
        del pod[key]
    check([job])


def test_the_template_is_one_that_prefect_and_kubernetes_take() -> None:
    validate(template())


def mistakes(tree: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The template with one key or one placeholder misspelt."""
    for where, changed in misspellings(tree):
        if not re.search(r"properties\.\w+\.additionalProperties\.", where):
            yield where, changed
    text = json.dumps(tree)
    for name in tree["variables"]["properties"]:
        yield f"{{{{ {name} }}}}", json.loads(text.replace(f"{{{{ {name} }}}}", f"{{{{ {name}x }}}}"))


@pytest.mark.full
def test_each_misspelling_is_found() -> None:
    tree = template()
    for where, changed in mistakes(tree):
        with pytest.raises((ValueError, KeyError, jsonschema.ValidationError, validation.ValidationError)):
            validate(changed)
            pytest.fail(f"{where} is misspelt, and nothing says so")


def test_the_pod_is_confined_and_shares_no_disk() -> None:
    pod = manifest(template())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"] == CONFINED and IMAGE.search(container["image"])
    assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
    kinds = {volume["name"]: set(volume) - {"name"} for volume in pod["volumes"]}
    assert kinds.pop("dvc") == {"configMap"} and all(kind == {"emptyDir"} for kind in kinds.values())
    env = {one["name"]: one["value"] for one in container["env"]}
    assert env["TRUEODDS_MODELS"].startswith("s3://") and env["PIPELINE_HOME"] == "/app"
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert env["DVC_GLOBAL_CONFIG_DIR"] in mounted
    image = (ROOT / "docker" / "train.Dockerfile").read_text()
    (made,) = re.findall(r"&& chown 1000:1000 (.*)", image)
    assert set(made.split()) - {"/models"} <= mounted, "the image's folders that are written are volumes"


def test_the_settings_name_a_remote_that_dvc_reads() -> None:
    objects = yaml.safe_load((DEPLOY / "prefect" / "remote.yaml").read_text())
    check([objects])
    for where, changed in misspellings(objects):
        with pytest.raises(jsonschema.ValidationError):
            check([changed])
            pytest.fail(f"{where} is misspelt, and nothing says so")
    assert objects["metadata"]["name"] == template()["variables"]["properties"]["dvc_config"]["default"]
    read = ConfigParser()
    read.read_string("\n".join(line.strip() for line in objects["data"]["config"].splitlines()))
    assert read["'remote \"" + read["core"]["remote"] + "\"'"]["url"].startswith("s3://")


def test_a_template_that_the_worker_would_refuse_is_refused() -> None:
    tree = template()
    changed = copy.deepcopy(tree)
    del changed["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["completions"]
    with pytest.raises(ValueError, match="the worker refuses it"):
        validate(changed)
