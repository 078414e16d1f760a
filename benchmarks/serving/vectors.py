"""Vectors per second compared with LitServe: scikit-learn's gradient boosting on 30 features, the same file for both.

    python -m venv .peers && .peers/bin/pip install litserve onnxruntime pillow uvloop httptools
    apt-get install wrk
    python -m benchmarks.serving.vectors --peers .peers/bin/python     # some five minutes
    python -m benchmarks.serving.vectors --peers .peers/bin/python --quick

The model is fitted to the breast cancer data and exported by skl2onnx. A request has one vector as a list of numbers in
JSON. A short trial at 32 connections finds LitServe's best options; ours runs with its defaults. Answers are compared
first. Then come short turns with both running (benchmarks.serving.turns). Ours stores every prediction durably before
it answers.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from benchmarks.record import RESULTS, Run, options_parser
from benchmarks.serving import load, servers, turns
from benchmarks.serving.comparison import peer_versions, probabilities
from benchmarks.serving.comparison_report import rate
from trueodds.bundle import Bundle, Description, open_models
from trueodds.calibrators import Temperature
from trueodds.importing.import_options import ImportOptions
from trueodds.importing.importer import convert
from trueodds.importing.labelled_rows import ImportRows

RESULT = RESULTS / "vector_serving.json"
WANTED = 1.4
"""Goal: the ratio of ours to LitServe's in requests per second."""
CONNECTIONS = 32
run = Run()


def publish(folder: Path) -> tuple[Path, npt.NDArray[np.float32]]:
    """Return the published version and one row of the data."""
    from skl2onnx import to_onnx
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import GradientBoostingClassifier

    data = load_breast_cancer()
    rows_NF = data.data.astype(np.float32)
    estimator = GradientBoostingClassifier(random_state=0).fit(rows_NF, data.target)
    file, model = folder / "boosting.onnx", folder / "model.onnx"
    file.write_bytes(to_onnx(estimator, rows_NF[:1]).SerializeToString())
    rows = ImportRows("breast cancer", rows_NF, data.target, features=tuple(data.feature_names))
    converted = convert(file, rows, ImportOptions())
    model.write_bytes(converted.data)
    logits_NC = ort.InferenceSession(model).run(None, {converted.kind.tensor: rows_NF})[0]
    off = float(np.abs(np.exp(logits_NC) - estimator.predict_proba(rows_NF)).max())
    if off > 1e-5:
        raise load.LoadError(f"the imported graph's probabilities differ from scikit-learn's by {off:.2g}")
    description = Description(
        name="boosting",
        classes=list(data.target_names),
        input=converted.kind,
        method="gradient boosting",
        training={},
        metrics={},
        data_sha256="0" * 64,
        code_sha256="0" * 64,
    )
    Bundle.write(
        folder / "bundle",
        model,
        Temperature(servers.TEMPERATURE),
        description,
        golden_input=rows_NF[0],
        golden_logits=logits_NC[0],
    )
    return open_models(folder / "models").publish(folder / "bundle"), rows_NF[0]


def best(model: Path, peers: Path, folder: Path, body: Path, seconds: float) -> tuple[servers.Variant, list[Any]]:
    """Return LitServe's options with the most successful answers per second, and all trials. They must equal ours."""
    with servers.running(servers.OURS, model, None, folder, body) as ours:
        expected = probabilities(load.post(ours.url(body.stem), body.read_bytes()))
    trials: list[dict[str, Any]] = []
    for variant in servers.VARIANTS["LitServe"]:
        try:
            with servers.running(variant, model, peers, folder, body) as theirs:
                answer = probabilities(load.post(theirs.url(body.stem), body.read_bytes()))
                if (off := float(np.abs(np.subtract(answer, expected)).max())) > 1e-5:
                    raise load.LoadError(f"probabilities differ from ours by {off:.2g}")
                load.wrk(theirs.url(body.stem), body, CONNECTIONS, 1)  # warm
                trial = load.wrk(theirs.url(body.stem), body, CONNECTIONS, seconds)
        except load.LoadError as error:
            run.say(f"{variant.name}: left out: {error}")
            trials.append({"variant": variant.name, "error": str(error)[:500]})
            continue
        run.say(f"{variant.name:44} {trial.rps:7.0f} rps, {trial.failed} failed")
        trials.append({"variant": variant.name, **asdict(trial)})
    k = max(range(len(trials)), key=lambda k: rate(trials[k]))
    if not rate(trials[k]):
        raise load.LoadError(f"no variant of LitServe answers; {folder}/LitServe.log says why")
    return servers.VARIANTS["LitServe"][k], trials


def markdown(result: dict[str, Any]) -> str:
    """Return requests per second of each over the turns, and their ratio."""
    lines = ["| server | connections | requests per second, lowest .. highest | p99, median |", "|---|---|---|---|"]
    for row in result["turns"]["series"]:
        low, high, p99 = min(row["rps"]), max(row["rps"]), float(np.median(row["p99_ms"]))
        lines.append(f"| {row['server']} | {row['connections']} | {low:,.0f} .. {high:,.0f} | {p99:.1f} ms |")
    goal = result["goal"]
    reached = "reached" if goal["reached"] else "missed"
    return "\n".join(
        [*lines, "", f"In turns: {goal['ratio']:.2f} times LitServe's; wanted {goal['wanted']}: {reached}."]
    )


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--peers", type=Path, help="python of an environment with litserve")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--quick", action="store_true", help="two turns of one second: does it work?")
    options = parser.parse_args()
    if not options.peers:
        parser.error("--peers is needed: the python of an environment with litserve")
    peers = Path(os.path.abspath(options.peers))  # noqa: PTH100  # resolve() would leave the environment
    seconds, count = (1.0, turns.QUICK) if options.quick else (options.seconds, turns.TURNS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model, row_F = publish(folder)
        body = folder / "vector.json"
        body.write_text(json.dumps({"instances": [row_F.tolist()]}, separators=(",", ":")), encoding="utf-8")
        variant, trials = best(model, peers, folder, body, seconds)
        with (
            servers.running(servers.OURS, model, None, folder, body) as ours,
            servers.running(variant, model, peers, folder, body) as theirs,
        ):
            figures = turns.beside_peer(ours, theirs, body, seconds, count)
    run.finish(
        options.out,
        markdown,
        packages=("onnxruntime", "scikit-learn", "skl2onnx", "uvicorn", "fastapi"),
        cores=len(os.sched_getaffinity(0)),
        peers=peer_versions(peers, ("litserve", "onnxruntime", "uvicorn", "fastapi", "numpy")),
        trials=trials,
        turns=figures,
        goal={"wanted": WANTED, "ratio": figures["ratio"], "reached": figures["ratio"] >= WANTED},
    )


if __name__ == "__main__":
    main()
