"""python -m tools.starter: write pipeline/starter/ anew from the repository's params.yaml and dvc.yaml."""

from __future__ import annotations

import io
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from pipeline.cli.stages import FIT
from pipeline.starter import CODE, FILES, SOURCES
from tools import PACKAGES, ROOT

FOLDER = ROOT / "pipeline" / "starter"
HEADER = """\
# Made by `trueodds init`. Run `dvc repro`; change params.yaml; run it again.
# A stage runs when its parameters, its inputs or the installed code that it uses have changed. Stage `code` writes the
# hashes of that code and runs every time.
"""


def _is_code(dep: str) -> bool:
    return dep.partition("/")[0] in PACKAGES


def texts() -> dict[str, str]:
    """Return the files of the starter by name."""
    round_trip = YAML()
    round_trip.width = 120
    round_trip.indent(mapping=2, sequence=4, offset=2)
    graph = round_trip.load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    sources: dict[str, list[str]] = {}
    stages: dict[str, Any] = graph["stages"]
    for name, stage in stages.items():
        stage["cmd"] = f"trueodds {FIT if name == 'calibrate' else name}"
        sources[name] = [dep for dep in stage["deps"] if _is_code(dep)]
        stage["deps"][:] = [*(dep for dep in stage["deps"] if not _is_code(dep))]
        if sources[name]:
            stage["deps"].append(str(CODE / name))
    sources = {name: files for name, files in sources.items() if files}
    code = {
        "desc": "hash the installed code that each stage uses",
        "cmd": "trueodds code",
        "always_changed": True,
        "outs": [str(CODE / name) for name in sources],
    }
    stages.insert(0, "code", CommentedMap(code))  # type: ignore[attr-defined]  # a CommentedMap of ruamel's
    stream = io.StringIO()
    round_trip.dump(graph, stream)
    body = stream.getvalue()
    return {
        FILES["dvc.yaml"]: HEADER + body[body.index("stages:\n") :],
        FILES["params.yaml"]: (ROOT / "params.yaml").read_text(encoding="utf-8"),
        SOURCES: yaml.safe_dump(sources, sort_keys=False),
    }


if __name__ == "__main__":
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
