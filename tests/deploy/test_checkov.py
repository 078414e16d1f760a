"""checkov over what is deployed: nothing it finds is left, but for the checks that deploy/checkov.yaml names."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, Object, kustomize, templates
from tests.deploy.test_kserve import deployment
from tests.deploy.test_kubernetes import FOLDERS
from tests.deploy.test_prefect_pool import manifest, template

CONFIG = DEPLOY / "checkov.yaml"


def exceptions(text: str) -> dict[str, str]:
    """Check -> the reason that stands behind it."""
    listed = yaml.safe_load(text)["skip-check"]
    reasons = dict(re.findall(r"(?m)^ +- (CKV\w+) # (.+)$", text))
    assert set(listed) == set(reasons), f"without a reason: {set(listed) - set(reasons)}"
    return reasons


def judge(failed: set[str], excepted: set[str]) -> list[str]:
    """What is wrong: a check that fails and has no exception, and an exception that no check needs."""
    unexpected = [f"{check} fails" for check in sorted(failed - excepted)]
    return unexpected + [f"{check} is excepted, and does not fail" for check in sorted(excepted - failed)]


def objects_of(folder: str) -> list[Object]:
    """What kustomize builds, and for KServe's kinds, which checkov does not know, the deployment that they become."""
    objects = kustomize(DEPLOY / folder)
    return [*objects, deployment(objects)] if folder.startswith("kserve") else objects


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """File -> the checks that fail in it: the overlays, a run's job, and an overlay without a securityContext."""
    checkov = shutil.which("checkov")
    if not checkov:
        pytest.skip("checkov is not installed (in an environment of its own: pip install checkov)")
    folder = tmp_path_factory.mktemp("checkov")
    made = {name.replace("/", "-"): objects_of(name) for name in FOLDERS}
    made["job"] = [{**manifest(template()), "metadata": {"name": "train", "namespace": "trueodds"}}]
    open_pod, open_container = copy.deepcopy(made["kubernetes-plain"]), copy.deepcopy(made["kubernetes-plain"])
    del next(templates(open_pod))["securityContext"]
    del next(templates(open_container))["containers"][0]["securityContext"]
    for name, objects in {**made, "without-pods": open_pod, "without-containers": open_container}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(objects))
    words = [checkov, "-d", str(folder), "--framework", "kubernetes", "--skip-download", "--compact", "-o", "json"]
    # Whatever it would ask of its vendor ends at a port that is closed.
    closed = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run(
        [*words, "--soft-fail"], env=os.environ | closed, capture_output=True, text=True, timeout=300, check=True
    )
    found: dict[str, set[str]] = {Path(name).stem: set() for name in folder.iterdir()}
    report: Any = json.loads(done.stdout)
    assert not report["results"]["parsing_errors"] and report["summary"]["passed"] > 100
    for one in report["results"]["failed_checks"]:
        found[Path(one["file_path"]).stem].add(one["check_id"])
    return found


@pytest.mark.full
def test_only_what_is_excepted_fails_and_every_exception_is_needed(failed: dict[str, set[str]]) -> None:
    real = set().union(*(checks for name, checks in failed.items() if not name.startswith("without")))
    assert judge(real, set(exceptions(CONFIG.read_text()))) == []


@pytest.mark.full
def test_a_missing_security_context_is_found(failed: dict[str, set[str]]) -> None:
    excepted = set(exceptions(CONFIG.read_text()))
    for name in ("without-pods", "without-containers"):
        assert failed[name] - failed["kubernetes-plain"] - excepted, name


def test_an_exception_that_is_not_needed_is_said() -> None:
    assert judge({"CKV_1"}, {"CKV_1", "CKV_2"}) == ["CKV_2 is excepted, and does not fail"]
    assert judge({"CKV_1", "CKV_3"}, {"CKV_1"}) == ["CKV_3 fails"]
    with pytest.raises(AssertionError, match=r"without a reason: .'CKV_2'."):
        exceptions("skip-check:\n  - CKV_1 # because\n  - CKV_2\n")
