"""Tensors of an adapter, as pairs of matrices beside modules of its base."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packager.core.adapters import WEIGHTS, AdaptedModule, AdapterForm
from packager.core.documents import shorten
from packager.core.errors import ModelRefused
from packager.core.model import TensorInfo
from packager.models.adapters.configuration import LONGEST_PATH, AdapterFields

# `default` stands in files that were not written by `save_pretrained`, but by a trainer's own code.
KEY = re.compile(
    r"(?:base_model\.model\.)?(?P<path>[\w.-]+)\.lora_(?P<part>A|B|embedding_A|embedding_B)"
    r"(?:\.default)?(?P<weight>\.weight)?",
    re.ASCII,
)
FLOATS = ("BF16", "F16", "F32")
EXPERTS = "experts"  # whose parameters have all experts in one tensor


def read_pairs(
    tensors: Iterable[TensorInfo], fields: AdapterFields
) -> tuple[tuple[AdaptedModule, ...], tuple[TensorInfo, ...]]:
    """Return the pairs in the order of their paths, and the tensors that are none.

    Raises `ModelRefused` for halves, for shapes that no product has, and for ranks that the
    configuration does not state.
    """
    halves: dict[tuple[str, bool], dict[str, TensorInfo]] = {}
    others: list[TensorInfo] = []
    for tensor in tensors:
        key = KEY.fullmatch(tensor.name)
        if key is None or tensor.name.endswith(".bias"):
            others.append(tensor)
            continue
        if len(key["path"]) > LONGEST_PATH:
            raise _broken(f"the name {shorten(tensor.name)} is longer than any module's")
        is_embedding = key["part"].startswith("embedding")
        pair = halves.setdefault((key["path"], is_embedding), {})
        part = key["part"][-1]
        if part in pair:
            raise _broken(f"{shorten(key['path'])} has two matrices {part}")
        pair[part] = tensor
    if not halves:
        raise _broken("it has no pair of LoRA's matrices")
    modules = [
        _module(path, pair, fields, is_embedding=is_embedding)
        for (path, is_embedding), pair in sorted(halves.items())
    ]
    return tuple(modules), tuple(others)


def tensor_names(path: str, form: AdapterForm) -> tuple[str, str]:
    """Return the names of a module's two matrices as PEFT saves them."""
    stem = f"base_model.model.{path}.lora_"
    if form == "embedding":
        return f"{stem}embedding_A", f"{stem}embedding_B"
    return f"{stem}A.weight", f"{stem}B.weight"


def _module(
    path: str, pair: Mapping[str, TensorInfo], fields: AdapterFields, *, is_embedding: bool
) -> AdaptedModule:
    if len(pair) == 1:
        (part,) = pair
        lacks = "B" if part == "A" else "A"
        raise _broken(f"{shorten(path)} has the matrix {part} and lacks {lacks}")
    a, b = pair["A"], pair["B"]
    for tensor in (a, b):
        if len(tensor.shape) != 2 or not all(tensor.shape):
            raise _broken(f"{shorten(tensor.name)} has the shape {_shown(tensor)}: no matrix")
        if tensor.dtype not in FLOATS:
            raise _broken(
                f"{shorten(tensor.name)} is of type {tensor.dtype}; {', '.join(FLOATS)} are served"
            )
    if a.dtype != b.dtype:
        raise _broken(f"{shorten(path)} has matrices of types {a.dtype} and {b.dtype}")
    rows, columns = a.shape[0], b.shape[1]
    if rows != columns:
        raise _broken(f"{shorten(path)} has matrices of ranks {rows} and {columns}")
    rank = fields.rank_of(path)
    form = _form(path, rows, rank, is_embedding=is_embedding)
    if rows != rank and form != EXPERTS:
        raise _broken(f"{shorten(path)} has rank {rows}, and the configuration says {rank}")
    return AdaptedModule(
        path=path,
        form=form,
        rank=rank,
        inputs=a.shape[1],
        outputs=b.shape[0],
        scale=fields.scale_of(path),
        dtype=a.dtype,
        a=a,
        b=b,
    )


def _form(path: str, rows: int, rank: int, *, is_embedding: bool) -> AdapterForm:
    if is_embedding:
        return "embedding"
    last = path.removesuffix(".base_layer").rpartition(".")[2]
    return "experts" if last == EXPERTS and rows % rank == 0 else "linear"


def _shown(tensor: TensorInfo) -> str:
    return "×".join(map(str, tensor.shape)) or "of one number"


def _broken(what: str) -> ModelRefused:
    return ModelRefused(
        f"{WEIGHTS!r} is refused: {what}",
        hint="save the adapter again with PEFT's `save_pretrained(DIR)`",
        code="AdapterBroken",
    )
