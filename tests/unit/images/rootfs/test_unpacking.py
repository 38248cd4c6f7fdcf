"""Layers unpacked as they stream by, and what is refused."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator

import pytest
import zstandard

from packager.images.rootfs.unpacking import unpack
from tests.support.cases import cases
from tests.support.layer_layouts import GZIP, ZSTD
from tests.support.refusals import raises_code

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


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "none": bytes,
}


def packed(packing: str, members: int = 1) -> bytes:
    """Pack the content, the first nine bytes by themselves where there are two members."""
    pieces = (CONTENT,) if members == 1 else (CONTENT[:9], CONTENT[9:])
    return b"".join(map(PACKERS[packing], pieces))


@cases("forms", members=1)
def test_the_content_comes_out(packing: str, media_type: str, members: int) -> None:
    assert unpacked(packed(packing, members), media_type) == CONTENT


@pytest.mark.parametrize("step", [1, 7])
def test_it_comes_out_of_the_smallest_pieces(step: int) -> None:
    content = b"a layer" * 100

    assert unpacked(gzip.compress(content), GZIP, step) == content
    assert unpacked(zstandard.compress(content), ZSTD, step) == content


@cases("broken", cut=0, data="")
def test_what_is_broken_is_told(
    media_type: str, packing: str | None, cut: int, data: bytes, reason: str
) -> None:
    """The content is packed, loses its end, and has more data behind it."""
    whole = packed(packing) if packing else b""
    with raises_code("LayerBroken", match=reason) as refused:
        unpacked(whole[: len(whole) - cut] + data, media_type)

    assert LAYER in refused.value.message


@pytest.mark.parametrize("media_type", [GZIP, ZSTD])
def test_a_bomb_is_refused_before_it_is_unpacked(media_type: str) -> None:
    zeros = bytes(400 * 1024 * 1024)
    bomb = gzip.compress(zeros, 1) if media_type == GZIP else zstandard.compress(zeros)
    assert len(bomb) < 4_000_000  # 100 times that is less than what is in it

    passed = 0
    with raises_code("LayerBroken", match="unpacks to more than"):
        for chunk in unpack(chunks(bomb, 1 << 20), media_type, LAYER, len(bomb)):
            assert len(chunk) <= 1 << 20
            passed += len(chunk)

    assert passed <= max(256 * 1024 * 1024, 100 * len(bomb))
