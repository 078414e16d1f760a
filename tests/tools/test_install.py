"""What `make setup` installs with: uv, told what pip's configuration says, and pip where uv cannot do it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT, environment
from tools.install import read_configuration, uv_options

LISTED = """\
:env:.find-links='/opt/wheels'
global.find-links='/elsewhere'
global.extra-index-url='https://one.example/simple https://two.example/simple'
global.cert='/etc/ca.crt'
freeze.all='true'
install.constraint='/etc/caps.txt'
"""


def test_uv_is_told_what_the_configuration_of_pip_says() -> None:
    configuration = read_configuration(LISTED)
    assert configuration["find-links"] == "/opt/wheels", "a variable is stronger than a file"
    assert "all" not in configuration, "it is no option of an installation"
    translated = uv_options(configuration)
    assert translated is not None
    options, variables = translated
    pairs = set(zip(options[::2], options[1::2], strict=True))
    assert pairs == {
        ("--index-strategy", "unsafe-best-match"),
        ("--find-links", "/opt/wheels"),
        ("--extra-index-url", "https://one.example/simple"),
        ("--extra-index-url", "https://two.example/simple"),
        ("--constraint", "/etc/caps.txt"),
    }
    assert variables == {"SSL_CERT_FILE": "/etc/ca.crt"}


@pytest.mark.parametrize("option", ["trusted-host", "no-index", "only-binary", "pre", "proxy"])
def test_an_option_that_decides_otherwise_is_left_to_pip(option: str) -> None:
    assert uv_options(read_configuration(f"global.{option}='x'\nglobal.timeout='9'\n")) is None
    assert uv_options(read_configuration("global.timeout='9'\n")) is not None


@pytest.mark.full
@pytest.mark.parametrize(
    ("more", "installer", "words"),
    [
        ((), "uv", ""),
        (("--no-warn-script-location",), "pip", "Pip installs the packages, because uv cannot do it here."),
    ],
)
def test_a_wheel_is_installed(more: tuple[str, ...], installer: str, words: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in {
            "tiny.py": "",
            "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
            "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "tiny-1.0.dist-info/RECORD": "",
        }.items():
            wheel.writestr(name, text)
    to = ("--target", str(tmp_path / "to"), "--no-index", "--find-links", str(tmp_path), *more)
    command = [sys.executable, "tools/install.py", *to, "tiny"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "to" / "tiny.py").is_file()
    assert (tmp_path / "to" / "tiny-1.0.dist-info" / "INSTALLER").read_text().strip() == installer
    assert words in done.stderr
