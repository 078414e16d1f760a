"""Encoded images: exact where the format is, one reading for all modes, and nothing but PictureError for bad bytes."""

from __future__ import annotations

import io
import tracemalloc
import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.png_files import png_chunk, png_header, png_of_rows
from trueodds.inputs.image import formats, pictures, png
from trueodds.inputs.image.pictures import PictureError, Scaling

Pixels = npt.NDArray[np.uint8]


def noise(height: int = 5, width: int = 7, channels: int = 3) -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3]))
def test_png_is_exact(height: int, width: int, channels: int) -> None:
    pixels = noise(height, width, channels)
    decoded = pictures.read(pictures.encode_png(pixels), channels)
    assert decoded.dtype == np.uint8
    assert np.array_equal(decoded, pixels)


def test_from_a_path(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(pictures.encode_png(noise()))
    assert np.array_equal(pictures.read(path, 3), noise())
    with pytest.raises(FileNotFoundError):
        pictures.read(tmp_path / "none.png", 3)


def test_jpeg_is_near() -> None:
    ramp = np.repeat(np.linspace(0, 255, 32).astype(np.uint8)[None, :, None], 32, axis=0).repeat(3, axis=2)
    decoded = pictures.read(encoded(Image.fromarray(ramp), "JPEG", quality=95), 3)
    assert decoded.shape == (32, 32, 3)
    assert np.abs(decoded.astype(int) - ramp).max() <= 6


def test_grey_and_colour_convert() -> None:
    grey, colour = noise(channels=1), noise()
    assert np.array_equal(pictures.read(pictures.encode_png(grey), 3), grey.repeat(3, axis=2))
    luminance = colour @ np.array([0.299, 0.587, 0.114])
    assert np.abs(pictures.read(pictures.encode_png(colour), 1)[..., 0] - luminance).max() <= 1


def test_alpha_is_dropped_not_blended() -> None:
    rgba = np.dstack([noise(), np.zeros((5, 7), np.uint8)])
    assert np.array_equal(pictures.read(encoded(Image.fromarray(rgba)), 3), noise())
    grey_alpha = Image.merge("LA", [Image.fromarray(noise(channels=1)[..., 0]), Image.new("L", (7, 5))])
    assert np.array_equal(pictures.read(encoded(grey_alpha), 1), noise(channels=1))


def test_palette_and_one_bit() -> None:
    few = (noise() // 128 * 255).astype(np.uint8)
    palette = Image.fromarray(few).quantize(8)
    assert np.array_equal(pictures.read(encoded(palette), 3), np.asarray(palette.convert("RGB")))
    assert np.abs(pictures.read(encoded(palette), 3).astype(int) - few).max() <= 1
    bits = Image.fromarray(few[..., 0]).convert("1")
    assert np.array_equal(pictures.read(encoded(bits), 1)[..., 0], few[..., 0])


@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bits_keep_the_high_eight(channels: int) -> None:
    """Pillow's own convert clips: 256 of 65,535, nearly black, would be white."""
    deep = np.array([[0, 255, 256, 32_768, 65_535]], dtype=np.uint16)
    decoded = pictures.read(encoded(Image.fromarray(deep)), channels)
    assert decoded.shape == (1, 5, channels)
    assert decoded[0, :, 0].tolist() == [0, 0, 1, 128, 255]


def test_cmyk_jpeg_is_read() -> None:
    white = Image.new("CMYK", (4, 4), (0, 0, 0, 0))
    assert pictures.read(encoded(white, "JPEG"), 3).min() >= 250


def test_exif_orientation_is_applied() -> None:
    """As every viewer does; a folder's images and the service's requests are read alike."""
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise to view
    turned = encoded(Image.fromarray(noise(6, 10)), "JPEG", exif=exif)
    plain = pictures.read(encoded(Image.fromarray(noise(6, 10)), "JPEG"), 3)
    assert np.array_equal(pictures.read(turned, 3), np.rot90(plain, -1))
    with Image.open(io.BytesIO(turned)) as image:
        assert (image.size, pictures.upright_size(image)) == ((10, 6), (6, 10))
    with Image.open(io.BytesIO(encoded(Image.fromarray(noise(6, 10)), "PNG"))) as image:
        assert pictures.upright_size(image) == (10, 6)


@pytest.mark.parametrize(("width", "height"), [(30, 10), (10, 30)])
def test_the_centre_square_is_cut(width: int, height: int) -> None:
    pixels = np.zeros((height, width, 3), np.uint8)
    long = 1 if width > height else 0
    np.moveaxis(pixels, long, 0)[10:20] = 200
    decoded = pictures.read(pictures.encode_png(pixels), 3, Scaling(10))
    assert (decoded == 200).all()
    assert decoded.shape == (10, 10, 3)


def test_scaling() -> None:
    flat = np.full((40, 20, 1), 77, np.uint8)
    assert (pictures.read(pictures.encode_png(flat), 1, Scaling(8)) == 77).all()
    assert pictures.read(pictures.encode_png(flat), 1, Scaling(8)).shape == (8, 8, 1)
    assert pictures.read(pictures.encode_png(flat[:1, :1]), 1, Scaling(8)).shape == (8, 8, 1)
    ramp = np.repeat(np.arange(0, 256, 8, dtype=np.uint8)[None, :, None], 32, axis=0)
    halved = pictures.read(pictures.encode_png(ramp), 1, Scaling(16))[0, 1:-1, 0].astype(int)
    assert set(np.diff(halved)) == {16}  # bilinear with support 2: a ramp stays a ramp away from the rim
    assert np.array_equal(pictures.read(pictures.encode_png(noise(8, 8)), 3, Scaling(8)), noise(8, 8))


def test_a_long_thin_image_does_not_explode() -> None:
    thin = encoded(Image.new("L", (1_000_000, 1)))
    tracemalloc.start()
    assert pictures.read(thin, 1, Scaling(224)).shape == (224, 224, 1)  # scaled before cutting: 50 GB
    tracemalloc.stop()


@pytest.mark.parametrize("side", [5_000, 12_000, 60_000, 2**31 - 1])
@pytest.mark.parametrize("colours", [2, 6])
def test_a_bomb_is_refused_by_its_header(side: int, colours: int) -> None:
    data = png_header(side, side, colours)
    assert len(data) < 100
    pillow_reads = colours == 6
    pillow_warns = pytest.warns(Image.DecompressionBombWarning) if pillow_reads and side == 12_000 else nullcontext()
    with pillow_warns, pytest.raises(PictureError, match=r"pixels; the limit is 16,777,216. Scale it down first"):
        pictures.read(data, 3)


@pytest.mark.filterwarnings("error")
def test_a_bomb_where_warnings_are_errors() -> None:
    with pytest.raises(PictureError, match="too many pixels"):
        pictures.read(png_header(12_000, 12_000, colours=6), 3)


def test_the_limit_is_inclusive() -> None:
    data = pictures.encode_png(noise(5, 7))
    assert pictures.read(data, 3, max_pixels=35).shape == (5, 7, 3)
    with pytest.raises(PictureError, match="7 x 5 = 35 pixels; the limit is 34"):
        pictures.read(data, 3, max_pixels=34)


@pytest.mark.parametrize("data", [b"", b"not an image", b"\x89PNG\r\n\x1a\n", encoded(Image.new("L", (2, 2)), "PPM")])
def test_not_an_image(data: bytes) -> None:
    with pytest.raises(PictureError, match=formats.ALLOWED):
        pictures.read(data, 3)


EXACT = {"WEBP": {"lossless": True}, "TIFF": {}, "BMP": {}}


@pytest.mark.parametrize("kind", EXACT)
def test_other_formats_are_exact(kind: str) -> None:
    pixels = noise(16, 9)
    data = encoded(Image.fromarray(pixels), kind, **EXACT[kind])
    assert np.array_equal(pictures.read(data, 3), pixels)
    with pytest.raises(PictureError, match="9 x 16 = 144 pixels; the limit is 143"):
        pictures.read(data, 3, max_pixels=143)
    for length in (0, 10, len(data) // 2, len(data) - 40):
        with pytest.raises(PictureError):
            pictures.read(data[:length], 3)


def test_a_gif_is_read_and_an_avif_where_pillow_reads_it() -> None:
    grey = np.repeat(noise(16, 9, 1), 3, axis=2)
    data = encoded(Image.fromarray(grey[..., 0]), "GIF")
    assert np.array_equal(pictures.read(data, 3), grey)
    for length in (10, len(data) // 2):
        with pytest.raises(PictureError):
            pictures.read(data[:length], 3)
    if "AVIF" in formats.readable():
        smooth = np.full((16, 16, 3), 100, np.uint8)
        assert np.abs(pictures.read(encoded(Image.fromarray(smooth), "AVIF"), 3).astype(int) - 100).max() <= 3


@pytest.mark.parametrize(("kind", "what"), [("GIF", "frames"), ("TIFF", "pages"), ("WEBP", "frames")])
def test_several_frames_are_refused(kind: str, what: str) -> None:
    first, second = (Image.fromarray(np.full((8, 8, 3), value, np.uint8)) for value in (0, 200))
    data = encoded(first, kind, save_all=True, append_images=[second])
    with pytest.raises(
        PictureError, match=f"the {kind} has several {what}; expected one: save the right one as a separate file"
    ):
        pictures.read(data, 3)


def test_what_is_not_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "readable", lambda: formats.BASIC)
    for brand, name, package in ((b"heic", "HEIC", "pillow-heif"), (b"avif", "AVIF", "pillow-avif")):
        data = b"\0\0\0\x18ftyp" + brand + bytes(40)
        words = f"the image is {name}, which is not read here: convert it to PNG or JPEG, or pip install {package}"
        with pytest.raises(PictureError, match=words):
            pictures.read(data, 3)
    with pytest.raises(PictureError, match=r"pixels of 32 bits \(mode F\); convert it to 8 or 16 bits"):
        pictures.read(encoded(Image.fromarray(np.zeros((4, 4), np.float32)), "TIFF"), 1)


@pytest.mark.parametrize("lossless", [True, False])
def test_a_webp_bomb_costs_nothing(lossless: bool) -> None:
    data = bytearray(encoded(Image.new("RGB", (2, 2)), "WEBP", lossless=lossless))
    data[12:30] = b"VP8X" + (10).to_bytes(4, "little") + bytes(4) + b"\xfe\x3f\0" + b"\xfe\x3f\0"
    tracemalloc.start()
    with pytest.raises(PictureError, match="16383 x 16383"):
        pictures.read(bytes(data), 3)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_every_truncation_is_refused_or_harmless(kind: str) -> None:
    data = encoded(Image.fromarray(noise(16, 16)), kind)
    whole, refused = pictures.read(data, 3), 0
    for length in range(len(data)):
        try:
            assert np.array_equal(pictures.read(data[:length], 3), whole), length  # only an end mark was missing
        except PictureError:
            refused += 1
    assert refused >= len(data) - 20  # checksums and end marks


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(
    ("colours", "bits"), [(0, 1), (0, 8), (0, 16), (2, 8), (2, 16), (3, 4), (3, 8), (4, 8), (6, 8)]
)
def test_a_png_with_fewer_rows_than_its_header_says_is_refused(colours: int, bits: int, interlaced: bool) -> None:
    """Its checksums are sound; Pillow's decoder ends in silence, and leaves the missing rows black."""
    for width, height in ((1, 1), (3, 2), (9, 9), (20, 5)):
        whole = png_of_rows(width, height, colours=colours, bits=bits, interlaced=interlaced)
        assert pictures.read(whole, 1).shape == (height, width, 1)
        for rows in {0, height - 1}:
            short = png_of_rows(width, height, colours=colours, bits=bits, interlaced=interlaced, rows=rows)
            with pytest.raises(PictureError, match=f"cut short .its data end before row {height}, the last"):
                pictures.read(short, 1)


def test_a_black_png_is_whole() -> None:
    for channels in (1, 3):
        black = np.zeros((300, 400, channels), np.uint8)
        picture = png.plain(pictures.encode_png(black))
        assert picture is not None and picture.pixels() is not None
        assert not pictures.read(pictures.encode_png(black), channels).any()
    alpha = np.dstack([np.zeros((900, 700, 3), np.uint8), np.full((900, 700), 9, np.uint8)])
    assert not pictures.read(encoded(Image.fromarray(alpha)), 3).any()


@pytest.mark.parametrize("colours", [0, 6])
def test_a_png_whose_image_data_have_a_wrong_checksum_is_refused(colours: int) -> None:
    data = bytearray(png_of_rows(4, 4, colours=colours))
    data[-13] ^= 1  # the last byte of the checksum before IEND
    with pytest.raises(PictureError, match="the checksum of its image data is wrong"):
        pictures.read(bytes(data), 3)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}], ids=str)
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_jpeg_whose_data_end_early_is_refused(mode: str, options: dict[str, Any]) -> None:
    """An end mark after half of the data: Pillow fills up with grey."""
    whole = encoded(Image.fromarray(noise(48, 48)).convert(mode), "JPEG", **options)
    assert pictures.read(whole, 3).shape == (48, 48, 3)
    end = whole[-2:]
    half, frame = whole[: len(whole) // 2] + end, whole.index(b"\xff\xc2" if "progressive" in options else b"\xff\xc0")
    taller = whole[: frame + 5] + (96).to_bytes(2, "big") + whole[frame + 7 :]
    for data in (half, taller):
        with pytest.raises(PictureError, match="the image is damaged or cut short"):
            pictures.read(data, 3)


def test_a_jpeg_with_bytes_left_over_is_read() -> None:
    """Cameras write them; libjpeg warns of them, and no pixel is lost."""
    whole = encoded(Image.fromarray(noise(48, 48)), "JPEG")
    scan = whole.index(b"\xff\xda")
    laden = whole[:scan] + bytes(3) + whole[scan:] + b"more"
    assert np.array_equal(pictures.read(laden, 3), pictures.read(whole, 3))
    grey = encoded(Image.new("RGB", (48, 48), (128, 128, 128)), "JPEG")
    assert (pictures.read(grey, 3) == 128).all()


@pytest.mark.parametrize("mode", ["L", "RGB", "P", "LA"])
def test_what_changes_no_pixel_is_not_read(mode: str) -> None:
    """Texts and profiles are inflated by whoever looks at them: a few kilobytes can hold gigabytes."""
    image = Image.fromarray(noise(16, 16)).convert(mode)
    plain = encoded(image, "PNG")
    bomb = png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10_000))) + png_chunk(b"iCCP", b"b\0\0" + bytes(100))
    after_header = 8 + 12 + 13
    laden = plain[:after_header] + 50 * bomb + plain[after_header:]
    assert np.array_equal(pictures.read(laden, 3), pictures.read(plain, 3))
    assert png.pixels_only(laden) == png.pixels_only(plain)
    assert png.plain(laden) == png.plain(plain) and (png.plain(plain) is not None) == (mode in ("L", "RGB"))
    seen: list[tuple[int, int]] = []
    pictures.read(laden, 3, accept=lambda width, height: seen.append((width, height)))
    assert seen == [(16, 16)]


def by_pillow(data: bytes, channels: int) -> Pixels:
    """The long way, which knows every PNG."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("L" if channels == 1 else "RGB")).reshape(image.height, image.width, channels)


@settings(max_examples=200)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(["L", "RGB"]),
    st.sampled_from([1, 3]),
    st.integers(0, 9),
    st.integers(0, 2**32 - 1),
)
def test_a_plain_png_has_the_pixels_that_pillow_reads(
    height: int, width: int, mode: str, channels: int, level: int, seed: int
) -> None:
    """Smooth images too: those make encoders use all five of the format's filters."""
    rng = np.random.default_rng(seed)
    smooth = np.cumsum(rng.integers(-3, 4, (height, width, 3)), axis=seed % 2).astype(np.uint8)
    data = encoded(Image.fromarray(smooth).convert(mode), compress_level=level)
    assert png.plain(data) is not None
    assert np.array_equal(pictures.read(data, channels), by_pillow(data, channels))


def test_only_plain_pngs_go_the_short_way() -> None:
    colour = Image.fromarray(noise(4, 4))
    others = [
        encoded(colour.convert("P")),
        encoded(colour.convert("RGBA")),
        encoded(colour, transparency=(1, 2, 3)),
        encoded(Image.fromarray(noise(4, 4)[..., 0].astype(np.uint16))),
        encoded(colour, "JPEG"),
        png_header(0, 4),
    ]
    exif = Image.Exif()
    exif[0x0112] = 6
    assert all(png.plain(data) is None for data in (*others, encoded(colour, exif=exif)))
    plain = encoded(colour)
    header, rest = plain[:33], plain[33:]
    assert png.plain(plain) is not None
    assert png.plain(header + png_chunk(b"MUST", b"") + rest) is None, "a critical chunk that nobody here knows"
    assert png.plain(header + header[8:] + rest) is None, "two headers"
    assert png.plain(plain[:-12]) is None and png.plain(plain + b"more") is None
    damaged = bytearray(plain)
    damaged[45] ^= 1
    assert png.plain(bytes(damaged)) is None, "its checksum is wrong"
    laden = header + png_chunk(b"teXt", b"") * 100_000 + rest
    tracemalloc.start()
    assert png.plain(laden) == png.plain(plain)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1024**2, "nothing is kept of what is left out"
    short = png_header(4, 4)
    picture = png.plain(short)
    assert picture is not None and picture.pixels() is None
    with pytest.raises(PictureError, match="damaged or cut short"):
        pictures.read(short, 3)


@settings(max_examples=300)
@given(st.sampled_from(["PNG", "JPEG"]), st.integers(0, 10_000), st.integers(1, 255))
def test_one_damaged_byte_raises_nothing_else(kind: str, place: int, flip: int) -> None:
    data = bytearray(encoded(Image.fromarray(noise(9, 9)), kind))
    data[place % len(data)] ^= flip
    try:
        assert pictures.read(bytes(data), 3).dtype == np.uint8
    except PictureError as error:
        assert str(error)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_short_check_of_a_plain_png_agrees_with_the_whole_one(channels: int) -> None:
    """Wherever a byte changes or the file ends."""
    data = pictures.encode_png(noise(2, 3, channels))
    assert png._shortest(data) == png._plain(data) is not None
    changed = [data[:k] + bytes([data[k] ^ bit]) + data[k + 1 :] for k in range(len(data)) for bit in (1, 128)]
    for other in (*changed, *(data[:k] for k in range(len(data))), data + b"more", data[:-12] + data[33:]):
        found = png._shortest(other)
        assert found is None or found == png._plain(other)
    soft = png_chunk(b"tEXt", b"Comment\0a")
    assert png._shortest(data[:33] + soft + data[33:]) is None
    assert png.plain(data[:33] + soft + data[33:]) == png.plain(data)
