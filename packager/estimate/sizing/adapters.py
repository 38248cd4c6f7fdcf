"""Memory that an engine keeps for LoRA adapters: slots, made before any adapter is loaded.

A slot has a pair of thin matrices for every linear layer.  Of a layer that is split by its outputs
A is whole on every device; of one that is split by its inputs B is; embedding and head are whole.
Read in vLLM 0.33.0, lora/layers, and SGLang 0.5.23, lora/mem_pool.py.  The log of
vllm-project/vllm#28761 (Qwen3-Coder-30B-A3B over 4 devices, 16 slots of rank 32) says 53.98 GiB
with 14.2 GiB of weights; this says 54.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from packager.core.model import ModelFiles, ModelProfile
from packager.core.split import Split
from packager.estimate.sizing.kv_cache import round_up
from packager.models.adapters.fitting import EMBEDDING, HEAD, TOWER, is_expert_path, matrix_sides

ENTRY_BYTES = 2
BY_INPUTS = frozenset(
    {"o_proj", "out_proj", "down_proj", "w2", "wo", "dense", "dense_4h_to_h", "c_proj", "fc2"}
)
WHOLE = frozenset(
    {"gate", "router", "q_a_proj", "kv_a_proj_with_mqa", "shared_expert_gate", "wkv_a"}
)
CACHED = frozenset({"k_proj", "v_proj"})
GROUPS = (frozenset({"q_proj", "k_proj", "v_proj"}), frozenset({"gate_proj", "up_proj"}))
NOT_SERVED = ("mtp.", "wpe.", "position_embeddings.")
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
PARTS = {"in_proj_qkv": 3}  # of a matrix that engines adapt in several: each has an A of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptableSizes:
    """Inputs and outputs of a model's linear layers, summed up by how devices share them."""

    by_outputs: tuple[int, int] = (0, 0)  # inputs, outputs
    cached: tuple[int, int] = (0, 0)  # of keys and values, whose heads are copied where too few
    by_inputs: tuple[int, int] = (0, 0)
    whole: tuple[int, int] = (0, 0)
    expert_outputs: tuple[int, int] = (0, 0)  # of all experts, split by outputs
    expert_inputs: tuple[int, int] = (0, 0)
    ends: int = 0  # inputs and outputs of embedding and head, where they take adapters


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSlots:
    """What an engine keeps for adapters."""

    count: int
    rank: int
    sizes: AdaptableSizes
    sharded: bool = False  # the other matrix of each pair is split, too
    multiples: tuple[int, int] = (1, 1)  # that an expert's hidden and inner size are padded to


def adapter_bytes(profile: ModelProfile, split: Split, slots: AdapterSlots | None) -> int:
    """Return the bytes of empty slots on one device, of the fullest pipeline stage."""
    if slots is None or not slots.count or not slots.rank:
        return 0
    sizes, degree, rank = slots.sizes, split.tp_degree, slots.rank
    copies = max(profile.kv_heads, degree) / max(1, profile.kv_heads)
    cached = sizes.cached[0], int(sizes.cached[1] * copies)
    entries = _pairs(sizes.by_outputs, degree, rank, outputs=True, sharded=slots.sharded)
    entries += _pairs(cached, degree, rank, outputs=True, sharded=slots.sharded)
    entries += _pairs(sizes.by_inputs, degree, rank, outputs=False, sharded=slots.sharded)
    entries += sum(sizes.whole) * rank
    here = 1 if split.expert_parallel else degree
    wide, deep = expert_padding(profile, here, slots.multiples)
    outs, ins = sizes.expert_outputs, sizes.expert_inputs
    padded = int(outs[0] * wide), int(outs[1] * deep)
    experts = _pairs(padded, here, rank, outputs=True, sharded=slots.sharded)
    padded = int(ins[0] * deep), int(ins[1] * wide)
    experts += _pairs(padded, here, rank, outputs=False, sharded=slots.sharded)
    entries += experts // split.expert_degree if split.expert_parallel else experts
    staged = -(-entries // split.pp_degree) + sizes.ends * rank
    return slots.count * staged * ENTRY_BYTES


def expert_padding(
    profile: ModelProfile, degree: int, multiples: tuple[int, int]
) -> tuple[float, float]:
    """Return by how much the hidden and the inner size of experts grow on a device."""
    inner, hidden = profile.expert_size // degree, profile.hidden_size
    if not inner or not hidden:
        return 1.0, 1.0
    return round_up(hidden, multiples[0]) / hidden, round_up(inner, multiples[1]) / inner


def _pairs(sizes: tuple[int, int], degree: int, rank: int, *, outputs: bool, sharded: bool) -> int:
    """Return the numbers of the pairs of some layers on one device."""
    inputs, outs = sizes
    if outputs:
        first = inputs * (-(-rank // degree) if sharded else rank)
        return first + outs // degree * rank
    last = (outs // degree if sharded else outs) * rank
    return inputs // degree * rank + last


def adaptable_sizes(
    model: ModelFiles,
    profile: ModelProfile,
    *,
    ends: bool,
    leaves: Iterable[str] = (),
    joined: bool = False,
) -> AdaptableSizes:
    """Sum up a model's linear layers by its headers; `leaves` limits it to modules so named.

    Experts are `joined` where an engine adapts gate and up of each as one matrix.
    """
    wanted = frozenset(_with_groups(leaves))
    sums: dict[str, list[int]] = {}
    for path, sides in {**matrix_sides(model), **_convolutions(model)}.items():
        leaf = path.rpartition(".")[2]
        if sides is None or leaf in (*EMBEDDING, *HEAD) or path.startswith(NOT_SERVED):
            continue
        layer = LAYER.search(path)
        if layer is not None and int(layer[1]) >= profile.layers:
            continue  # it only drafts
        if TOWER.search(path) or (wanted and leaf not in wanted):
            continue
        kind = sums.setdefault(_kind(path, leaf), [0, 0])
        kind[0] += sides[1] * PARTS.get(leaf, 1)
        kind[1] += sides[0]
    found = AdaptableSizes(
        **{kind: (inputs, outputs) for kind, (inputs, outputs) in sums.items()},
        ends=2 * (profile.vocab_size + profile.hidden_size) if ends else 0,
    )
    is_stacked = profile.experts and "expert_outputs" not in sums
    if is_stacked and not wanted:
        found = _with_stacked(found, profile)
    inputs, outputs = found.expert_outputs
    return replace(found, expert_outputs=(inputs // 2, outputs)) if joined else found


def _convolutions(model: ModelFiles) -> Mapping[str, tuple[int, int]]:
    """Return outputs and width of short convolutions, which engines keep as linear layers."""
    return {
        tensor.name.removesuffix(".weight"): (tensor.shape[0], tensor.shape[-1])
        for tensor in model.tensors
        if tensor.name.endswith(".conv1d.weight") and len(tensor.shape) == 3
    }


def _with_stacked(found: AdaptableSizes, profile: ModelProfile) -> AdaptableSizes:
    """Add experts that a checkpoint keeps in one tensor."""
    count = profile.layers * profile.experts
    hidden, inner = profile.hidden_size * count, profile.expert_size * count
    return replace(found, expert_outputs=(2 * hidden, 2 * inner), expert_inputs=(inner, hidden))


def _kind(path: str, leaf: str) -> str:
    if is_expert_path(path):
        return "expert_inputs" if leaf in BY_INPUTS else "expert_outputs"
    if leaf in CACHED:
        return "cached"
    if leaf in WHOLE:
        return "whole"
    return "by_inputs" if leaf in BY_INPUTS else "by_outputs"


def _with_groups(leaves: Iterable[str]) -> Iterator[str]:
    """Yield names, and those that engines adapt together with them."""
    for leaf in leaves:
        yield leaf
        for group in GROUPS:
            if leaf in group:
                yield from group
