"""Matrices as segments: bytes in order whatever the blocks, cut anywhere, refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from packager.core.errors import ModelRefused
from packager.core.image import Blob, Computed, FileRange, Inline
from packager.images.blobs import BlobReader
from packager.images.digest_index import fingerprint_of
from packager.optimize.quantize.stream import segments
from packager.optimize.quantize.stream.arithmetic import round_rows
from packager.optimize.quantize.stream.formats import Format
from packager.optimize.quantize.stream.segments import RoundedMatrix, rounded_matrix

SHAPE = (48, 64)
BEFORE = 24  # bytes of the file before the matrix
FORMATS = [
    Format(kind="fp8"),
    Format(kind="fp8", blocks=True),
    Format(kind="int4", group_size=32, packed=True, symmetric=False),
    Format(kind="mxfp8", group_size=32),
    Format(kind="nvfp4", group_size=16),
]


@pytest.fixture
def matrix(tmp_path: Path) -> bytes:
    values = np.random.default_rng(5).standard_normal(SHAPE).astype(np.float16)
    (tmp_path / "weights").write_bytes(bytes(BEFORE) + values.tobytes())
    return values.tobytes()


def segment(place: Path, form: Format, name: str = "layer.weight") -> Computed:
    maker = RoundedMatrix(form=form, shape=SHAPE, dtype="F16", name=name, file="weights")
    source = FileRange(path=str(place / "weights"), offset=BEFORE, length=SHAPE[0] * SHAPE[1] * 2)
    return rounded_matrix(maker, source)


def read(*parts: Computed | Inline) -> bytes:
    return BlobReader().read(Blob(parts))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("elements", [1, 64 * 9, 1 << 18])
def test_bytes_do_not_depend_on_the_blocks(
    tmp_path: Path, matrix: bytes, form: Format, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = float(np.abs(np.frombuffer(matrix, np.float16)).max())
    parts = [bytes(one) for one in round_rows(form, matrix, SHAPE, "F16", largest)]
    monkeypatch.setattr(segments, "BLOCK_ELEMENTS", elements)

    found = read(segment(tmp_path, form))

    assert len(found) == segment(tmp_path, form).length
    at = 0
    for part, output in zip(parts, form.outputs(SHAPE, "F16"), strict=False):
        if part:
            assert found[at : at + output.size] == part
        at += output.size


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_scales_that_are_too_many_to_keep_are_computed_by_another_read(
    tmp_path: Path, matrix: bytes, form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert matrix
    expected = read(segment(tmp_path, form))
    monkeypatch.setattr(segments, "KEPT_BYTES", 0)

    assert read(segment(tmp_path, form)) == expected


@pytest.mark.parametrize(("offset", "length"), [(0, 7), (100, 2000), (3070, 98), (3167, 1)])
def test_a_part_is_cut_out_of_what_is_computed(
    tmp_path: Path, matrix: bytes, offset: int, length: int
) -> None:
    assert matrix
    whole = segment(tmp_path, FORMATS[0])
    part = replace(whole, offset=offset, length=length)

    assert read(part) == read(whole)[offset : offset + length]


def test_a_matrix_with_no_number_is_refused_by_its_name(tmp_path: Path) -> None:
    values = np.ones(SHAPE, np.float16)
    values[40, 3] = np.nan
    (tmp_path / "weights").write_bytes(bytes(BEFORE) + values.tobytes())

    for form in FORMATS:
        with pytest.raises(ModelRefused, match=r"layer\.weight in weights has values that are NaN"):
            read(segment(tmp_path, form))


def test_a_matrix_is_read_once_where_nothing_is_shared(tmp_path: Path, matrix: bytes) -> None:
    once, twice = BlobReader(), BlobReader()
    once.read(Blob((segment(tmp_path, FORMATS[0]),)))
    twice.read(Blob((segment(tmp_path, FORMATS[-1]),)))

    assert (once.bytes_read, twice.bytes_read) == (len(matrix), 2 * len(matrix))


def test_what_is_computed_is_known_by_its_format_and_its_sources(
    tmp_path: Path, matrix: bytes
) -> None:
    assert matrix
    known = [fingerprint_of(Blob((segment(tmp_path, form),))) for form in FORMATS]
    named = fingerprint_of(Blob((segment(tmp_path, FORMATS[0], name="another"),)))
    cut = fingerprint_of(Blob((replace(segment(tmp_path, FORMATS[0]), length=7),)))

    texts = {one.text for one in (*known, cut) if one is not None}
    assert len(texts) == len(FORMATS) + 1
    assert named == known[0]


def test_what_shares_a_scale_is_looked_through_once_by_a_reader(
    tmp_path: Path, matrix: bytes
) -> None:
    (tmp_path / "other").write_bytes(matrix)
    maker, one = segment(tmp_path, FORMATS[-1]).maker, segment(tmp_path, FORMATS[-1]).sources[0]
    other = FileRange(path=str(tmp_path / "other"), offset=0, length=len(matrix))
    assert isinstance(maker, RoundedMatrix)
    reader = BlobReader()

    both = (rounded_matrix(maker, one, [other]), rounded_matrix(maker, other, [one]))
    reader.read(Blob(both))

    assert reader.bytes_read == 4 * len(matrix)


def test_a_matrix_that_is_another_when_it_is_read_again_is_refused(
    tmp_path: Path, matrix: bytes
) -> None:
    twice = np.frombuffer(matrix, np.float16) * np.float16(2)
    (tmp_path / "other").write_bytes(bytes(BEFORE) + twice.tobytes())
    part = segment(tmp_path, FORMATS[-1])
    length = part.sources[0].length
    other = FileRange(path=str(tmp_path / "other"), offset=BEFORE, length=length)

    with pytest.raises(ModelRefused, match="weights changed while it was read"):
        read(replace(part, sources=(other, part.sources[1])))


def test_a_global_scale_is_of_all_that_shares_it(tmp_path: Path, matrix: bytes) -> None:
    assert matrix
    (tmp_path / "other").write_bytes(np.full(SHAPE, 1000, np.float16).tobytes())
    alone = segment(tmp_path, FORMATS[-1])
    assert isinstance(alone.maker, RoundedMatrix)
    other = FileRange(path=str(tmp_path / "other"), offset=0, length=alone.sources[0].length)

    shared = rounded_matrix(alone.maker, alone.sources[0], [other])

    at = SHAPE[0] * SHAPE[1] // 2
    whole, own = (np.frombuffer(read(one)[at : at + 4], np.float32)[0] for one in (shared, alone))
    assert own > whole == np.float32(np.float16(np.float16(1 / 1000) * np.float16(2688)))
