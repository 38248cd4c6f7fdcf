"""Size of the KV cache on one device: groups of layers, and what a sequence takes in each.

vLLM gives out one size of block for all layers.  Layers that keep the same form groups of
equally many layers (v1/core/kv_cache_utils.py); a group with fewer is padded, pages of small
layers hold more tokens, and the pages of attention grow until a layer's state fits in one.
Compressed attention has pages of several sizes side by side in a block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Literal

from packager.core.instance import DeviceKind
from packager.core.model import KvGroup, ModelProfile
from packager.core.plan import KvShare

ELEMENT_BYTES = 2  # that a profile counts an element of the cache with
COMPRESSED_BLOCK = 256  # tokens of a block of compressed latents: vLLM 0.33 models/deepseek_v4
COMPRESSED_ALIGNMENT = 576  # bytes that each page of it is a multiple of

Packing = Literal["repeats", "groups"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """How an engine gives out the cache of a device."""

    block_tokens: int = 0  # 0: a whole sequence at once
    latent_block_tokens: int = 0  # that blocks of latents beside states are a multiple of
    group_ratio: float = 0.0  # 0: no groups, every layer keeps every token
    state_pages: int = 1  # that a sequence holds of each layer with a state
    state_every_block: bool = False  # a state stays for each block of tokens
    packs_sparse: bool = False  # 8-bit latents that an indexer chooses from lie with their scales
    shares_index: bool = False  # layers take over the index of an earlier one
    packing: Packing = "repeats"  # of compressed attention: by layers that repeat, or by groups


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """The cache of one device, for one sequence."""

    shares: tuple[KvShare, ...]
    block_tokens: int  # 0: a whole sequence at once

    @property
    def bytes_per_token(self) -> int:
        """Return what a token takes where no window has left it behind.

        Windows shorter than a block keep about the same of every sequence, and do not count.
        """
        return sum(
            share.bytes_per_token
            for share in self.shares
            if not 0 < share.window_tokens < self.block_tokens
        )

    @property
    def sequence_bytes(self) -> int:
        """Return what a sequence takes whatever its length."""
        return sum(share.sequence_bytes for share in self.shares)

    def request_bytes(self, tokens: int, in_flight: int = 0) -> int:
        """Return what a sequence of `tokens` takes, of which `in_flight` are being read."""
        return sum(share.request_bytes(tokens, in_flight) for share in self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Layers of one device that keep the same, in bytes."""

    layers: int
    entry_bytes: int = 0  # of one layer
    entry_tokens: int = 1
    block_tokens: int = 0  # of its own
    window_tokens: int = 0
    state_bytes: int = 0  # of one layer
    latent: bool = False

    def page_bytes(self, block_tokens: int) -> int:
        """Return what a block of tokens takes in one layer."""
        return -(-block_tokens // self.entry_tokens) * self.entry_bytes


def make_layout(
    profile: ModelProfile,
    kind: DeviceKind,
    tp_degree: int,
    pp_degree: int,
    paging: Paging,
    *,
    element_bytes: int,
) -> KvLayout:
    """Return the cache layout of the device that has most of it."""
    groups = _as_engine(find_groups(profile), paging)
    kinds = [
        _on_device(group, profile, kind, tp_degree, pp_degree, element_bytes) for group in groups
    ]
    if paging.group_ratio and any(group.kind == "compressed" for group in groups):
        return _packed_layout(kinds, paging.packing)
    alike = not any(one.window_tokens or one.state_bytes for one in kinds)
    if not paging.group_ratio or alike:
        return _plain_layout(kinds, paging)
    return _paged_layout(kinds, paging)


def with_state_types(profile: ModelProfile, mixed_bytes: int, recurrent_bytes: int) -> ModelProfile:
    """Return the profile with states in elements of so many bytes; 0 leaves the engine's choice.

    Where the type of recurrent elements is not chosen, it is that of the convolution, unless the
    model states a wider one.
    """
    if not mixed_bytes and not recurrent_bytes:
        return profile
    groups = tuple(_retyped(group, mixed_bytes, recurrent_bytes) for group in profile.kv_groups)
    states = sum(group.layers * group.state_bytes for group in groups)
    return replace(profile, kv_groups=groups, state_bytes=states or profile.state_bytes)


def _retyped(group: KvGroup, mixed_bytes: int, recurrent_bytes: int) -> KvGroup:
    mixed, recurrent = group.mixed_elements, group.recurrent_elements
    if not mixed:
        return group
    rest = group.state_bytes - mixed * ELEMENT_BYTES
    mixed_bytes = mixed_bytes or ELEMENT_BYTES
    if recurrent:
        rest = recurrent * (recurrent_bytes or max(mixed_bytes, rest // recurrent))
    return replace(group, state_bytes=mixed * mixed_bytes + rest)


def _as_engine(groups: tuple[KvGroup, ...], paging: Paging) -> tuple[KvGroup, ...]:
    """Return the groups of sparse latents and their index as this engine keeps them."""
    latents = sum(group.layers for group in groups if group.kind == "mla" and group.head_dim)
    found = groups
    if not paging.packs_sparse:
        found = tuple(replace(group, eight_bit_bytes=0) for group in found)
    if not paging.shares_index and latents:
        found = tuple(
            replace(group, layers=latents) if group.kind == "mla" and not group.head_dim else group
            for group in found
        )
    return found


def find_groups(profile: ModelProfile) -> tuple[KvGroup, ...]:
    """Return the profile's groups of layers, or those that its sums amount to."""
    if profile.kv_groups:
        return profile.kv_groups
    latent = profile.attention == "mla"
    cached = profile.cached_layers or profile.layers
    heads = 1 if latent else max(1, profile.kv_heads)
    elements = profile.kv_bytes_per_token // ELEMENT_BYTES // max(1, cached * heads)
    head_dim = elements if latent else elements // 2
    windowed = min(profile.window_layers, cached)
    groups = []
    if cached > windowed or not windowed:
        groups.append(
            KvGroup(
                kind="mla" if latent else "full",
                layers=cached - windowed,
                kv_heads=heads,
                head_dim=head_dim,
            )
        )
    if windowed:
        groups.append(
            KvGroup(
                kind="sliding",
                layers=windowed,
                kv_heads=heads,
                head_dim=head_dim,
                window_tokens=profile.window_tokens,
            )
        )
    states = max(1, profile.layers - cached)
    if profile.state_bytes:
        groups.append(
            KvGroup(kind="state", layers=states, state_bytes=profile.state_bytes // states)
        )
    return tuple(groups)


def kv_heads_here(profile: ModelProfile, kind: DeviceKind, tp_degree: int, kv_heads: int) -> int:
    """Share the KV heads; with fewer heads than devices, each device keeps a copy of one.

    Neuron's libraries turn what does not divide either way into as many KV heads
    as attention heads (optimum-neuron, gqa.get_shardable_head_counts).
    """
    if kind == "neuron" and is_converted_to_mha(profile, tp_degree):
        return -(-profile.heads // tp_degree)
    return max(1, kv_heads // tp_degree)


def is_converted_to_mha(profile: ModelProfile, tp_degree: int) -> bool:
    """Whether a Neuron engine gives up sharing KV heads at this degree."""
    return bool(profile.kv_heads % tp_degree and tp_degree % profile.kv_heads)


def round_up(number: int, multiple: int) -> int:
    """Return the next multiple; `multiple` 0 leaves the number as it is."""
    return -(-number // multiple) * multiple if multiple else number


def _on_device(
    group: KvGroup,
    profile: ModelProfile,
    kind: DeviceKind,
    tp_degree: int,
    pp_degree: int,
    element_bytes: int,
) -> _Kind:
    layers = -(-group.layers // pp_degree)
    if group.kind == "state":
        size = -(-group.state_bytes // tp_degree)
        return _Kind(layers=layers, state_bytes=size, block_tokens=group.block_tokens)
    if group.kind in ("mla", "compressed", "sums"):  # one for all heads, on every device
        size = group.entry_bytes or group.head_dim * element_bytes
        if group.eight_bit_bytes and element_bytes == 1:
            size = group.eight_bit_bytes
        return _Kind(
            layers=layers,
            entry_bytes=size,
            entry_tokens=group.entry_tokens,
            block_tokens=group.block_tokens,
            window_tokens=group.window_tokens,
            latent=True,
        )
    heads = kv_heads_here(profile, kind, tp_degree, group.kv_heads)
    width = group.head_dim + (group.value_dim or group.head_dim)
    return _Kind(
        layers=layers,
        entry_bytes=heads * width * element_bytes,
        window_tokens=group.window_tokens,
    )


def _plain_layout(kinds: Sequence[_Kind], paging: Paging) -> KvLayout:
    """Add up layers that are allocated one by one, and keep every token.

    Windows of latents are freed by every engine that has compressed attention.
    """
    block_tokens = paging.block_tokens or 1
    state = sum(kind.layers * kind.state_bytes for kind in kinds) * paging.state_pages
    whole = [kind for kind in kinds if not (kind.latent and kind.window_tokens)]
    grows = sum(kind.layers * -(-kind.entry_bytes // kind.entry_tokens) for kind in whole)
    shares = [KvShare(block_bytes=grows * block_tokens, block_tokens=block_tokens)]
    shares += [
        KvShare(block_bytes=kind.layers * kind.entry_bytes, window_tokens=kind.window_tokens)
        for kind in kinds
        if kind not in whole
    ]
    if state:
        shares.append(KvShare(block_bytes=0, sequence_bytes=state))
    return KvLayout(shares=tuple(shares), block_tokens=paging.block_tokens)


def _paged_layout(kinds: Sequence[_Kind], paging: Paging) -> KvLayout:
    """Return the layout of equally sized pages for groups of equally many layers."""
    grown = [kind for kind in kinds if kind.entry_bytes]
    states = [kind for kind in kinds if kind.state_bytes]
    counts = [kind.layers for kind in kinds if kind.layers]
    size = min(counts)
    if max(counts) < size * paging.group_ratio:
        size = max(counts)
    state = max((kind.state_bytes for kind in states), default=0)
    block_tokens = paging.block_tokens
    if states and grown:
        if any(kind.latent for kind in grown):
            block_tokens = max(block_tokens, paging.latent_block_tokens)
        if paging.state_every_block:
            block_tokens = lcm(block_tokens, *(kind.block_tokens or 1 for kind in states))
        widest = max(kind.entry_bytes for kind in grown)
        block_tokens = max(block_tokens, round_up(-(-state // widest), block_tokens))
    page = max((kind.page_bytes(block_tokens) for kind in grown), default=state)
    shares = []
    for kind in kinds:
        block_bytes = round_up(kind.layers, size) * page
        if kind.entry_bytes:
            own = kind.page_bytes(block_tokens)
            ratio = page // own if page % own == 0 else 1  # others are padded
            shares.append(
                KvShare(
                    block_bytes=block_bytes,
                    block_tokens=block_tokens * ratio,
                    window_tokens=kind.window_tokens,
                )
            )
        elif paging.state_every_block and grown:
            shares.append(KvShare(block_bytes=block_bytes, block_tokens=block_tokens))
        else:
            held = block_bytes * paging.state_pages
            shares.append(KvShare(block_bytes=0, sequence_bytes=held))
    return KvLayout(shares=tuple(shares), block_tokens=block_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    """Layers with blocks of the same tokens, in pages of several sizes."""

    block_tokens: int
    window_tokens: int
    pages: Counter[int]  # layers by the size of their page

    @property
    def repeats(self) -> int:
        return max(self.pages.values())

    @property
    def is_even(self) -> bool:
        """Whether each size has as many layers, so that the pattern can be cut."""
        return len(set(self.pages.values())) == 1


def _packed_layout(kinds: Sequence[_Kind], packing: Packing) -> KvLayout:
    """Return the layout of blocks that hold pages of several sizes side by side.

    Windows are cut into groups of about as many layers as the compressed latents have.  Up to
    vLLM 0.27 a block has a place for every size in as many layers as the largest group, and
    windows' pages are padded to those of the latents (`repeats`); later it is as wide as the
    widest group (`groups`).
    """
    buckets = _buckets(kinds)
    whole, *windows = buckets
    if packing == "repeats":
        places = sorted(whole.pages)
        windows = [_padded(bucket, places) for bucket in windows]
        least, cut = whole.repeats, [whole, *windows]
    else:
        cut = [bucket for bucket in buckets if bucket.is_even]
        least = max((one.repeats for one in cut if len(one.pages) > 1), default=1)
    repeats = _least_padding([bucket.repeats for bucket in cut], least)
    groups = [(whole, 1), *((one, -(-one.repeats // repeats)) for one in windows)]
    if packing == "repeats":
        block_bytes = sum(
            size * max(-(-one.pages[size] // parts) for one, parts in groups) for size in places
        )
    else:
        block_bytes = max(
            sum(size * -(-count // parts) for size, count in one.pages.items())
            for one, parts in groups
        )
    shares = tuple(
        KvShare(
            block_bytes=parts * block_bytes,
            block_tokens=one.block_tokens,
            window_tokens=one.window_tokens,
        )
        for one, parts in groups
    )
    return KvLayout(shares=shares, block_tokens=whole.block_tokens)


def _buckets(kinds: Sequence[_Kind]) -> list[_Bucket]:
    """Return layers by their blocks and windows; those that keep every token first."""
    found: dict[tuple[int, int], Counter[int]] = {(0, COMPRESSED_BLOCK): Counter()}
    for kind in kinds:
        block_tokens = kind.block_tokens or COMPRESSED_BLOCK
        page = round_up(kind.page_bytes(block_tokens), COMPRESSED_ALIGNMENT)
        found.setdefault((kind.window_tokens, block_tokens), Counter())[page] += kind.layers
    return [
        _Bucket(block_tokens=block_tokens, window_tokens=window, pages=pages)
        for (window, block_tokens), pages in found.items()
        if pages
    ]


def _padded(bucket: _Bucket, places: Sequence[int]) -> _Bucket:
    pages: Counter[int] = Counter()
    for size, count in bucket.pages.items():
        pages[next((place for place in places if place >= size), size)] += count
    return _Bucket(
        block_tokens=bucket.block_tokens, window_tokens=bucket.window_tokens, pages=pages
    )


def _least_padding(counts: Sequence[int], least: int) -> int:
    """Return the size of groups, at least `least`, that pads `counts` least; the largest such."""
    sizes = range(least, max(max(counts), least) + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in counts), -size))
