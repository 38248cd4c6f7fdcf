"""Layers unpacked as they stream by, and what is refused."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator

import pytest
import zstandard

from packager.images.erofs.unpacking import LayerBroken, unpack
from tests.support.layer_layouts import GZIP, ZSTD

LAYER = "sha256:" + "a" * 64
CONTENT = random.Random(1).randbytes(2_500_000) + bytes(4_000_000)


def chunks(data: bytes, step: int) -> Iterator[memoryview]:
    """Yield pieces of one buffer, as a reader does: the next piece takes the place of the last."""
    for start in range(0, len(data), step):
        buffer = bytearray(data[start : start + step])
        yield memoryview(buffer)
        buffer[:] = bytes(len(buffer))


def unpacked(data: bytes, media_type: str, step: int = 600_001) -> bytes:
    return b"".join(
        bytes(chunk) for chunk in unpack(chunks(data, step), media_type, LAYER, len(data))
    )


FORMS = {
    "gzip": (gzip.compress(CONTENT), GZIP),
    "gzip of two members": (gzip.compress(CONTENT[:9]) + gzip.compress(CONTENT[9:]), GZIP),
    "Docker's name of gzip": (
        gzip.compress(CONTENT),
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
    ),
    "zstd": (zstandard.ZstdCompressor().compress(CONTENT), ZSTD),
    "zstd of two frames": (
        zstandard.ZstdCompressor().compress(CONTENT[:9])
        + zstandard.ZstdCompressor().compress(CONTENT[9:]),
        ZSTD,
    ),
    "plain": (CONTENT, "application/vnd.oci.image.layer.v1.tar"),
}


@pytest.mark.parametrize(("data", "media_type"), FORMS.values(), ids=FORMS)
def test_the_content_comes_out(data: bytes, media_type: str) -> None:
    assert unpacked(data, media_type) == CONTENT


@pytest.mark.parametrize("step", [1, 7])
def test_it_comes_out_of_the_smallest_pieces(step: int) -> None:
    content = b"a layer" * 100

    assert unpacked(gzip.compress(content), GZIP, step) == content
    assert unpacked(zstandard.compress(content), ZSTD, step) == content


BROKEN = {
    "gzip that ends early": (gzip.compress(CONTENT)[:-20], GZIP, "ends early"),
    "gzip without its checksum": (gzip.compress(CONTENT)[:-8], GZIP, "ends early"),
    "gzip with more behind it": (gzip.compress(CONTENT) + b"more", GZIP, "broken"),
    "no gzip": (b"something else", GZIP, "broken"),
    "no zstd": (b"something else", ZSTD, "broken"),
    "zstd with more behind it": (zstandard.compress(CONTENT) + b"more", ZSTD, "broken"),
}


@pytest.mark.parametrize(("data", "media_type", "reason"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_told(data: bytes, media_type: str, reason: str) -> None:
    with pytest.raises(LayerBroken, match=reason) as refused:
        unpacked(data, media_type)

    assert LAYER in refused.value.message


@pytest.mark.parametrize("media_type", [GZIP, ZSTD])
def test_a_bomb_is_refused_before_it_is_unpacked(media_type: str) -> None:
    zeros = bytes(400 * 1024 * 1024)
    bomb = gzip.compress(zeros, 1) if media_type == GZIP else zstandard.compress(zeros)
    assert len(bomb) < 4_000_000  # 100 times that is less than what is in it

    passed = 0
    with pytest.raises(LayerBroken, match="unpacks to more than"):
        for chunk in unpack(chunks(bomb, 1 << 20), media_type, LAYER, len(bomb)):
            assert len(chunk) <= 1 << 20
            passed += len(chunk)

    assert passed <= max(256 * 1024 * 1024, 100 * len(bomb))
