"""Who may import whom: docs/architecture.md, folder by folder, held by every import in the code and by real ones.

An import inside a function and one under TYPE_CHECKING count like all others.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("trueodds", "pipeline", "service")
LAYERS = {
    ".": """
        pipeline service
        trueodds
    """,
    "trueodds": """
        __main__
        importing
        client
        calibrated reports
        drawing
        bundle evaluation
        calibrators
        logits metrics
        sums inputs
        files cli
        errors texts processes dialect
    """,
    "trueodds/inputs": """
        image vector text
        kind npy columns
        times
        table
        errors checkpoint
    """,
    "trueodds/inputs/text": """
        labelled
        kind
        tokens
    """,
    "trueodds/bundle": """
        opening
        bucket
        model_folder
        changing
        published single copying
        audit_log trial
        contents
        bundle locks role_files
        model_card unloadable
        card
        act_alone risk_coverage shadows
    """,
    "trueodds/bundle/bucket": """
        models cached
        versions
        snapshot
        objects
    """,
    "trueodds/evaluation": """
        shift
        results shifted_logits
        measurement
        differences entries improvement splits
    """,
    "trueodds/importing": """
        calibrate command work
        candidates folding importer
        classes
        conversion
        scoring graph kinds
        logit_rows rows signature preprocessing texts
        tables onnx_file
        errors
    """,
    "trueodds/importing/texts": """
        lengths hostile
        hub_files
    """,
    "trueodds/client": """
        clients
        calls
        attempts instances observations
        answers queries
    """,
    "trueodds/metrics": """
        summary
        classwise decisions human_labels labelling
        binned decomposition smooth intervals significance
        alarms changes ranked
        scores
    """,
    "trueodds/metrics/decisions": """
        acting costs
        risk thresholds
    """,
    "trueodds/reports": """
        table
        checks composition
        page verdict
        estimands figures labelling slices
        data options times words
        schemas
    """,
    "trueodds/reports/schemas": """
        report
        figures groups
        alarm labelling
    """,
    "trueodds/reports/verdict": """
        headline
        rules
        cautions examples in_the_large
    """,
    "trueodds/reports/table": """
        command threshold compare_command
        report
        text matching reading acting
        answers comparing
        classes evaluation form
    """,
    "trueodds/reports/page": """
        rendering
        evidence expectation glossary state
        trend
    """,
    "pipeline": """
        __main__
        cli
        studies
        flows
        stages
        figures recalibrate
        export
        calibrate shift training
        methods
        nets
        data
        parameters foreign trial
        config
    """,
    "pipeline/export": """
        network quantised folded
        onnx_graph
    """,
    "pipeline/studies": """
        flow
        command
        reporting theory
        whole drawing
        shifted
        comparison printing tuning
        measuring choice
        running
        duration
        keys expansion
        format chance
        figure
    """,
    "pipeline/recalibrate": """
        loop standing
        judging
        state
        observed
        request
        comparison
        choice client gains turns
    """,
    "service": """
        __main__
        cli
        app
        report status infer observe
        predict labels
        alarm
        runtime
        bulk
        models http
        store
        errors ids settings telemetry
    """,
    "service/observe": """
        route kserve
        schemas storing inference_bodies
        parquet batches cloud_event
        formats
        observation parquet_file
    """,
    "service/bulk": """
        report
        lines
        refusals
    """,
    "service/cli": """
        serve key store replay
    """,
    "service/store": """
        housekeeping
        store
        reader
        sums_reader
        databases
        work
        label_rules
        rows
    """,
    "service/store/databases": """
        postgres_upgrade sqlite_upgrade
        postgres sqlite
        database schema sqlite_statements
    """,
    "service/store/work": """
        upgrading tag_places windows
        doubtful
        voiding
        predictions states pairs class_and_tag
        compaction labels reading
        maturing
        retention scoring versions
        period_sums
        deltas
        statements
    """,
    "service/report": """
        route
        data pages notes
        addresses query recent
    """,
    "service/alarm": """
        route rearming promise_watch
        watch
        readings promise_readings schemas forms
        advice webhooks
        state promise
        watched
        evidence
    """,
}
"""From the top down. Modules and packages on one line do not know each other; `__init__` stands above its folder."""
MOST_MODULES = 20
TORCH = (
    "pipeline/nets",
    "pipeline/methods",
    "pipeline/training",
    "pipeline/export",
    "pipeline/data/vision.py",
    "pipeline/figures/gamma.py",
    "pipeline/figures/soft_steps.py",
    "pipeline/figures/weights.py",
)
LIBRARY = {"numpy", "scipy", "pydantic", "yaml", "PIL"}
EXTRAS = {
    "bundle/bucket/objects.py": {"fsspec", "aiohttp", "botocore"},
    "client": {"httpx"},
    "reports/page": {"jinja2", "markupsafe"},
    "importing": {"onnx", "onnxruntime", "google"},
    "calibrated.py": {"sklearn"},
    "inputs/image": {"simplejpeg", "pyspng"},
    "inputs/columns.py": {"pyarrow"},
    "inputs/text/tokens.py": {"tokenizers"},
    "processes/progress.py": {"tqdm"},
}
"""What belongs to an extra, and where alone it is imported. google: protobuf, which brings what onnx raises."""


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def imports(path: Path) -> set[str]:
    """Dotted names that a file imports, wherever the import stands; type-checking ones too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def parts_of(folder: str) -> dict[str, set[str]]:
    """Each module or package of a folder, with those of the same folder that it imports."""
    place = ROOT / folder
    prefix = "" if folder == "." else folder.replace("/", ".") + "."
    parts: dict[str, set[str]] = {}
    for path in sources(folder) if folder != "." else [file for name in PACKAGES for file in sources(name)]:
        own = path.relative_to(place).parts[0].removesuffix(".py")
        others = parts.setdefault(own, set())
        for name in imports(path):
            if not name.startswith(prefix):
                continue
            other = name.removeprefix(prefix).partition(".")[0]
            if other != own and ((place / other).is_dir() or (place / f"{other}.py").is_file()):
                others.add(other)
    return parts


FOLDERS = sorted({str(path.parent.relative_to(ROOT)) for name in PACKAGES for path in sources(name)})


@pytest.mark.parametrize("folder", LAYERS)
def test_imports_run_downwards(folder: str) -> None:
    lines = [line.split() for line in LAYERS[folder].strip().splitlines()]
    height = {part: -k for k, line in enumerate(lines) for part in line}
    parts = parts_of(folder)
    if folder == ".":
        parts = {name: others & set(PACKAGES) for name, others in parts.items()}
    parts.pop("__init__", None)
    assert set(parts) == set(height), "a module or package without its place in LAYERS"
    upwards = {(part, other) for part, others in parts.items() for other in others if height[other] >= height[part]}
    assert upwards == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folder_has_a_circle_or_too_many_modules(folder: str) -> None:
    parts = parts_of(folder)
    try:
        list(TopologicalSorter(parts).static_order())
    except CycleError as error:
        pytest.fail(f"{folder}: {' -> '.join(error.args[1])}")
    assert len(parts) <= MOST_MODULES, f"{folder} has {len(parts)} modules and packages"


@pytest.mark.parametrize("path", sources("trueodds"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_library_needs_few_packages(path: Path) -> None:
    packages = {name.partition(".")[0] for name in imports(path)} - {"trueodds"}
    extra = next((names for place, names in EXTRAS.items() if path.is_relative_to(ROOT / "trueodds" / place)), set())
    assert packages <= LIBRARY | extra | sys.stdlib_module_names


def test_torch_stays_where_networks_are() -> None:
    users = {str(path.relative_to(ROOT)) for name in PACKAGES for path in sources(name) if imports_torch(path)}
    assert {user for user in users if not user.startswith(TORCH)} == set()


def imports_torch(path: Path) -> bool:
    return any(name.partition(".")[0] in ("torch", "torchvision") for name in imports(path))


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("service.app, service.cli.serve", {"torch", "prefect", "dvc", "matplotlib", "sklearn", "pipeline"}),
        (
            "trueodds.metrics, trueodds.calibrators, trueodds.bundle, trueodds.reports, pipeline.config",
            {"torch", "fastapi", "onnxruntime", "service", "scipy.stats"},
        ),
        ("pipeline.data", {"torch", "torchvision", "fastapi", "onnxruntime", "prefect", "matplotlib"}),
        (
            "pipeline.cli.recalibrate, pipeline.cli.versions, pipeline.cli.publish",
            {"torch", "fastapi", "onnxruntime", "prefect", "matplotlib"},
        ),
        (
            "pipeline.training.loop, pipeline.export.network, trueodds.evaluation.results, pipeline.stages",
            {"prefect", "dvc", "fastapi", "service"},
        ),
        ("pipeline.cli.stages, pipeline.cli.params", {"torch", "scipy", "numpy"}),
        ("service.cli.replay.command", {"uvicorn", "fastapi", "onnxruntime", "pydantic_settings"}),
        ("trueodds.__main__, pipeline.cli, service.cli", {"numpy", "pydantic", "yaml", "uvicorn"}),
    ],
)
def test_what_an_import_loads(module: str, unwanted: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not unwanted & set(done.stdout.split())
