"""The flow `study` on a real server: two workers share the runs of one study."""

from __future__ import annotations

import pytest

from tests.flows.conftest import Prefect

STUDY = """
title: two losses
hold: {epochs: 1, train_size: 200}
vary: {method: [ce, fl3]}
baseline: {method: ce}
"""


@pytest.mark.full
def test_two_workers_take_the_runs_of_a_study(prefect: Prefect) -> None:
    prefect.up()  # both workers: the tests before this one kill some
    (prefect.home / "shared.yaml").write_text(STUDY)
    deployment = prefect.get("deployments/name/study/own")["id"]
    parameters = {"study": "shared.yaml"}
    flows = [prefect.post(f"deployments/{deployment}/create_flow_run", {"parameters": parameters})["id"] for _ in "ab"]
    for flow in flows:
        record = prefect.completed(flow)
        assert record["name"] == "shared.yaml" and "2 runs; " in record["state"]["message"]
        assert "| fl3 | identity | 1 |" in prefect.artifacts(flow)["study"]
    tasks = sorted(name for flow in flows for name in prefect.stages(flow))
    assert tasks == ["method=ce", "method=fl3"], "each run is made once, by either"
    assert (prefect.home / "studies" / "shared" / "study.html").is_file()
    wrong = prefect.post(f"deployments/{deployment}/create_flow_run", {"parameters": {"study": "focal/table15"}})["id"]
    record = prefect.ended(wrong)
    assert record["state_type"] == "FAILED" and "unknown study 'focal/table15'" in record["state"]["message"]
