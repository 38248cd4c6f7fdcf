"""Blocks and groups of weights that share a scale, against how engines cut and join matrices.

A scale belongs to whole blocks.  Engines refuse a matrix of which a device would get a part of
one, along the outputs (blocks) and along the inputs (blocks and groups), and several matrices
that they make one of where a block would reach from one into the next
(`validate_fp8_block_shape`, vLLM 0.32 layers/quantization/utils/fp8_utils.py).
Sizes are those of the headers; what several layers have alike is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from packager.catalog.engine_layers import USUAL, EngineLayers, find_layers
from packager.core.findings import Finding
from packager.core.model import ModelFiles, ModelProfile
from packager.core.techniques import Quantization
from packager.estimate.sizing.left_out import quantized_modules
from packager.models.architectures.profile import SameModel
from packager.models.checkpoints.blocked import Blocked, kind_of, one_of_each
from packager.models.checkpoints.gate import inspect_quantized

BLOCK = (128, 128)  # of `--quantize fp8,block`

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
            for size in self._parts(one, degree):
                if size % one.rows:
                    return (
                        f"it would cut through {one.words}: a device would get {size} outputs of "
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

    def _parts(self, one: Blocked, degree: int) -> list[int]:
        """Return the outputs that a device gets: of each part of what engines take apart."""
        name = one.module.rpartition(".")[2]
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
            for rows, columns in sorted({block_of(part) for part in quantization.parts})
            if max(rows, columns) > 1
            for one in _planned(SameModel(model), rows, columns, ignore)
        )
    return BlockedModel(
        layers=find_layers(profile.architecture),
        heads=profile.heads,
        kv_heads=profile.kv_heads,
        head_dim=profile.head_dim,
        expert_size=profile.expert_size,
        matrices=tuple(one for one in found if not one.is_expert),
        experts=tuple(one for one in found if one.is_expert),
    )


def block_of(quantization: Quantization) -> tuple[int, int]:
    """Return the outputs and inputs that share a scale in what a method writes; 1 is each."""
    blocks = any(name == "block" for name, _ in quantization.options)
    return BLOCK if blocks else (1, quantization.group_size or 1)


def check_misfits(blocked: BlockedModel, quantization: Quantization | None) -> Iterator[Finding]:
    """Refuse blocks that reach from one matrix into the next, however the model is cut."""
    misfits = list(blocked.misfits()) if quantization is not None else []
    if misfits and quantization is not None:
        more = f"; and {len(misfits) - 1} more" if len(misfits) > 1 else ""
        hint = "use `--quantize fp8`"
        if quantization.existing:
            hint = "take a checkpoint whose weights share a scale by rows, or the unquantized one"
        yield Finding("error", "quantize-group", misfits[0] + more, hint)


@lru_cache(maxsize=4)
def _planned(
    same: SameModel, rows: int, columns: int, ignore: tuple[str, ...] | None
) -> tuple[Blocked, ...]:
    return one_of_each(
        Blocked(module=module, outputs=shape[-2], inputs=shape[-1], rows=rows, columns=columns)
        for module, shape in quantized_modules(same.model, ignore)
        if len(shape) == 2
    )
