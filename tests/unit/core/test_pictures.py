"""Pictures of a load: made here, of the size that is asked for, each another one."""

from __future__ import annotations

import base64
import itertools
import struct
import zlib
from typing import Any

import pytest

from packager.addons.bench.load.spec import RequestSpec, settle
from packager.core.errors import UsageError
from packager.core.pictures import make_png, parse_images, with_pictures

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "what is this?"},
    ],
}


def read_png(data: bytes) -> tuple[int, int, bytes]:
    """Return width, height and pixels, with every checksum compared."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (crc,) = struct.unpack_from(">I", data, at + 8 + length)
        assert crc == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    width, height = struct.unpack_from(">II", chunks[b"IHDR"])
    return width, height, zlib.decompress(chunks[b"IDAT"])


@pytest.mark.parametrize("size", [(1, 1), (47, 300), (1024, 1024), (4096, 8)])
def test_a_picture_has_its_size(size: tuple[int, int]) -> None:
    width, height, pixels = read_png(make_png(*size, 0))

    assert (width, height) == size
    assert len(pixels) == height * (1 + 3 * width)


def test_pictures_are_reproducible_and_differ() -> None:
    made = [make_png(64, 64, *key) for key in itertools.product((0, 1), (0, 1))]

    assert len(set(made)) == 4
    assert make_png(64, 64, 0, 1) == made[1]


def test_the_last_turn_has_the_pictures_before_its_words() -> None:
    body = with_pictures(BODY, "2x32x16", 0)

    assert body["messages"][0] == BODY["messages"][0]
    *pictures, words = body["messages"][1]["content"]
    assert words == {"type": "text", "text": "what is this?"}
    urls = [one["image_url"]["url"] for one in pictures]
    assert len(set(urls)) == 2
    assert read_png(base64.b64decode(urls[0].partition(",")[2]))[:2] == (32, 16)


@pytest.mark.parametrize("text", ["", "1", "1x2", "0x8x8", "1x8x0", "99x9999x9999", "x" * 99])
def test_what_is_no_number_of_pictures_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a number of pictures"):
        parse_images(text)


def test_pictures_where_only_text_goes_are_refused() -> None:
    with pytest.raises(UsageError, match="takes one text, without pictures"):
        settle(RequestSpec(images="1x8x8", endpoint="completions"))
