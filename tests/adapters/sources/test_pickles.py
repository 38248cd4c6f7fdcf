"""What can run code is recognised by its bytes, not by its name."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from packager.adapters.sources.pickles import pickle_kind, pickle_kind_of

TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # torch.serialization, before zip archives


class Call:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def torch_archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
    return stream.getvalue()


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_that_calls_is_recognised_in_every_protocol(protocol: int) -> None:
    assert pickle_kind_of(pickle.dumps(Call(), protocol), ends=True) == "a pickle"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_of_mere_data_is_a_pickle(protocol: int) -> None:
    assert pickle_kind_of(pickle.dumps({"a": 1}, protocol), ends=True) == "a pickle"


def test_a_pickle_with_garbage_behind_is_a_pickle() -> None:
    assert pickle_kind_of(pickle.dumps(Call(), 4) + b"\0garbage", ends=True) == "a pickle"


def test_the_magic_of_old_torch_files_is_a_pickle() -> None:
    assert pickle_kind_of(pickle.dumps(TORCH_MAGIC, 2), ends=True) == "a pickle"


def test_an_archive_of_torch_save_is_recognised() -> None:
    kind = pickle_kind_of(torch_archive(), ends=True)
    assert kind == "a zip archive, as torch.save writes it"


def test_an_archive_behind_other_bytes_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"harmless text " * 9000 + torch_archive())
    kind = pickle_kind(tmp_path / "tokenizer.model")
    assert kind == "a zip archive with something in front"


def test_a_numpy_file_is_recognised() -> None:
    head = b"\x93NUMPY\x01\x00v\x00{'descr': '|O'}"
    assert pickle_kind_of(head, ends=True) == "a NumPy file, which can hold pickled objects"


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"#version: 0.2\n", b"MIT License\n", b"cat\ndog\n", b"in\nit\n"],
    ids=["empty", "json", "merges", "licence", "two-words", "two-more-words"],
)
def test_text_is_not_taken_for_an_old_pickle(text: bytes) -> None:
    assert pickle_kind_of(text, ends=True) == ""


def test_a_header_length_that_looks_like_protocol_2_is_no_pickle() -> None:
    head = struct.pack("<Q", 0x0280) + b'{"w":{"dtype":"BF16"'
    assert head.startswith(b"\x80\x02")
    assert pickle_kind_of(head, ends=False) == ""


def test_requirements_that_read_as_opcodes_by_accident_are_text() -> None:
    text = b"torch==2.13.0\ntransformers==5.17.0\n"

    assert pickle_kind_of(text, ends=True) == ""
