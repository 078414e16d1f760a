from __future__ import annotations

import pytest

from pipeline import nets
from pipeline.__main__ import main
from pipeline.nets import sizes


def test_operations_by_hand() -> None:
    """MLP of 30 features: two operations a weight. ResNet-8: a multiplication and an addition a weight and a pixel."""
    assert sizes.size(nets.resolve("mlp")).flops == 2 * (30 * 64 + 64 * 64 + 64 * 100)
    stages = [(32, 3 * 16 + 2 * 16 * 16), (16, 16 * 32 + 32 * 32), (8, 32 * 64 + 64 * 64)]
    pixels = sum(side**2 * 9 * weights for side, weights in stages) + 16**2 * 16 * 32 + 8**2 * 32 * 64
    assert sizes.size(nets.resolve("resnet8")).flops == 2 * (pixels + 64 * 100)


@pytest.mark.full
def test_the_command_lists_every_net(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nets"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split("  ")[0] == "net" and [line.split()[0] for line in lines] == nets.names()
    assert "resnet50              23,705,252        2,596  images; width=64, depth=3-4-6-3" in lines


def test_speed_is_measured_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(nets, "SHAPES", {"mlp": nets.resolve("mlp")})
    assert main(["nets", "--measure"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert "rows/s here" in header and float(line.split()[3].replace(",", "")) > 100
