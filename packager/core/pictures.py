"""Pictures that servers are asked about: made here, of a stated size, each key another one.

Engines keep what their encoder made of a picture: a load of one picture would measure that.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from packager.core.errors import UsageError

IMAGES = re.compile(r"([1-9][0-9]{0,2})x([1-9][0-9]{0,4})x([1-9][0-9]{0,4})", re.ASCII)
MOST_PIXELS = 1 << 26  # of all pictures of a request
_PARTS = 3  # digests that a row repeats
_PATTERN = 32  # pixels of them


def parse_images(text: str) -> tuple[int, int, int]:
    """Return how many pictures of which width and height; raise `UsageError` for another text."""
    match = IMAGES.fullmatch(text)
    count, width, height = map(int, match.groups()) if match else (0, 0, 0)
    if not 0 < count * width * height <= MOST_PIXELS:
        raise UsageError(
            f"--images {text[:40]!r} is not a number of pictures with width and height",
            hint=f"write NxWxH, such as 1x1024x1024; {MOST_PIXELS:,} pixels at most",
        )
    return count, width, height


def with_pictures(body: Mapping[str, Any], images: str, *key: object) -> dict[str, Any]:
    """Return the body of a chat with pictures before the words of its last turn."""
    count, width, height = parse_images(images)
    *earlier, last = body["messages"]
    urls = (picture_url(width, height, *key, number) for number in range(count))
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    parts.append({"type": "text", "text": last["content"]})
    return {**body, "messages": [*earlier, {**last, "content": parts}]}


def picture_url(width: int, height: int, *key: object) -> str:
    """Return a picture as the address that OpenAI's API takes; the same one for the same key."""
    return "data:image/png;base64," + base64.b64encode(make_png(width, height, *key)).decode()


def make_png(width: int, height: int, *key: object) -> bytes:
    """Return a picture of coloured stripes that shift from row to row, in PNG."""
    seed = "\x1f".join(map(str, key)).encode()
    colours = b"".join(hashlib.sha256(seed + bytes([part])).digest() for part in range(_PARTS))
    line = colours * (width // _PATTERN + 2)
    rows = []
    for row in range(height):
        begin = 3 * (row // 8 % _PATTERN)
        rows.append(b"\0" + line[begin : begin + 3 * width])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows), 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)
