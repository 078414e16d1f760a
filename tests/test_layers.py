"""Import rules, folder by folder: docs/explanation/architecture.md, held by every import in the code and by real ones.

An import inside a function and one under TYPE_CHECKING count like all others.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tools import PACKAGES, ROOT
from tools.imports import circle, folder_parts, imported_files, imports, sources
from trueodds.inputs import SERVED

LAYERS = {
    ".": """
        pipeline service
        trueodds
    """,
    "trueodds": """
        cli
        importing replay
        client
        reports
        drawing
        bundle evaluation
        calibrators
        logits metrics
        inputs
        sums
        processes
        errors
    """,
    "trueodds/calibrators": """
        conformal selection
        affine
        fitting
    """,
    "trueodds/inputs": """
        image vector text decisions
    """,
    "trueodds/metrics": """
        decisions labelling
        intervals significance
        alarms
    """,
    "trueodds/reports": """
        warehouse
        table
        display
        page
        verdict
        before_labels
        schemas
    """,
    "pipeline": """
        cli
        studies starter
        flows
        stages
        figures recalibrate
        export
        training
        methods
        nets
        data published_data
        config
    """,
    "pipeline/methods": """
        catalogue
        losses meta
        labels penalties views
    """,
    "service": """
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
    "service/store": """
        databases
        work
    """,
}
"""The layers of a folder from the top down. Parts on one line do not know each other.

Every package that stands in one of these folders has its place, and a module only where its place says something."""
MOST_MODULES = 19
"""In a folder, beside the doors of a package: `__init__` and `__main__`."""
TORCH = (
    "pipeline/nets",
    "pipeline/methods",
    "pipeline/training",
    "pipeline/export",
    "pipeline/data/vision.py",
    "pipeline/figures/gamma_diagram.py",
    "pipeline/figures/soft_steps.py",
    "pipeline/figures/weights.py",
)
LIBRARY = {"numpy", "scipy", "pydantic", "yaml", "PIL"}
EXTRAS = {
    "bundle/storage/objects.py": {"fsspec", "aiohttp", "botocore"},
    "client/streams/telemetry.py": {"prometheus_client"},
    "client/streams/broker.py": {"confluent_kafka"},
    "client": {"httpx"},
    "cli/completion.py": {"shtab"},
    "reports/page": {"jinja2", "markupsafe"},
    "reports/warehouse/databases.py": {"ibis", "pyarrow", "sqlglot", "psycopg", "clickhouse_connect"},
    "reports/warehouse": {"ibis", "pyarrow"},
    "reports/table/stored_sums.py": {"pyarrow"},
    "reports/display/report_files.py": {"matplotlib"},
    "importing": {"onnx", "onnxruntime", "google"},
    "calibrated.py": {"sklearn"},
    "inputs/image": {"simplejpeg", "pyspng"},
    "inputs/columns.py": {"pyarrow"},
    "inputs/text/tokens.py": {"tokenizers"},
    "processes/progress.py": {"tqdm"},
}
"""What belongs to an extra, and where alone it is imported. google: protobuf, which brings what onnx raises."""


FOLDERS = sorted({str(path.parent.relative_to(ROOT)) for package in PACKAGES for path in sources(ROOT, package)})
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
LISTED = dedent(PAGE.partition("never each other.\n\n")[2].partition("\n\nImports")[0])
"""The packages as the page lists them: a paragraph for each package, a line for each of its parts."""
MADE = {"logits.npz", "model.onnx", "calibrator.json", "card.json", "MODEL_CARD.md"}
"""Files that the page names and a run makes."""


def packages(folder: str) -> set[str]:
    """Return the packages that stand in a folder."""
    return {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")} if folder != "." else set(PACKAGES)


def reached(parts: dict[str, set[str]], part: str) -> set[str]:
    """Return what a part imports, and what that imports, to the ground."""
    found: set[str] = set()
    waiting = [part]
    while waiting:
        new = parts[waiting.pop()] - found
        found |= new
        waiting += new
    return found


@pytest.mark.parametrize("folder", LAYERS)
def test_imports_run_downwards(folder: str) -> None:
    lines = [line.split() for line in LAYERS[folder].strip().splitlines()]
    height = {part: -k for k, line in enumerate(lines) for part in line}
    parts = folder_parts(ROOT, folder)
    assert packages(folder) <= set(height), "a package without its place in LAYERS"
    assert set(height) <= set(parts), "LAYERS names what is not there"
    below = {part: reached(parts, part) & set(height) for part in height}
    assert {(part, other) for part in height for other in below[part] if height[other] >= height[part]} == set()


def test_no_package_imports_what_stands_beside_the_packages() -> None:
    beside = re.compile(r"(tools|benchmarks|tests|docs|examples)(\.|$)")
    assert [path for path in imported_files(ROOT) if any(beside.match(name) for name in imports(path))] == []


def test_no_file_imports_itself_by_way_of_others() -> None:
    assert [str(path.relative_to(ROOT)) for path in circle(imported_files(ROOT))] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folder_has_a_circle_or_too_many_modules(folder: str) -> None:
    parts = folder_parts(ROOT, folder)
    assert circle(parts) == []
    rooms = parts.keys() - {"__init__", "__main__"}
    assert len(rooms) <= MOST_MODULES, f"{folder} has {len(rooms)} modules and packages"


def test_the_page_lists_every_package_and_nothing_else() -> None:
    listed = set()
    for block in LISTED.split("\n\n"):
        package, *parts = [line.split()[0].removesuffix("/") for line in block.splitlines()]
        listed |= {package, *(f"{package}/{part}" for part in parts)}
    assert [place for place in sorted(listed) if not (ROOT / place).exists()] == []
    there = {f"{package}/{name}" for package in PACKAGES for name in packages(package)} | set(PACKAGES)
    assert sorted(there - listed) == []


def test_the_page_names_the_files_that_are_there() -> None:
    names = {name for name in re.findall(r"`([\w./-]+)`", PAGE) if re.search(r"\w[./]", name)} - MADE
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


def test_the_page_names_every_kind_of_input() -> None:
    (kinds,) = re.findall(r"\(`trueodds/inputs`: ([^)]*)\)", PAGE)
    assert set(kinds.split(", ")) == SERVED


@pytest.mark.parametrize("path", sources(ROOT, "trueodds"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_library_needs_few_packages(path: Path) -> None:
    packages = {name.partition(".")[0] for name in imports(path)} - {"trueodds"}
    extra = next((names for place, names in EXTRAS.items() if path.is_relative_to(ROOT / "trueodds" / place)), set())
    assert packages <= LIBRARY | extra | sys.stdlib_module_names


def test_torch_stays_where_networks_are() -> None:
    users = {str(path.relative_to(ROOT)) for path in imported_files(ROOT) if imports_torch(path)}
    assert {user for user in users if not user.startswith(TORCH)} == set()


def imports_torch(path: Path) -> bool:
    return any(name.partition(".")[0] in ("torch", "torchvision") for name in imports(path))


@pytest.mark.full
@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        (
            "service.app, service.cli.serving",
            {"torch", "prefect", "dvc", "matplotlib", "sklearn", "pipeline", "scipy.optimize", "scipy.interpolate"},
        ),
        (
            "trueodds.metrics, trueodds.calibrators, trueodds.bundle, trueodds.reports, pipeline.config",
            {"torch", "fastapi", "onnxruntime", "service", "scipy.stats", "scipy.optimize", "scipy.interpolate"},
        ),
        ("pipeline.data", {"torch", "torchvision", "fastapi", "onnxruntime", "prefect", "matplotlib"}),
        (
            "pipeline.cli.recalibrate, pipeline.cli.versions, pipeline.cli.publish",
            {"torch", "fastapi", "onnxruntime", "prefect", "matplotlib"},
        ),
        (
            "pipeline.training.loop, pipeline.export.to_bundle, trueodds.evaluation.results, pipeline.stages",
            {"prefect", "dvc", "fastapi", "service"},
        ),
        ("pipeline.cli.stages, pipeline.cli.params", {"torch", "scipy", "numpy"}),
        ("trueodds.cli.replay", {"uvicorn", "fastapi", "onnxruntime", "pydantic_settings"}),
        ("trueodds.cli.consume", {"confluent_kafka", "prometheus_client", "httpx", "numpy"}),
        ("trueodds.__main__, pipeline.cli, service.cli", {"numpy", "pydantic", "yaml", "uvicorn"}),
    ],
)
def test_what_an_import_loads(module: str, unwanted: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not unwanted & set(done.stdout.split())
