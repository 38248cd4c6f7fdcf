"""A fine-tuned MTP head put back into its model: a new checkpoint of the old bytes.

The head's tensors come in a shard of their own; files without any of them stay as they are, and the
others are described anew without them.  Every other tensor keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packager.core.errors import UsageError
from packager.core.findings import Finding
from packager.core.image import Inline
from packager.core.model import ModelFile, ModelFiles, TensorInfo
from packager.images.reshard import ReadHeader, weights_index, without_tensors
from packager.models.rules import INDEX

PREFIX = "mtp."  # of the heads that are trained here
SHARD = "model-mtp.safetensors"
OTHER = "name the checkpoint that the head was trained for, and a head of --method mtp"


def mtp_tensors(model: ModelFiles) -> dict[str, TensorInfo]:
    """Return the tensors of a model's MTP head by their names."""
    return {one.name: one for one in model.tensors if one.name.startswith(PREFIX)}


def check_mtp_head(head: ModelFiles, model: ModelFiles) -> Iterator[Finding]:
    """Yield findings where a head's tensors are not those that the model has."""
    own, there = {one.name: one for one in head.tensors}, mtp_tensors(model)
    if odd := min(own.keys() ^ there.keys(), default=""):
        who = "the head" if odd in own else "the model"
        message = f"only {who} has {odd[:80]!r}: the head is of another model"
        yield Finding("error", "draft-truncated", message, OTHER)
        return
    for name, tensor in own.items():
        before = there[name]
        if (tensor.shape, tensor.dtype) != (before.shape, before.dtype):
            message = (
                f"{name[:80]!r} is {tensor.dtype} {list(tensor.shape)} in the head, "
                f"{before.dtype} {list(before.shape)} in the model"
            )
            yield Finding("error", "draft-shape", message, OTHER)
            return


def stitched_files(
    model: ModelFiles, head: ModelFiles, read_header: ReadHeader
) -> tuple[ModelFile, ...]:
    """Return the files of the model with the head in place of its own.

    The files must fit: see `check_mtp_head`.
    """
    weights = {file.path: file for file in head.files if file.role == "weights"}
    if len(weights) != 1:
        raise UsageError(f"the head has {len(weights)} files of weights, not one", hint=OTHER)
    (shard,) = weights.values()
    named = {one.name for one in head.tensors}
    weight_map = dict.fromkeys(named, SHARD)
    total = sum(one.size for one in head.tensors)
    files: list[ModelFile] = [replace(shard, path=SHARD)]
    for file in model.files:
        if file.role != "weights":
            files += [] if file.path == INDEX else [file]
            continue
        header = read_header(file)
        kept = [one for one in header.tensors if one.name not in named]
        weight_map |= {one.name: file.path for one in kept}
        total += sum(one.size for one in kept)
        if kept:
            same = len(kept) == len(header.tensors)
            files.append(file if same else without_tensors(file, header, named))
    index = ModelFile(path=INDEX, role="config", content=Inline(weights_index(weight_map, total)))
    return tuple(sorted((*files, index), key=lambda file: file.path))
