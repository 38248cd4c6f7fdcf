"""What can run code is recognised by its bytes, not by its name."""

from __future__ import annotations

import base64
import bz2
import json
import lzma
import random
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.support.cases import cases
from tests.support.commandline import TINY
from tests.support.processes import run_python
from tests.unit.models.test_pickles import COMPRESSIONS, OLD, call, kind_of

LOADED = """
import io, pickle, sys
class Unpickler(pickle._Unpickler):
    def find_class(self, module, name):
        return lambda *given: print("called")
try:
    Unpickler(io.BytesIO(bytes.fromhex(sys.stdin.read()))).load()
except Exception:
    pass
"""


@pytest.mark.parametrize(
    "name", [name for name, data in OLD.items() if data.count(b"tR") == 1 and data.count(b".") == 1]
)
def test_what_is_recognised_is_what_a_loader_calls(name: str) -> None:
    """The samples are real: Python's own machine gets to their call."""
    assert run_python("-c", LOADED, input=OLD[name].hex()).stdout == "called\n"


@pytest.mark.parametrize("name", ["gzip", "zlib", "bzip2", "xz", "zstd"])
def test_a_pickle_before_damage_is_recognised(name: str) -> None:
    """A loader runs what comes before the damage."""
    _, compress = COMPRESSIONS[name]
    whole = compress(call(0) + random.Random(0).randbytes(1_500_000))
    assert kind_of(whole[:-20])
    assert kind_of(whole[: len(whole) * 9 // 10])


@pytest.mark.parametrize(
    ("name", "size"), [("gzip", 500_000_000), ("bzip2", 30_000_000), ("zstd", 50_000_000)]
)
def test_a_bomb_is_refused_soon(name: str, size: int) -> None:
    """It reads as a pickle to its end, so that it must be unpacked; plain zeros need not be."""
    bomb = line_bomb(name, size)
    started = time.process_time()

    assert "unpacks to more than 200 times its size" in kind_of(bomb)

    assert time.process_time() - started < 10


def line_bomb(name: str, size: int) -> bytes:
    """A pickle of one long line, compressed; it is never in memory as a whole."""
    piece = b"a" * 1_000_000
    if name == "bzip2":  # streams that follow one another are one
        return bz2.compress(b"V") + bz2.compress(piece) * (size // len(piece))
    made: Any = {
        "gzip": lambda: zlib.compressobj(1, zlib.DEFLATED, 31),
        "xz": lambda: lzma.LZMACompressor(preset=0),
        "zstd": lambda: zstandard.ZstdCompressor().compressobj(),
    }[name]()
    pieces = [made.compress(b"V"), *(made.compress(piece) for _ in range(size // len(piece)))]
    return b"".join([*pieces, made.flush()])


PEAK = """
import io, sys
from pathlib import Path
from packager.models.pickles import pickle_kind
# Not getrusage: a child starts with the peak of the process that made it.
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
data = Path(sys.argv[1]).read_bytes()
pickle_kind(io.BytesIO(b"\\x28\\xb5\\x2f\\xfd"))
before = peak()
kind = pickle_kind(io.BytesIO(data))
print(peak() - before, kind)
"""


@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz", "zstd"])
def test_a_bomb_takes_little_memory(tmp_path: Path, name: str) -> None:
    (tmp_path / "bomb").write_bytes(line_bomb(name, 150_000_000))

    done = run_python("-c", PEAK, tmp_path / "bomb")

    kib, _, kind = done.stdout.partition(" ")
    assert "unpacks to more than" in kind, done.stderr
    assert int(kib) < 100 * 1024


def sentencepiece(pieces: int) -> bytes:
    """A tokenizer.model: a protobuf of pieces with their scores."""
    made = bytearray()
    for number in range(pieces):
        piece = f"▁{number:x}".encode()
        inner = b"\x0a" + bytes([len(piece)]) + piece + b"\x15" + struct.pack("<f", -number)
        made += b"\x0a" + bytes([len(inner)]) + inner
    return bytes(made)


def test_files_of_released_kinds_are_none() -> None:
    vocabulary = {"model": {"vocab": {f"Ġ{number}": number for number in range(200_000)}}}
    for data in (
        sentencepiece(32_000),
        json.dumps(vocabulary).encode(),
        json.dumps(vocabulary, indent=1, ensure_ascii=False).encode(),
        b"".join(base64.b64encode(b"%d" % n) + b" %d\n" % n for n in range(100_000)),
        b"#version: 0.2\n" + b"".join(b"%x %x\n" % (n, n + 1) for n in range(50_000)),
        *(path.read_bytes() for path in TINY.iterdir() if path.is_file()),
    ):
        assert kind_of(data) == ""


def test_random_words_are_hardly_ever_one() -> None:
    """Vocabularies begin with any letter, in any order; few read as a program that calls."""
    dice = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    found = 0
    for _ in range(10_000):
        words = ["".join(dice.choices(letters, k=dice.randint(2, 7))) for _ in range(30)]
        text = "\n".join(word.capitalize() if dice.random() < 0.1 else word for word in words)
        found += bool(kind_of(text.encode()))
    assert found <= 2


def test_a_large_tokenizer_is_scanned_at_once() -> None:
    words = json.dumps({f"Ġ{number}": number for number in range(1_000_000, 1_020_000)})
    data = b"{%s}" % b", ".join([words.encode()[1:-1]] * 100)
    assert len(data) > 40_000_000
    started = time.process_time()
    assert kind_of(data) == ""
    assert time.process_time() - started < 10


@cases("40_mb_that_read_as_a_pickle_are_judged_soon")
@pytest.mark.extended
def test_40_mb_like_a_pickle_are_judged_soon(begin: bytes, piece: bytes, times: int) -> None:
    data = begin + piece * times
    started = time.process_time()
    kind_of(data)
    assert time.process_time() - started < 10
