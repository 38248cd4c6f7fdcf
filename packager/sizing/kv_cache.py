"""The cache of one device: how an engine groups layers, and what a sequence takes in each group.

vLLM gives out one size of page for all layers.  Layers that keep the same form groups of
equally many layers (v1/core/kv_cache_utils.py); a group with fewer is padded, and the pages
of attention grow until a layer's state fits in one.
"""

from __future__ import annotations

from collections.abc import Sequence

from packager.core.instance import DeviceKind
from packager.core.model import KvGroup, ModelProfile
from packager.core.plan import KvShare
from packager.core.values import dataclass

ELEMENT_BYTES = 2  # that a profile counts an element of the cache with


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """The cache of one device, for one sequence."""

    shares: tuple[KvShare, ...]
    block_tokens: int  # 0: a whole sequence at once

    @property
    def bytes_per_token(self) -> int:
        """Return what a token takes where no window has left it behind."""
        return sum(share.bytes_per_token for share in self.shares)

    @property
    def sequence_bytes(self) -> int:
        """Return what a sequence takes whatever its length."""
        return sum(share.sequence_bytes for share in self.shares)

    def request_bytes(self, tokens: int, in_flight: int = 0) -> int:
        """Return what a sequence of `tokens` takes, of which `in_flight` are being read."""
        return sum(
            share.bytes_per_token * self._kept(share, tokens, in_flight) + share.sequence_bytes
            for share in self.shares
        )

    def _kept(self, share: KvShare, tokens: int, in_flight: int) -> int:
        whole = round_up(tokens, self.block_tokens)
        if not share.most_tokens:
            return whole
        return min(whole, round_up(share.most_tokens + in_flight, self.block_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Layers of one device that keep the same, in bytes."""

    layers: int
    token_bytes: int = 0  # of one layer
    window_tokens: int = 0
    state_bytes: int = 0  # of one layer


def make_layout(
    profile: ModelProfile,
    kind: DeviceKind,
    tp_degree: int,
    pp_degree: int,
    *,
    element_bytes: int,
    block_tokens: int,
    group_ratio: float = 0.0,
    state_pages: int = 1,
) -> KvLayout:
    """Return the cache layout of the device that has most of it.

    `group_ratio` 0 stands for an engine without groups: every layer keeps every token.
    """
    kinds = [
        _on_device(group, profile, kind, tp_degree, pp_degree, element_bytes)
        for group in find_groups(profile)
    ]
    if not group_ratio or len(kinds) == 1:
        return KvLayout(shares=_plain_shares(kinds, state_pages), block_tokens=block_tokens)
    return _paged_layout(kinds, block_tokens, group_ratio, state_pages)


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
        return _Kind(layers=layers, state_bytes=-(-group.state_bytes // tp_degree))
    if group.kind == "mla":  # the latent of all heads, on every device
        return _Kind(layers=layers, token_bytes=group.head_dim * element_bytes)
    heads = kv_heads_here(profile, kind, tp_degree, group.kv_heads)
    width = group.head_dim + (group.value_dim or group.head_dim)
    return _Kind(
        layers=layers,
        token_bytes=heads * width * element_bytes,
        window_tokens=group.window_tokens,
    )


def _plain_shares(kinds: Sequence[_Kind], state_pages: int) -> tuple[KvShare, ...]:
    """Add up layers that are given out one by one, and keep every token."""
    grows = sum(kind.layers * kind.token_bytes for kind in kinds)
    state = sum(kind.layers * kind.state_bytes for kind in kinds) * state_pages
    shares = [KvShare(bytes_per_token=grows)]
    if state:
        shares.append(KvShare(bytes_per_token=0, sequence_bytes=state))
    return tuple(shares)


def _paged_layout(
    kinds: Sequence[_Kind], block_tokens: int, group_ratio: float, state_pages: int
) -> KvLayout:
    """Return the layout of equally sized pages for groups of equally many layers."""
    grown = [kind for kind in kinds if kind.token_bytes]
    states = [kind for kind in kinds if kind.state_bytes]
    counts = [kind.layers for kind in kinds if kind.layers]
    size = min(counts)
    if max(counts) < size * group_ratio:
        size = max(counts)
    if states and grown:
        widest = max(kind.token_bytes for kind in grown)
        state = max(kind.state_bytes for kind in states)
        block_tokens = max(block_tokens, round_up(-(-state // widest), block_tokens))
        page = max(block_tokens * widest, state)
    else:
        page = max((kind.state_bytes for kind in states), default=0)
    shares = [
        KvShare(
            bytes_per_token=round_up(kind.layers, size) * kind.token_bytes,
            # A window may begin within a block, so that it needs one more.
            most_tokens=round_up(kind.window_tokens - 1, block_tokens) + block_tokens
            if kind.window_tokens
            else 0,
        )
        for kind in grown
    ]
    shares += [
        KvShare(bytes_per_token=0, sequence_bytes=round_up(kind.layers, size) * page * state_pages)
        for kind in states
    ]
    return KvLayout(shares=tuple(shares), block_tokens=block_tokens)
