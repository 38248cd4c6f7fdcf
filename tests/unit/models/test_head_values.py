"""The values of a head's own vocabulary, read from its files wherever they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from packager.core.image import Blob, FileRange, Inline, RemoteRange
from packager.core.model import HeadValues, ModelFile, ModelFiles
from packager.images.blobs import BlobReader
from packager.models.head_values import read_head_values
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.models.safetensors import read_weights_header
from tests.support import heads
from tests.support.cases import cases
from tests.support.doubles.models import write_json, write_safetensors
from tests.support.headers import TINY, model_of

HEAD = heads.eagle3(TINY, draft_vocab=1024)
MODEL = model_of(TINY)
READER = BlobReader()


def written(directory: Path, *, d2t: str = "I64", t2d: str = "BOOL") -> ModelFiles:
    write_json(directory / "config.json", HEAD.config)
    tensors = {one.name: (one.dtype, one.shape) for one in HEAD.tensors}
    tensors |= {name: (kind, tensors[name][1]) for name, kind in (("d2t", d2t), ("t2d", t2d))}
    write_safetensors(directory / "model.safetensors", tensors)
    return LocalSource(is_draft=True).facts(parse_model_reference(str(directory)))


def read(head: ModelFiles, model: ModelFiles = MODEL) -> HeadValues:
    return read_head_values(
        head,
        model,
        read_header=lambda file: read_weights_header(file, READER.read),
        read=READER.read,
    )


@pytest.mark.parametrize("kinds", [("I64", "BOOL"), ("I32", "U8"), ("I32", "I64")])
def test_indices_of_every_type_are_read(tmp_path: Path, kinds: tuple[str, str]) -> None:
    found = read(written(tmp_path, d2t=kinds[0], t2d=kinds[1]))

    assert replace(found, end_tokens=()) == heads.values_of(HEAD)


def test_files_elsewhere_are_read_by_ranges(tmp_path: Path) -> None:
    here = written(tmp_path)
    data = (tmp_path / "model.safetensors").read_bytes()
    asked: list[int] = []

    def far(blob: Blob) -> bytes:
        (part,) = blob.segments
        assert isinstance(part, RemoteRange)
        asked.append(part.length)
        return data[part.offset : part.offset + part.length]

    there = RemoteRange(url="far://model", offset=0, length=len(data))
    files = tuple(replace(one, content=there) for one in here.files if one.role == "weights")
    found = read_head_values(
        replace(here, files=files),
        replace(MODEL, files=()),
        read_header=lambda file: read_weights_header(file, far),
        read=far,
    )

    assert found.d2t == heads.values_of(HEAD).d2t
    assert sum(asked) < 64 * 1024, "the header, and the maps"


def test_a_map_larger_than_any_vocabulary_is_not_read(tmp_path: Path) -> None:
    head = written(tmp_path)
    large = tuple(one._replace(size=2**30) if one.name == "d2t" else one for one in head.tensors)

    assert read(replace(head, tensors=large)).d2t is None


@cases("ends_are_those_of_both_configurations")
def test_ends_are_those_of_both_configurations(
    tmp_path: Path, generation: str, ends: tuple[int, ...]
) -> None:
    content = Inline(generation.encode())
    files = (ModelFile(path="generation_config.json", role="config", content=content),)
    model = replace(MODEL, config={**MODEL.config, "eos_token_id": 2}, files=files)

    assert read(written(tmp_path), model).end_tokens == ends


def test_ends_of_a_model_that_sees_are_those_of_its_text_model(tmp_path: Path) -> None:
    model = replace(MODEL, config={"text_config": {"eos_token_id": [3, 4]}})

    assert read(written(tmp_path), model).end_tokens == (3, 4)


def test_a_file_of_the_cache_is_read_in_part(tmp_path: Path) -> None:
    head = written(tmp_path)
    linked = tuple(
        replace(one, content=replace(one.content, sha256="a" * 64))
        for one in head.files
        if isinstance(one.content, FileRange)
    )

    assert read(replace(head, files=linked)).t2d == heads.values_of(HEAD).t2d
