"""What can run code is recognised by its bytes, not by its name."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import pickletools
import random
import struct
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.core.errors import ModelRefused
from packager.models import unpacking
from packager.models.contents import refuse_pickle
from packager.models.local import LocalSource
from packager.models.pickle_machine import runs_code
from packager.models.pickles import pickle_kind
from packager.models.reference import parse_model_reference
from tests.support.cases import cases, read_tables
from tests.support.doubles.models import safetensors_bytes, write_model

TABLES = read_tables(__file__)

TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # torch.serialization, before zip archives
LONG = "text " * 14_000  # 70 kB


class Call:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def kind_of(data: bytes) -> str:
    return pickle_kind(io.BytesIO(data))


def call(protocol: int) -> bytes:
    return pickle.dumps(Call(), protocol)


def behind(data: object, protocol: int) -> bytes:
    """A call that comes after other data."""
    return pickle.dumps([data, Call()], protocol)


def torch_archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
    return stream.getvalue()


def torch_tar(format: int) -> bytes:
    """What torch.save wrote in 2016: a tar of pickles."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            data = call(2)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_that_calls_is_recognised_in_every_protocol(protocol: int) -> None:
    assert kind_of(call(protocol)) == "a pickle"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_of_mere_data_is_a_pickle(protocol: int) -> None:
    assert kind_of(pickle.dumps({"a": 1}, protocol)) == "a pickle"


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "data",
    [LONG, LONG.encode(), LONG * 100, list(range(30_000)), {LONG: (1.5, None, True)}, {1, 2}],
    ids=["a long text", "long bytes", "7 MB", "numbers", "a dictionary", "a set"],
)
def test_a_call_behind_other_data_is_recognised(protocol: int, data: object) -> None:
    """Behind the first 64 KiB it was shipped as vocab.txt and tokenizer.model."""
    assert kind_of(behind(data, protocol)) == "a pickle"


OLD: dict[str, bytes] = {
    **{name: text.encode("latin-1") for name, text in TABLES["old_pickles"].items()},
    "a line of 70 kB": b"V" + LONG.encode() + b"\n0cos\nsystem\n(S'true'\ntR.",
    "a line of 3 MB": b"V" + LONG.encode() * 43 + b"\n0cos\nsystem\n(S'true'\ntR.",
    "a quoted line of 3 MB": b"S'" + LONG.encode() * 43 + b"'\n0cos\nsystem\n(S'true'\ntR.",
    "a number behind 3 MB of blanks": b"I" + b" " * 3_000_000 + b"1\n0cos\nsystem\n(S'true'\ntR.",
}


@pytest.mark.parametrize("data", OLD.values(), ids=OLD)
def test_a_pickle_without_a_mark_is_recognised(data: bytes) -> None:
    assert kind_of(data) == "a pickle"
    assert runs_code(io.BytesIO(data))


@pytest.mark.parametrize("data", [call(4) + b"\0garbage", pickle.dumps(TORCH_MAGIC, 2)])
def test_garbage_behind_and_the_magic_of_old_torch_files_are_pickles(data: bytes) -> None:
    assert kind_of(data) == "a pickle"


CODES = [ord(opcode.code) for opcode in pickletools.opcodes]


class Watching(pickle._Unpickler):  # type: ignore[name-defined, misc]
    """Python's own machine; notes when something imported is used."""

    used = False

    def find_class(self, module: str, name: str) -> object:
        parts = (*module.split("."), *name.split("."))
        if not all(part.isidentifier() for part in parts):
            raise ImportError
        machine = self

        class Imported:
            def __new__(cls, *given: object, **named: object) -> object:
                machine.used = True
                raise ImportError

        return Imported


@given(
    st.lists(
        st.sampled_from(CODES).map(lambda code: bytes([code]))
        | st.sampled_from([b"cos\nsystem\n", b"S'a'\n", b"(", b"K\x01", b"p0\n", b"g0\n", b"h\0"])
        | st.binary(max_size=4),
        max_size=14,
    ).map(b"".join)
)
@settings(max_examples=600)
def test_whatever_python_s_machine_calls_is_recognised(data: bytes) -> None:
    machine = Watching(io.BytesIO(data))
    with suppress(Exception):
        machine.load()
    if machine.used:
        assert kind_of(data)


COMPRESSIONS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "zlib": ("zlib", zlib.compress),
    "zlib, level 0": ("zlib", lambda data: zlib.compress(data, 0)),
    "zlib, level 9": ("zlib", lambda data: zlib.compress(data, 9)),
    "bzip2": ("bzip2", bz2.compress),
    "xz": ("xz", lzma.compress),
    "lzma": ("xz", lambda data: lzma.compress(data, lzma.FORMAT_ALONE)),
    "zstd": ("zstd", zstandard.compress),
}
DANGERS: dict[str, tuple[bytes, str]] = {
    "protocol 0": (call(0), "a pickle"),
    "protocol 2": (call(2), "a pickle"),
    "protocol 5": (call(5), "a pickle"),
    "behind 70 kB": (OLD["a line of 70 kB"], "a pickle"),
    "zip": (torch_archive(), "a zip archive, as torch.save writes it"),
    "tar": (torch_tar(tarfile.PAX_FORMAT), "a tar archive, as torch.save once wrote it"),
    "numpy": (b"\x93NUMPY\x01\x00v\x00{}", "a NumPy file, which can hold pickled objects"),
}


@pytest.mark.parametrize(("format", "compress"), COMPRESSIONS.values(), ids=COMPRESSIONS)
@pytest.mark.parametrize(("data", "kind"), DANGERS.values(), ids=DANGERS)
def test_what_is_dangerous_is_recognised_through_compression(
    format: str, compress: Callable[[bytes], bytes], data: bytes, kind: str
) -> None:
    assert kind_of(compress(data)) == f"{kind}, compressed with {format}"


@pytest.mark.parametrize(("format", "compress"), COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_what_is_harmless_stays_so_packed(format: str, compress: Callable[[bytes], bytes]) -> None:
    assert kind_of(compress(b"the cat\nthe dog\n" * 10_000)) == ""


@cases("a_pickle_in_a_second_stream_is_recognised")
def test_a_pickle_in_a_second_stream_is_recognised(name: str) -> None:
    """Loaders read streams that follow one another as one."""
    format, compress = COMPRESSIONS[name]
    evil = call(0)
    for data in (
        compress(b"") + compress(evil),
        compress(evil[:3]) + compress(evil[3:]),
        compress(b"") * 3 + compress(evil) + b"garbage",
    ):
        assert kind_of(data) == f"a pickle, compressed with {format}"


def test_compression_in_compression_is_looked_into() -> None:
    twice = bz2.compress(gzip.compress(call(0)))
    assert kind_of(twice) == "a pickle, compressed with gzip, compressed with bzip2"
    assert kind_of(bz2.compress(gzip.compress(b"text\n"))) == ""


def test_compression_that_goes_on_and_on_is_refused() -> None:
    data = b"text\n"
    for _ in range(4):
        data = gzip.compress(data)
    assert kind_of(data).startswith("gzip data, compressed 3 times before")


def test_what_unpacks_to_more_than_is_looked_at_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_UNPACKED", 2_000_000)
    monkeypatch.setattr(unpacking, "MIB", 1_000_000)
    line = b"V" + base64.b64encode(random.Random(0).randbytes(3_000_000))

    assert kind_of(gzip.compress(line)) == "gzip data that unpacks to more than 2 MiB"
    assert kind_of(gzip.compress(line[:1_000_000])) == ""


def test_a_stream_that_wants_gigabytes_of_memory_is_refused() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    data = bytearray(lzma.compress(call(0), lzma.FORMAT_ALONE, filters=[{"id": lzma.FILTER_LZMA1}]))
    data[1:5] = (0x80000000).to_bytes(4, "little")  # the size of its dictionary

    assert kind_of(bytes(data)) == "xz data that takes too much memory"
    assert kind_of(lzma.compress(call(0), filters=filters)) == "a pickle, compressed with xz"


@cases("a_tar_of_old_torch_is_recognised")
def test_a_tar_of_old_torch_is_recognised(format: int, name: str) -> None:
    assert kind_of(torch_tar(format)) == "a tar archive, as torch.save once wrote it"


def test_a_tar_without_a_mark_is_recognised() -> None:
    """The format of 1979 has a sum of its header and nothing else."""
    data = bytearray(torch_tar(tarfile.USTAR_FORMAT))
    data[257:512] = bytes(255)
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])

    with tarfile.open(fileobj=io.BytesIO(bytes(data))) as archive:
        assert archive.getnames()[0] == "sys_info"
    assert kind_of(bytes(data)) == "a tar archive, as torch.save once wrote it"


def test_an_archive_of_torch_save_is_recognised() -> None:
    assert kind_of(torch_archive()) == "a zip archive, as torch.save writes it"


def test_an_archive_behind_other_bytes_is_recognised() -> None:
    kind = kind_of(b"harmless text " * 9000 + torch_archive())
    assert kind == "a zip archive with something in front"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x93NUMPY\x01\x00v\x00{'descr': '|O'}", "a NumPy file, which can hold pickled objects"),
        (b"ZF0x1f               " + zlib.compress(call(2)), "a compressed pickle, as joblib wrote"),
        (b"\x04\x22\x4d\x18\x64\x40\xa7", "lz4 data, which cannot be looked into here"),
    ],
    ids=["numpy", "joblib", "lz4"],
)
def test_other_formats_that_hold_pickles_are_recognised(head: bytes, kind: str) -> None:
    assert kind_of(head).startswith(kind)


def test_zstd_is_refused_where_it_cannot_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)

    assert kind_of(zstandard.compress(b"text\n")) == "zstd data, which cannot be looked into here"


@cases("text_is_not_taken_for_an_old_pickle")
def test_text_is_not_taken_for_an_old_pickle(text: bytes) -> None:
    assert kind_of(text) == ""


TEXTS: dict[str, bytes] = {
    **{name: text.encode("latin-1") for name, text in TABLES["texts"].items()},
    "a sentence without an end": b"I am a long text " * 100_000,
    "one long word": b"c" + b"a" * 900_000 + b"\n",
    "UTF-16": "\ufefftext".encode("utf-16"),
    "zeros": bytes(100_000),
    "an empty tar's block": bytes(512) + b"text",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_texts_are_texts(text: bytes) -> None:
    assert kind_of(text) == ""


def test_random_bytes_are_none() -> None:
    dice = random.Random(2)
    found = [data for _ in range(20_000) if kind_of(data := dice.randbytes(600))]
    # 0x80, a protocol, an instruction: no file that is served begins so
    assert all(data[0] == 0x80 for data in found)


@pytest.mark.parametrize("first", range(256))
def test_weights_are_weights_whatever_their_headers_length(tmp_path: Path, first: int) -> None:
    """The first byte of a shard is any: `V` and `c` begin a line that never ends."""
    header = safetensors_bytes({"w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}})[8:]
    header = header.ljust((len(header) // 256 + 1) * 256 + first)
    data = struct.pack("<Q", len(header)) + header + random.Random(first).randbytes(64)
    assert data[0] == first
    assert not runs_code(io.BytesIO(data))


def test_a_header_length_that_looks_like_protocol_2_is_no_pickle(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", shards=1)
    raw = (model / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = raw[8 : 8 + length].ljust(0x4B80 if length > 0x0280 else 0x0280)
    data = struct.pack("<Q", len(header)) + header + raw[8 + length :]
    (model / "model.safetensors").write_bytes(data)
    assert data.startswith(b"\x80")

    assert LocalSource().facts(parse_model_reference(str(model))).tensors


@pytest.mark.parametrize("first", ["V", "S", "P", "I", "c", "X", "T", "B"])
def test_gigabytes_of_zeros_in_weights_are_not_read(tmp_path: Path, first: str) -> None:
    """A header whose length begins with a `V` began a line that was read to the file's end."""
    model = write_model(tmp_path / "model", shards=1)
    path = model / "model.safetensors"
    size = 80_000_000_000
    header = {"large": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    text = text.ljust((len(text) // 256 + 1) * 256 + ord(first))
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + size)
    started = time.process_time()

    assert len(LocalSource().facts(parse_model_reference(str(model))).tensors) == 1

    assert time.process_time() - started < 10


def test_a_safetensors_file_that_is_a_pickle_too_is_refused(tmp_path: Path) -> None:
    """Its length begins a string that ends in its header, where the program goes on."""
    module, name = "multiprocessing.resource_tracker", "os.path.os.path.os.path.os.system"
    # Each instruction above 0x7f is the second byte of a letter; `q` takes the first.
    program = f"qÌ {module}qÌ!{name}qÓqÌ {'true'.ljust(32)}qÅR".encode()
    text = b'{"__metadata__":{"a":"' + program + b'"},'
    text += b'"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    start = len(b'{"__metadata__":{"a":"') + 3  # of the program, behind the first 5 bytes
    size = (start << 8) | 0x58  # X, and the length of a string
    data = struct.pack("<Q", size) + text.ljust(size) + b"\0"
    model = write_model(tmp_path / "model", shards=1)
    (model / "model.safetensors").write_bytes(data)

    with pytest.raises(ModelRefused, match="it is a pickle"):
        LocalSource().facts(parse_model_reference(str(model)))


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.model", "merges.txt", "chat.jinja"])
@pytest.mark.parametrize(
    "data",
    [OLD["a line of 70 kB"], gzip.compress(call(2)), torch_tar(tarfile.PAX_FORMAT)],
    ids=["protocol 0", "gzip", "tar"],
)
def test_a_model_with_a_hidden_pickle_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    model = write_model(tmp_path / "model")
    (model / name).write_bytes(data)

    with pytest.raises(ModelRefused, match=f"'{name}' is not what its name says") as refused:
        LocalSource().facts(parse_model_reference(str(model)))
    assert refused.value.exit_code == 65


@pytest.mark.parametrize("opcode", sorted(b"IFLSVgpi"))
def test_the_look_at_weights_ends_with_their_header(opcode: int) -> None:
    """Those that take a line read on for a megabyte of zeros."""
    length = 0x100 + opcode
    stream = io.BytesIO(struct.pack("<Q", length) + b"{}".ljust(length) + bytes(2**20))

    refuse_pickle("model.safetensors", stream)

    assert stream.tell() <= 8 + length
