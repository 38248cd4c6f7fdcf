"""Whether an adapter fits its base, from the headers of both.

Engines copy an adapter's matrices into larger buffers and look modules up by the base's names: one
of a smaller sibling, and one whose names the base lacks, are loaded in silence and change other
answers, or none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from packager.core.adapters import AdaptedModule, Adapter
from packager.core.findings import Finding
from packager.core.model import ModelFiles, TensorInfo
from packager.core.suggestions import nearest
from packager.models.architectures.profile import SameModel
from packager.models.checkpoints.packed import Layout, layouts_of

Sides = tuple[int, int]  # outputs and inputs

# Beginnings of the same module's path in one checkpoint or another, and in one version of
# transformers or another: a model that sees wraps its language model.
WRAPPERS = (
    "model.language_model.model.",
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "model.text_model.",
    "model.",
    "transformer.",
    "",
)
EMBEDDING = ("embed_tokens", "wte", "word_embeddings", "embed_in")
HEAD = ("lm_head", "embed_out")
TOWER = re.compile(r"(?:^|\.)(?:visual|vision\w*|audio\w*|multi_modal_projector|mm_projector)\.")
WHOLE = ("F8_", "I8")  # types that hold one weight an element
PREFIX, COPIED = "base_model.model.", ".base_layer.weight"
STACKED = ("gate_up_proj", "down_proj")
MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFit:
    """What the headers say: errors, and names that the base has for the adapter's modules."""

    findings: tuple[Finding, ...]
    paths: Mapping[str, str]  # of modules that the base's checkpoint names otherwise
    copies: frozenset[str] = frozenset()  # tensors that PEFT copied out of the base, untrained


def fit_adapter(adapter: Adapter, base: ModelFiles) -> AdapterFit:
    """Compare every pair with the matrix of the base that its product is added to."""
    sides = _sides_of(SameModel(base))
    paths: dict[str, str] = {}
    lacking: list[str] = []
    misfits: list[str] = []
    unproven: list[str] = []
    tower: list[str] = []
    for module in adapter.modules:
        if TOWER.search(module.path):
            tower.append(module.path)
        name = _name_in(module.path, sides)
        if not name:
            lacking.append(module.path)
            continue
        if name != module.path:
            paths[module.path] = name
        found = sides[name.removesuffix(".base_layer")]
        if found is None:
            unproven.append(module.path)
        elif not _fits(module, found, adapter):
            own = f"{module.outputs}×{module.inputs}"
            misfits.append(f"{module.path} is {own}, the base's {found[0]}×{found[1]}")
    findings = _findings(adapter, sides, lacking, misfits, unproven, tower)
    copies = (one.name for one in adapter.others if _is_copy(one, sides))
    return AdapterFit(findings=tuple(findings), paths=paths, copies=frozenset(copies))


def _is_copy(tensor: TensorInfo, sides: Mapping[str, Sides | None]) -> bool:
    """Return whether PEFT saved an embedding or head beside the pair that adapts it."""
    path = tensor.name.removeprefix(PREFIX).removesuffix(COPIED)
    is_end = path.rpartition(".")[2] in (*EMBEDDING, *HEAD)
    name = _name_in(path, sides) if is_end and tensor.name.endswith(COPIED) else ""
    return bool(name) and sides[name] == tensor.shape


def _findings(
    adapter: Adapter,
    sides: Mapping[str, Sides | None],
    lacking: list[str],
    misfits: list[str],
    unproven: list[str],
    tower: list[str],
) -> Iterator[Finding]:
    who = f"adapter {adapter.name!r}"
    trained = f"; it names {adapter.base[:120]!r} as its base" if adapter.base else ""
    other = f"give the base that it was trained on{trained}"
    if lacking:
        close = nearest(lacking[0], tuple(sides)) if len(sides) < 5000 else ""
        hint = f"{other}; the nearest module here is {close!r}" if close else other
        message = f"{who} adapts modules that the base has not: {_some(lacking)}"
        yield Finding("error", "adapter-misfit", message, hint)
    if misfits:
        message = f"{who} has matrices of other shapes than the base: {_some(misfits)}"
        yield Finding("error", "adapter-misfit", message, other)
    if tower:
        message = (
            f"{who} adapts what reads images or sound, which servers leave out: {_some(tower)}"
        )
        yield Finding("error", "adapter-module", message, "train it on the language model alone")
    if unproven:
        message = f"the shapes of {who} are not proven where the base is packed: {_some(unproven)}"
        yield Finding("warning", "adapter-unproven", message, "compare its answers with the base's")


def _name_in(path: str, sides: Mapping[str, Sides | None]) -> str:
    """Return the base's own name of a module; "" where it has none."""
    bare = path.removesuffix(".base_layer") if _is_stacked(path) else path
    tail = path.removeprefix(bare)  # of the first of two tensors of experts
    if bare in sides:
        return path
    own = next(one for one in WRAPPERS if bare.startswith(one))
    rest = bare.removeprefix(own)
    found = [f"{one}{rest}{tail}" for one in WRAPPERS if f"{one}{rest}" in sides]
    return found[0] if len(found) == 1 else ""


def _is_stacked(path: str) -> bool:
    return path.endswith((".experts", ".experts.base_layer"))


def _fits(module: AdaptedModule, found: Sides, adapter: Adapter) -> bool:
    own = (module.outputs, module.inputs)
    if module.form == "embedding":  # A is over the vocabulary, B over the hidden size
        return (module.inputs, module.outputs) == found
    turned = adapter.config.get("fan_in_fan_out") is True and own == found[::-1]
    return own == found or turned


@cache
def _sides_of(same: SameModel) -> Mapping[str, Sides | None]:
    """Return outputs and inputs of every matrix of a checkpoint; None where packing hides them."""
    model = same.model
    stated = model.config.get("quantization_config")
    layouts = layouts_of(stated) if isinstance(stated, Mapping) else ()
    suffixes = {layout.suffix: layout for layout in layouts}
    found: dict[str, Sides | None] = {}
    for tensor in model.tensors:
        module, _, kind = tensor.name.rpartition(".")
        layout = next((suffixes[one] for one in suffixes if tensor.name.endswith(one)), None)
        if layout is not None and tensor.dtype in layout.dtypes and kind != "bias":
            stem = tensor.name.removesuffix(layout.suffix).removesuffix(".weight")
            found[stem] = _unpacked(layout, tensor)
        elif kind == "weight" and len(tensor.shape) == 2 and module not in found:
            found[module] = (tensor.shape[0], tensor.shape[1])
        elif kind in STACKED and len(tensor.shape) == 3:
            found[module] = None  # of all experts: shapes are those of the tensor's own layout
    return found


def _unpacked(layout: Layout, tensor: TensorInfo) -> Sides | None:
    """Return outputs and inputs of a packed weight; None where its layout does not tell."""
    shape: tuple[int, ...] = tensor.shape
    if layout.unpacked is not None:
        try:
            shape = layout.unpacked(tensor.shape)
        except (ArithmeticError, IndexError):
            return None
    elif not tensor.dtype.startswith(WHOLE):
        return None
    return (shape[0], shape[1]) if len(shape) == 2 and min(shape) > 1 else None


def head_modules(adapter: Adapter) -> tuple[str, ...]:
    """Return the paths of an adapter that are the base's embedding or head."""
    return tuple(one.path for one in adapter.modules if one.leaf in (*EMBEDDING, *HEAD))


def is_head(module: AdaptedModule) -> bool:
    """Return whether a pair adapts the output layer."""
    return module.leaf in HEAD


def matrix_sides(model: ModelFiles) -> Mapping[str, Sides | None]:
    """Return outputs and inputs of every matrix by its module; None where packing hides them."""
    return _sides_of(SameModel(model))


def is_expert_path(path: str) -> bool:
    """Return whether a path is that of a routed expert of a mixture."""
    return ".experts." in f"{path}."


def is_expert(module: AdaptedModule) -> bool:
    """Return whether a pair adapts a routed expert of a mixture."""
    return is_expert_path(module.path)


def _some(names: list[str]) -> str:
    listed = ", ".join(names[:MOST_NAMED])
    return f"{listed} and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else listed
