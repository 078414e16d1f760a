"""Corruptions: against slow twins and, where it is installed, PyPI's imagecorruptions; what a user may count on."""

from __future__ import annotations

import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pipeline.data.corruptions import (
    CIFAR,
    COMMON,
    EXTRA,
    IMAGENET,
    NAMES,
    SEVERITIES,
    check,
    corrupt,
    filters,
    spatter,
    table_of,
    textures,
)
from pipeline.data.corruptions.corrupt import FUNCTIONS
from tests import reference_corruptions as reference
from trueodds.errors import ConfigError

Images = npt.NDArray[np.uint8]
RANDOM = {
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "speckle_noise",
    "glass_blur",
    "motion_blur",
    "fog",
    "spatter",
}
"""Whose draws come in the published order, so that the same generator makes the same image."""
FIXED = {"brightness", "contrast", "defocus_blur", "gaussian_blur", "saturate", "jpeg_compression", "pixelate"}
"""Without a random part, and with the same numbers there as in the published code."""


def photo(edge: int, channels: int = 3, rows: int = 2) -> Images:
    """Smooth gradients with edges, as photographs have them; always the same."""
    down, across = np.indices((edge, edge)) / edge
    waves = [np.sin(4 * across + 3 * down + phase) + (across > 0.3 + 0.2 * phase) for phase in range(channels)]
    image = np.stack(waves, -1)
    image = 255 * (image - image.min()) / np.ptp(image)
    return np.stack([np.roll(image, 5 * row, 0) for row in range(rows)]).astype(np.uint8)


@pytest.mark.parametrize("name", NAMES)
def test_any_size_and_any_severity(name: str) -> None:
    for edge, channels in ((8, 1), (32, 3)):
        clean = photo(edge, channels)
        changed = [corrupt(clean, name, severity) for severity in SEVERITIES]
        assert all(one.shape == clean.shape and one.dtype == np.uint8 for one in changed)
        if (name, channels) != ("saturate", 1):
            assert any((one != clean).any() for one in changed)
        np.testing.assert_array_equal(changed[2], corrupt(clean, name, 3))


@pytest.mark.parametrize("name", NAMES)
def test_a_row_does_not_depend_on_those_beside_it(name: str) -> None:
    clean = photo(32, rows=3)
    whole = corrupt(clean, name, 4, seed=5)
    np.testing.assert_array_equal(corrupt(clean[[2, 0]], name, 4, seed=5, rows_N=np.array([2, 0])), whole[[2, 0]])


def test_a_seed_of_its_own_is_another_noise() -> None:
    clean = photo(32)
    assert (corrupt(clean, "fog", 2, seed=1) != corrupt(clean, "fog", 2, seed=2)).any()


@pytest.mark.parametrize("table", [CIFAR, IMAGENET], ids=lambda table: table.name)
def test_every_corruption_has_five_rows_of_parameters(table: Any) -> None:
    assert tuple(table.rows) == NAMES == (*COMMON, *EXTRA) == tuple(FUNCTIONS)
    assert all(len(rows) == 5 and len({len(row) for row in rows}) == 1 for rows in table.rows.values())
    assert len(COMMON) == 15 and len(EXTRA) == 4


def test_the_size_chooses_the_table() -> None:
    assert [table_of(edge, 20).name for edge in (8, 32, 63, 64, 224)] == [
        "cifar",
        "cifar",
        "cifar",
        "imagenet",
        "imagenet",
    ]
    assert table_of(20, 64) is IMAGENET


def test_what_is_no_corruption_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown corruption 'fogg'; allowed: gaussian_noise, .* Did you mean 'fog'\?"
    ):
        check(["fogg"])
    with pytest.raises(ConfigError, match="severity 6 of a corruption is unknown; allowed are 1 to 5"):
        corrupt(photo(8), "fog", 6)


def test_noise_has_the_published_strength() -> None:
    grey = np.full((4, 32, 32, 3), 128, np.uint8)
    for name, spread in (
        ("gaussian_noise", 0.10),
        ("speckle_noise", 0.2 * 128 / 255),
        ("shot_noise", (128 / 255 / 50) ** 0.5),
    ):
        assert corrupt(grey, name, 5).std() / 255 == pytest.approx(spread, rel=0.03), name
    lost = corrupt(grey, "impulse_noise", 5)
    assert (lost != 128).mean() == pytest.approx(0.07, rel=0.1)
    assert set(np.unique(lost)) == {0, 128, 255}


@pytest.mark.parametrize("severity", SEVERITIES)
def test_zoom_blur_is_the_mean_of_scipys_zooms(severity: int) -> None:
    clean = photo(32, rows=1)
    end, step = CIFAR.rows["zoom_blur"][severity - 1]
    factors = np.arange(1, end, step)
    layers = [clean[0] / 255, *(reference.clipped_zoom(clean[0] / 255, factor) for factor in factors)]
    np.testing.assert_allclose(corrupt(clean, "zoom_blur", severity)[0], np.mean(layers, 0) * 255, atol=1.001)


@pytest.mark.parametrize("factor", [1, 1.25, 1.75, 2.25, 4.5])
def test_a_zoom_is_scipys(factor: float) -> None:
    image = np.random.default_rng(1).random((1, 32, 32, 1))
    np.testing.assert_allclose(filters.zoom(image, factor)[0], reference.clipped_zoom(image[0], factor), atol=1e-12)


@pytest.mark.parametrize("degrees", [-135, -60, 0, 30.5, 45])
def test_motion_is_a_sum_along_a_line(degrees: float) -> None:
    image = np.random.default_rng(2).random((9, 11))
    np.testing.assert_allclose(
        filters.motion(image, 4, 2.0, degrees), reference.motion(image, 4, 2.0, degrees), atol=1e-12
    )


def test_motion_ends_where_the_image_does() -> None:
    image = np.random.default_rng(2).random((5, 5))
    np.testing.assert_allclose(filters.motion(image, 9, 3.0, 10), reference.motion(image, 9, 3.0, 10), atol=1e-12)


@pytest.mark.parametrize("parameters", [*CIFAR.rows["defocus_blur"], *IMAGENET.rows["defocus_blur"]])
def test_defocus_is_a_sum_over_a_disk(parameters: tuple[float, float]) -> None:
    image, kernel = np.random.default_rng(3).random((1, 40, 36, 2)), filters.disk(*parameters)
    assert kernel.sum() == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(filters.correlate(image, kernel)[0], reference.correlated(image[0], kernel), atol=1e-12)


def test_colours_by_way_of_hue_saturation_and_value() -> None:
    image = np.random.default_rng(4).integers(0, 256, (1, 6, 6, 3)).astype(np.uint8)
    image[0, 0, :3] = [[0, 0, 0], [90, 90, 90], [255, 255, 255]]
    for severity in SEVERITIES:
        saturated = reference.saturated(image[0], *CIFAR.rows["saturate"][severity - 1])
        np.testing.assert_allclose(corrupt(image, "saturate", severity)[0], saturated, atol=1.001)
        brighter = reference.brighter(image[0], *CIFAR.rows["brightness"][severity - 1])
        np.testing.assert_allclose(corrupt(image, "brightness", severity)[0], brighter, atol=1.001)


def test_elastic_without_movement_is_the_image() -> None:
    still, clean = [np.random.default_rng(0)], photo(32, rows=1)
    np.testing.assert_allclose(FUNCTIONS["elastic_transform"](clean, (0, 0, 0), still), clean, atol=1e-9)


def test_elastic_moves_a_corner_to_its_new_place() -> None:
    """The affine part alone: what stood at the three points stands where they were drawn to."""
    clean = photo(64, rows=1)
    draw = np.random.default_rng(7).uniform(-0.08 * 64, 0.08 * 64, (3, 2))
    moved = FUNCTIONS["elastic_transform"](clean, (0, 0, 0.08), [np.random.default_rng(7)])
    for corner, shift in zip([(53, 53), (53, 11), (11, 11)], draw, strict=True):
        across, down = np.round(corner + shift).astype(int)
        assert np.abs(moved[0, down, across] - clean[0, corner[1], corner[0]]).max() < 30


def test_fog_goes_on_over_its_edges_and_ice_is_always_the_same() -> None:
    heights = textures.plasma(32, 1.75, np.random.default_rng(0))
    assert heights.min() == 0 and heights.max() == 1
    inside = np.abs(np.diff(heights, axis=0)).mean()
    assert np.abs(heights[0] - heights[-1]).mean() < 2 * inside
    assert [textures.power_of_two(edge) for edge in (1, 8, 9, 32, 224)] == [2, 8, 16, 32, 256]
    for texture, (mean, _) in zip(textures.ice(128), textures.ICE, strict=True):
        np.testing.assert_allclose(texture.mean((0, 1)), mean, atol=6)


def test_edges_of_a_square_are_one_pixel_wide() -> None:
    image = np.zeros((12, 12), np.uint8)
    image[3:9, 3:9] = 200
    found = spatter.edges(image)
    assert found[3:9, 2:4].any(1).all() and not found[5, 4:8].any() and found.sum() < 40
    assert not spatter.edges(np.full((5, 5), 9, np.uint8)).any()
    np.testing.assert_array_equal(spatter.equalise(np.full((2, 2), 7, np.uint8)), 7)


@pytest.fixture(scope="module")
def oracle() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: ModuleType = pytest.importorskip(
            "imagecorruptions.corruptions", reason="PyPI's imagecorruptions is not installed"
        )
    return module


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", [*sorted(RANDOM), *sorted(FIXED)])
def test_as_imagecorruptions_has_it(
    oracle: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, severity: int
) -> None:
    """On the same draws, to one level of 255; of spatter's water, whose distances are approximate there, on average."""
    clean, generator = photo(96, rows=1), np.random.default_rng(11)
    numbers = SimpleNamespace(
        normal=generator.normal, poisson=generator.poisson, uniform=generator.uniform, randint=generator.integers
    )
    monkeypatch.setattr(oracle.np, "random", numbers)
    monkeypatch.setattr(oracle.np, "float_", np.float64, raising=False)  # gone with numpy 2
    blur = oracle.gaussian

    def gaussian(
        image: Any, sigma: Any, multichannel: bool = False, **rest: Any
    ) -> Any:  # renamed in scikit-image 0.19
        return blur(image, sigma=sigma, channel_axis=-1 if multichannel else None, **rest)

    monkeypatch.setattr(oracle, "gaussian", gaussian)
    monkeypatch.setattr(oracle.sk.util, "random_noise", lambda x, mode, amount: salted(x, amount, generator))
    expected = np.asarray(getattr(oracle, name)(Image.fromarray(clean[0]), severity)).astype(np.uint8).astype(float)
    monkeypatch.undo()
    parameters = IMAGENET.rows[name][severity - 1]
    ours = FUNCTIONS[name](clean, parameters, [np.random.default_rng(11)])[0].astype(np.uint8).astype(float)
    off = np.abs(ours - expected)
    if name == "spatter":
        assert off.mean() < 2
    else:
        assert off.max() <= 1


def salted(image: npt.NDArray[np.float64], amount: float, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """scikit-image's random_noise of mode s&p, which takes no generator from numpy's global state any more."""
    lost, white = generator.random(image.shape) <= amount, generator.random(image.shape) <= 0.5
    return np.where(lost, white.astype(float), image)
