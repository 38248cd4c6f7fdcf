"""Blocks and groups of weights that share a scale, against how engines cut and join matrices.

A scale belongs to whole blocks.  Engines refuse a matrix of which a device would get a part of
one, along the outputs (blocks) and along the inputs (blocks and groups), and several matrices
that they make one of where a block would reach from one into the next; parts of words that hold
zero points of several outputs stay what was in memory
(`validate_fp8_block_shape`, vLLM 0.32 layers/quantization/utils/fp8_utils.py).
Sizes are those of the headers; what several layers have alike is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from packager.catalog.engine_layers import USUAL, EngineLayers, find_layers
from packager.core.findings import Finding
from packager.core.model import ModelFiles, ModelProfile
from packager.core.techniques import Quantization
from packager.estimate.sizing.left_out import quantized_modules
from packager.models.architectures.profile import SameModel
from packager.models.checkpoints.blocked import Blocked, kind_of, make_blocked, one_of_each
from packager.models.checkpoints.gate import inspect_quantized
from packager.models.checkpoints.mixers import find_mixers

BLOCK = (128, 128)  # of `--quantize fp8,block`

BYTE, WORD = 8, 32  # bits

_Form = tuple[int, int, int, bool]  # of what a method writes, as the fields of `Blocked`
PLAIN: _Form = (1, 1, 1, True)

GROUPS = ("mamba_n_groups", "mamba_ngroups", "n_groups")
KEYS_VALUES = frozenset({"k_proj", "v_proj", "wk", "wv", "key", "value"})
# Matrices that engines make of several, as some checkpoints have them.
QUERY_KEY_VALUE = frozenset({"qkv_proj", "query_key_value", "Wqkv", "W_pack"})
GATE_UP = frozenset({"gate_up_proj"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedModel:
    """The matrices of a model whose weights share scales, one of each kind."""

    layers: EngineLayers = USUAL
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    expert_size: int = 0
    mixers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by kind: their parts
    groups: int = 0  # of a Mamba-2 mixer; 0: there is none
    matrices: tuple[Blocked, ...] = ()  # without those of routed experts
    experts: tuple[Blocked, ...] = ()

    def refuse(self, degree: int) -> str:
        """Return why the matrices cannot be cut into `degree` parts; "" when they can."""
        if degree < 2:
            return ""
        for one in self.matrices:
            cut = self.layers.cut_of(one.module)
            inputs = one.inputs // degree
            if cut == "inputs" and one.inputs % degree == 0 and inputs % one.columns:
                return (
                    f"it would cut through {one.words}: {one.inputs} / {degree} inputs of "
                    f"{one.module} are not a multiple"
                )
            if cut != "outputs":
                continue
            if kind_of(one.module) in self.mixers and self.groups % degree and not one.by_rows:
                return (
                    f"engines give {degree} devices copies of the {self.groups} groups of "
                    f"{one.module} where it is stored by rows, not where it is packed"
                )
            for size in self._parts(one, degree):
                if size % one.rows or size % one.packed:
                    words = one.words if size % one.rows else one.packed_words
                    return (
                        f"it would cut through {words}: a device would get {size} outputs of "
                        f"{one.module}"
                    )
        return ""

    def refuse_experts(self, degree: int) -> str:
        """Return why experts cannot be cut into `degree` parts; "" when they can."""
        size = self.expert_size // degree
        for one in self.experts if degree > 1 and size else ():
            if self.expert_size % degree == 0 and (size % one.rows or size % one.columns):
                return (
                    f"it would cut through {one.words}: the experts' {self.expert_size} / {degree} "
                    "is not a multiple"
                )
        return ""

    def misfits(self) -> Iterator[str]:
        """Describe matrices that blocks reach out of where nothing is cut, on one device too."""
        for one in self.experts:
            if self.expert_size % one.rows:
                yield f"{one.words} do not divide the experts' size {self.expert_size}"
                break
        kinds: dict[str, list[Blocked]] = {}
        for one in self.matrices:
            kinds.setdefault(kind_of(one.module), []).append(one)
        for (path, name), parts in self.layers.fusions(kinds).items():
            last = parts[-1].removeprefix(f"{path}.")
            for one in (one for part in parts[:-1] for one in kinds[part]):
                if one.outputs % one.rows:
                    yield (
                        f"{one.words} do not divide the {one.outputs} outputs of {one.module}, "
                        f"behind which engines put {last} in one {name}"
                    )
        for one in self.matrices:
            first = self._parts(one, 1)[:-1]
            if any(size % one.rows for size in first):
                sizes = " and ".join(map(str, first))
                yield f"{one.words} do not divide parts of {one.module}, of {sizes} outputs"
            every = self._parts(one, 1)
            if len(every) > 1 and any(size % one.packed for size in every):
                sizes = ", ".join(map(str, every))
                yield (
                    f"{one.packed_words} do not divide parts of {one.module}, of {sizes} outputs, "
                    "which engines load one by one"
                )

    def _parts(self, one: Blocked, degree: int) -> list[int]:
        """Return the outputs that a device gets: of each part of what engines take apart."""
        name = one.module.rpartition(".")[2]
        if parts := self.mixers.get(kind_of(one.module)):
            return [outputs // degree for outputs in parts]
        if name in KEYS_VALUES:
            return [self._of_keys(one.outputs, degree)]
        queries = self.heads * self.head_dim
        if name in QUERY_KEY_VALUE and queries < one.outputs:
            keys = self._of_keys((one.outputs - queries) // 2, degree)
            return [queries // degree, keys, keys]
        if name in GATE_UP:
            return [one.outputs // 2 // degree] * 2
        return [one.outputs // degree] if one.outputs % degree == 0 else []

    def _of_keys(self, outputs: int, degree: int) -> int:
        """Return the outputs of keys on a device: at least those of one head."""
        heads = outputs // self.head_dim if self.head_dim else self.kv_heads
        return outputs // min(degree, max(heads, 1))


UNBLOCKED = BlockedModel()


def read_blocks(
    model: ModelFiles,
    profile: ModelProfile,
    quantization: Quantization | None,
    ignore: tuple[str, ...] | None = None,
) -> BlockedModel:
    """Return the blocks of a checkpoint that arrives, or those that quantizing will give it."""
    found: tuple[Blocked, ...] = ()
    if quantization is not None and quantization.existing:
        found = inspect_quantized(model).blocks
    elif quantization is not None:
        # Of several schemes each is asked of every matrix: stricter than need be, and simple.
        found = tuple(
            one
            for form in sorted({_form_of(part) for part in quantization.parts})
            if form != PLAIN
            for one in _planned(SameModel(model), form, ignore)
        )
    mixers = {kind_of(module): parts for module, parts in find_mixers(model.tensors).items()}
    return BlockedModel(
        layers=find_layers(profile.architecture),
        heads=profile.heads,
        kv_heads=profile.kv_heads,
        head_dim=profile.head_dim,
        expert_size=profile.expert_size,
        mixers=mixers,
        groups=_groups_of(model.config) if mixers else 0,
        matrices=tuple(one for one in found if not one.is_expert),
        experts=tuple(one for one in found if one.is_expert),
    )


def block_of(quantization: Quantization) -> tuple[int, int]:
    """Return the outputs and inputs that share a scale in what a method writes; 1 is each."""
    blocks = any(name == "block" for name, _ in quantization.options)
    return BLOCK if blocks else (1, quantization.group_size or 1)


def _form_of(quantization: Quantization) -> _Form:
    layout = quantization.layout
    zeros = layout is not None and layout.zero_bits > 0
    rows, columns = block_of(quantization)
    by_rows = quantization.bits >= BYTE and rows == 1
    return rows, columns, WORD // quantization.bits if zeros else 1, by_rows


def _groups_of(config: Mapping[str, Any]) -> int:
    text = config.get("text_config")
    stated = {**config, **(text if isinstance(text, Mapping) else {})}
    found = next((stated[key] for key in GROUPS if type(stated.get(key)) is int), 1)
    return max(found, 1)


def check_misfits(blocked: BlockedModel, quantization: Quantization | None) -> Iterator[Finding]:
    """Refuse blocks that reach from one matrix into the next, however the model is cut."""
    misfits = list(blocked.misfits()) if quantization is not None else []
    if misfits and quantization is not None:
        more = f"; and {len(misfits) - 1} more" if len(misfits) > 1 else ""
        hint = "use `--quantize fp8`"
        if any(one.packed > 1 for one in blocked.matrices):
            hint = "use a method without zero points, such as `--quantize gptq`, or fp8"
        if quantization.existing:
            hint = "take a checkpoint whose weights share a scale by rows, or the unquantized one"
        yield Finding("error", "quantize-group", misfits[0] + more, hint)


@lru_cache(maxsize=4)
def _planned(same: SameModel, form: _Form, ignore: tuple[str, ...] | None) -> tuple[Blocked, ...]:
    rows, columns, packed, by_rows = form
    return one_of_each(
        make_blocked(module, shape, (rows, columns), packed=packed, by_rows=by_rows)
        for module, shape in quantized_modules(same.model, ignore)
        if len(shape) == 2
    )
