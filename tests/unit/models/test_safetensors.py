"""The header reader: what it understands, and what it refuses and how fast."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.core.errors import ModelRefused
from packager.core.image import FileRange
from packager.core.model import ModelFile, TensorInfo
from packager.images.blobs import BlobReader
from packager.models.safetensors import (
    _plain_spans,
    _spans,
    parse_header,
    read_header,
    read_weights_header,
)
from tests.support.cases import cases_of
from tests.support.doubles.models import safetensors_bytes
from tests.support.known import known

cases = cases_of(__file__)

ONE = {"w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}


def read(path: Path, content: bytes) -> tuple[TensorInfo, ...]:
    path.write_bytes(content)
    with path.open("rb") as stream:
        return read_header(stream, "model.safetensors")


def refusal(path: Path, content: bytes) -> ModelRefused:
    with pytest.raises(ModelRefused) as caught:
        read(path, content)
    assert "'model.safetensors'" in caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "any.safetensors"


def test_a_tensor_is_described_by_its_header_alone(file: Path) -> None:
    assert read(file, safetensors_bytes(ONE, bytes(12))) == (
        TensorInfo(name="w", dtype="BF16", shape=(2, 3), size=12, file="model.safetensors"),
    )


def test_tensors_come_in_the_order_of_their_bytes(file: Path) -> None:
    header = {
        "late": {"dtype": "U8", "shape": [1], "data_offsets": [4, 5]},
        "early": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
    }
    assert [tensor.name for tensor in read(file, safetensors_bytes(header, bytes(5)))] == [
        "early",
        "late",
    ]


@cases("element_sizes_are_upstreams")
def test_element_sizes_are_upstreams(file: Path, dtype: str, shape: list[int], size: int) -> None:
    header = {"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}
    assert read(file, safetensors_bytes(header, bytes(size)))[0].size == size


def test_metadata_is_no_tensor(file: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, **ONE}
    assert len(read(file, safetensors_bytes(header, bytes(12)))) == 1


def entry(**changes: object) -> dict[str, object]:
    return {"w": {**ONE["w"], **changes}}


@cases("a_wrong_entry_is_refused")
def test_a_wrong_entry_is_refused(file: Path, changed: dict[str, object], why: str) -> None:
    assert why in refusal(file, safetensors_bytes(entry(**changed), bytes(12))).message


@cases("wrong_headers")
def test_a_wrong_header_is_refused(file: Path, header: str, why: str) -> None:
    content = safetensors_bytes(json.loads(header), bytes(12))
    assert why in refusal(file, content).message


def test_a_truncated_file_is_told_from_a_broken_one(file: Path) -> None:
    error = refusal(file, safetensors_bytes(ONE, bytes(11)))
    assert "truncated: tensors end at byte 12, the data at byte 11" in error.message


def test_bytes_after_the_last_tensor_are_refused(file: Path) -> None:
    assert "1 bytes follow" in refusal(file, safetensors_bytes(ONE, bytes(13))).message


def test_an_empty_file_was_never_downloaded(file: Path) -> None:
    assert "never downloaded" in refusal(file, b"").hint


def test_seven_bytes_are_no_length(file: Path) -> None:
    assert "7 of the first 8 bytes" in refusal(file, bytes(7)).message


def test_a_header_that_ends_after_the_file_is_truncation(file: Path) -> None:
    assert "truncated" in refusal(file, struct.pack("<Q", 100) + b"{").message


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 100_000_001])
def test_a_huge_header_length_is_refused_unread(file: Path, length: int) -> None:
    assert f"claims {length} bytes" in refusal(file, struct.pack("<Q", length) + b"{").message


def framed(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


@cases("a_header_with_two_meanings_or_none_is_refused")
def test_a_header_with_two_meanings_or_none_is_refused(file: Path, header: bytes, why: str) -> None:
    assert why in refusal(file, framed(header)).message


def test_a_hostile_name_does_not_flood_the_message(file: Path) -> None:
    header = {"\x1b[2J" * 100_000: ONE["w"]}
    message = refusal(file, safetensors_bytes(header, bytes(12))).message
    assert len(message) < 300
    assert "\x1b" not in message


def test_millions_of_equal_names_are_refused_at_the_second(file: Path) -> None:
    content = framed(b"{" + b'"a":{},' * 2_000_000 + b'"b":1}')
    started = time.process_time()
    assert "'a' stands twice" in refusal(file, content).message
    assert time.process_time() - started < 5


def test_metadata_of_too_many_entries_are_refused(file: Path) -> None:
    content = framed(json.dumps({"__metadata__": {str(n): "" for n in range(65_537)}}).encode())
    assert "has more than 65536 entries" in refusal(file, content).message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@given(header=st.binary(max_size=200), data_bytes=st.integers(0, 64))
@settings(deadline=None, max_examples=100)
def test_random_bytes_are_read_or_refused(header: bytes, data_bytes: int) -> None:
    for attempt in (header, b"{" + header):
        try:
            parse_header(attempt, data_bytes, "model.safetensors")
        except ModelRefused as error:
            assert error.hint


PLAIN = (
    '{"__metadata__":{"format":"pt"},'
    '"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},'
    '"b":{"dtype":"U8","shape":[],"data_offsets":[2,3]}}'
)


@cases("what_is_almost_plain_is_refused_for_its_own_reason")
def test_what_is_almost_plain_is_refused_for_its_own_reason(old: str, new: str, said: str) -> None:
    assert old in PLAIN

    with pytest.raises(ModelRefused, match=said):
        parse_header(PLAIN.replace(old, new).encode(), 3, "model.safetensors")


@given(st.integers(1, len(PLAIN) - 1), st.sampled_from('{}[]",:0a\\ \n\x00'))
def test_the_short_way_never_takes_what_the_parser_refuses(position: int, other: str) -> None:
    changed = (PLAIN[:position] + other + PLAIN[position + 1 :]).encode()
    try:
        expected = _spans(changed, "m")
    except ModelRefused:
        expected = None
    plain = _plain_spans(changed, "m")

    assert plain is None or plain == expected


def named(count: int) -> bytes:
    entry = b'"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    return b"{" + b",".join(entry % number for number in range(count))


def shaped(dimension: bytes, count: int) -> bytes:
    return b'{"a":{"dtype":"U8","shape":[' + dimension * count + b'1],"data_offsets":[0,1]}}'


ODD = ',"日":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
# Headers that wanted up to 170 times their size.
BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "2 million dimensions": (lambda: shaped(b"1,", 2_000_000), "more than 8192"),
    "8 million dimensions": (lambda: shaped(b"1,", 8_000_000), "more than 8192"),
    "33 million dimensions": (lambda: shaped(b"1,", 33_000_000), "more than 8192"),
    "a million dimensions of 18 digits": (
        lambda: shaped(b"9" * 18 + b",", 1_000_000),
        "more than 8192",
    ),
    "99 MB of empty lists": (lambda: b'{"a":[' + b"[]," * 33_000_000 + b"1]}", "more than 8192"),
    "a million empty objects": (lambda: b'{"a":[' + b"{}," * 10**6 + b"1]}", "more than 8192"),
    "a million empty objects as metadata": (
        lambda: b'{"__metadata__":{"a":[' + b"{}," * 10**6 + b"1]}}",
        "more than 8192",
    ),
    "deep lists": (lambda: b'{"a":' + b"[" * 50_000_000, "too deeply"),
    "deep objects": (lambda: b'{"a":' * 10_000_000, "too deeply"),
    "metadata of a million entries": (
        lambda: b'{"__metadata__":{' + b",".join(b'"%x":""' % n for n in range(10**6)) + b"}}",
        "more than 65536 entries",
    ),
    "metadata of millions of escapes": (
        lambda: b'{"__metadata__":{"a":"' + rb"ab\n" * 5_000_000 + b'"},' + named(1)[1:] + b"}",
        "1 bytes follow",
    ),
    "501,000 tensors": (lambda: named(501_000) + b"}", "more than 500000 tensors"),
    "500,000 tensors": (lambda: named(500_000) + b"}", "1 bytes follow"),
    "200,000 tensors, one with a Japanese name": (lambda: named(200_000) + ODD.encode(), ""),
    "200,000 tensors, one with an escaped name": (
        lambda: named(200_000) + ODD.replace("日", r"\u65e5").encode(),
        "",
    ),
}


@cases("names_and_metadata_are_read_as_json_spells_them")
@pytest.mark.parametrize("blank", ["", " ", "\n\t "], ids=["tight", "blanks", "lines"])
def test_names_and_metadata_are_read_as_json_spells_them(
    tmp_path: Path, name: str, spelled: str, blank: str
) -> None:
    metadata = f'"__metadata__":{{"format":"pt",{spelled}:{spelled}}}'
    tensor = f'{spelled}:{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    header = "{" + f"{metadata},{tensor}".replace(":", f"{blank}:{blank}") + f"{blank}}}"
    path = tmp_path / "model.safetensors"
    path.write_bytes(framed(header.encode()) + b"\0")
    content = FileRange(path=str(path), offset=0, length=path.stat().st_size)
    file = ModelFile(path=path.name, role="weights", content=content)

    found = read_weights_header(file, BlobReader().read)

    assert [tensor.name for tensor in found.tensors] == [name]
    assert dict(found.metadata) == {"format": "pt", name: name}


def test_a_part_matched_at_once_ends_between_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    header = named(1000) + b"}"
    for most in range(60, 200):
        monkeypatch.setattr("packager.models.safetensors.MAX_REST", most)
        found = known(_plain_spans(header, "m"))
        assert len(found[0]) == 1000


def test_a_header_that_goes_on_behind_its_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    header = named(20).replace(b'},"9"', b'}},"9"') + b"}"
    for most in (60, 100, 10_000):
        monkeypatch.setattr("packager.models.safetensors.MAX_REST", most)
        with pytest.raises(ModelRefused, match="not JSON"):
            parse_header(header, 0, "m")
