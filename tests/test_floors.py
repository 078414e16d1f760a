"""Who may import whom, held by reading every import in the code and by really importing it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS: dict[int, set[str]] = {
    0: {
        "bundle",
        "calibrators",
        "config",
        "errors",
        "files",
        "history",
        "lifeline",
        "logits",
        "metrics",
        "model_folder",
        "parameters",
        "pictures",
        "png",
        "privacy",
        "provenance",
        "publishing",
        "selective",
        "texts",
    },
    1: {"curves", "data", "methods", "nets", "progress", "recipes"},
    2: {"checkpoint", "evaluate", "export", "quantise", "recalibrate", "report", "train"},
    3: {"stages"},
    4: {"__main__", "commands", "demo", "doctor", "flows", "isolated", "listing", "live_demo", "serving"},
}
FLOOR_OF = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
FLOOR_0_PACKAGES = {"numpy", "scipy", "pydantic", "yaml", "PIL", "simplejpeg"}


def imports(path: Path) -> set[str]:
    """Dotted names that a file imports, wherever the import stands; type-checking ones too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(path: Path) -> str:
    return path.relative_to(ROOT / "pipeline").parts[0].removesuffix(".py")


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def test_every_room_has_a_floor() -> None:
    rooms = {room(path) for path in sources("pipeline")} - {"__init__"}
    assert rooms == set(FLOOR_OF)


@pytest.mark.parametrize("path", sources("pipeline"), ids=lambda p: str(p.relative_to(ROOT)))
def test_pipeline_imports_downwards_only(path: Path) -> None:
    own = FLOOR_OF.get(room(path), 0)
    for name in imports(path):
        package, _, rest = name.partition(".")
        assert package != "service", f"{path} imports {name}: the pipeline never imports the service"
        if package == "pipeline":
            target = rest.split(".")[0]
            assert FLOOR_OF[target] <= own, f"{path} (floor {own}) imports {name} (floor {FLOOR_OF[target]})"
        elif own == 0:
            assert package in FLOOR_0_PACKAGES | sys.stdlib_module_names, f"{path} (floor 0) imports {name}"


@pytest.mark.parametrize("path", sources("service"), ids=lambda p: str(p.relative_to(ROOT)))
def test_service_imports_floor_0_only(path: Path) -> None:
    for name in imports(path):
        package, _, rest = name.partition(".")
        if package == "pipeline":
            assert FLOOR_OF[rest.split(".")[0]] == 0, f"{path} imports {name}"


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("service.app", {"torch", "prefect", "dvc", "matplotlib", "sklearn"}),
        ("service.__main__", {"torch", "prefect", "dvc", "matplotlib", "sklearn"}),
        (
            "pipeline.metrics, pipeline.calibrators, pipeline.bundle, pipeline.config",
            {"torch", "fastapi", "onnxruntime"},
        ),
        ("pipeline.commands, pipeline.recalibrate", {"torch", "fastapi", "onnxruntime", "prefect", "matplotlib"}),
        ("pipeline.train, pipeline.export, pipeline.evaluate, pipeline.stages", {"prefect", "dvc", "fastapi"}),
    ],
)
def test_what_an_import_loads(module: str, unwanted: set[str]) -> None:
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not unwanted & set(done.stdout.split())
