"""Cached state per layer and sequence: keys and values, a window, a latent, or a state.

The kinds of layers are read in every way in which config.json states them; where it states none,
as the class of transformers makes them (`data/architectures.toml`, `window`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from packager.core.model import KvGroup
from packager.models.architectures.attention import (
    BLOCK_LISTS,
    LayerKind,
    kind_of_word,
    unknown_keys,
)
from packager.models.architectures.blocks import read_blocks
from packager.models.architectures.numbers import MOST_LAYERS
from packager.models.architectures.reading import Config
from packager.models.architectures.spellings import Architecture
from packager.models.architectures.states import (
    KV_ELEMENT_BYTES,
    LONG_ELEMENT_BYTES,
    State,
    find_state,
)

# Letters of Nemotron-H: a Mamba layer, attention; MLPs and experts keep nothing.
LETTERS = {"M": "state", "*": "full", "-": "none", "E": "none"}
# DeepSeek-V4, vLLM 0.33 models/deepseek_v4: tokens that an entry of each kind stands for.
RATES = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
INDEXED_RATE = 4  # whose entries an indexer chooses from
SUM_BLOCKS = {4: 4, 128: 8}  # tokens of a block of what is not compressed yet
LATENT_BLOCK = 64  # tokens of a block of the window
SCALED_GROUP = 64  # elements of a packed latent that share a scale of a byte, and one to align
INDEX_GROUP = 128  # elements of an index that share a scale of 4 bytes
SPARSE_EIGHT_BIT_BYTES = 656  # of a latent that an indexer chooses: vLLM 0.33 mla_attention.py


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Cached state of a sequence in attention and linear layers."""

    kv_bytes_per_token: int
    cached_layers: int
    attention: Literal["heads", "mla"] = "heads"
    attention_size: int = 0
    window_layers: int = 0
    window_tokens: int = 0
    state_bytes: int = 0
    split_counts: tuple[int, ...] = ()
    groups: tuple[KvGroup, ...] = ()
    unknown: tuple[str, ...] = ()  # keys of config.json that leave open what is kept


def read_cache(config: Config, row: Architecture, numbers: Mapping[str, int]) -> Cache:
    """Read what every layer keeps, as groups of equal layers in the order of the first of each."""
    kinds = layer_kinds(config, row, numbers["layers"])
    latent = _read_latent(config, row)
    state = find_state(config, row, numbers)
    unknown = unknown_keys(config)
    is_described = state is not None and state.layer_bytes > 0
    if not is_described and any(kind in ("state", "both") for kind in kinds):
        unknown = unknown or ("layers with a state that no key describes",)
        kinds = ["none" if kind == "none" else "full" for kind in kinds]
    groups: Counter[KvGroup] = Counter()
    for at, kind in enumerate(kinds):
        for group in _groups_of(kind, at, config, row, numbers, latent):
            groups[group] += row.attentions
        if kind in ("state", "both") and state is not None:
            groups[_state_group(state)] += 1
    found = tuple(replace(group, layers=count) for group, count in groups.items())
    found = _without_shared(found, config.count("num_kv_shared_layers"))
    kept = _kept_by_token(found)
    windowed = tuple(group for group in kept if group.window_tokens)
    states = sum(group.layers * group.state_bytes for group in found)
    return Cache(
        kv_bytes_per_token=sum(group.layers * bytes_of(group) for group in kept),
        cached_layers=_cached_layers(found),
        attention="mla" if latent else "heads",
        attention_size=_attention_size(config, numbers, latent),
        window_layers=sum(group.layers for group in windowed),
        window_tokens=max((group.window_tokens for group in windowed), default=0),
        state_bytes=states,
        split_counts=state.split_counts if state is not None and states else (),
        unknown=unknown,
        groups=() if len(found) == 1 and found[0].kind == "full" else found,
    )


def _kept_by_token(groups: tuple[KvGroup, ...]) -> tuple[KvGroup, ...]:
    """Return the groups that grow with every token, and windows of usual attention."""
    compressed = [group for group in groups if group.kind == "compressed"]
    whole = tuple(group for group in compressed if not group.window_tokens)
    usual = tuple(g for g in groups if g.kind not in ("state", "sums", "compressed"))
    return (*usual, *(whole or compressed))


def _cached_layers(groups: tuple[KvGroup, ...]) -> int:
    """Count the layers that attend: an index, and what is compressed, lie beside others."""
    return sum(
        group.layers
        for group in groups
        if group.kind not in ("state", "sums")
        and not (group.kind == "mla" and group.entry_bytes)
        and not (group.kind == "compressed" and not group.window_tokens)
    )


def bytes_of(group: KvGroup) -> int:
    """Return what one layer of a group keeps of one token, in a cache of 16 bits."""
    if group.kind in ("mla", "compressed"):
        entry = group.entry_bytes or group.head_dim * KV_ELEMENT_BYTES
        return -(-entry // group.entry_tokens)
    values = group.value_dim or group.head_dim
    return group.kv_heads * (group.head_dim + values) * KV_ELEMENT_BYTES


def layer_kinds(config: Config, row: Architecture, layers: int) -> list[LayerKind]:
    """Read the kind of each layer, by the first key that states it."""
    if layers > MOST_LAYERS:
        return []
    pattern = config.word("hybrid_override_pattern")
    if len(pattern) >= layers and set(pattern) <= set(LETTERS):
        return [LETTERS[letter] for letter in pattern[:layers]]  # type: ignore[misc]
    blocks = read_blocks(config)
    if blocks:
        return ["full" if block.attends else "none" for block in blocks[:layers]]
    for read in (_by_words, _by_indexes, _by_bits, _by_interval):
        kinds = read(config, layers)
        if kinds is not None:
            return kinds
    if row.state == "all":
        return ["state"] * layers
    if row.state == "both":
        return ["both"] * layers
    return _by_window(config, row, layers)


def _by_words(config: Config, layers: int) -> list[LayerKind] | None:
    words = config.listed(*BLOCK_LISTS)
    if words is None or not all(isinstance(word, str) for word in words) or not words:
        return None
    found = [kind_of_word(word.lower(), config.types) for word in words[:layers]]
    if len(words) < layers or not any(kind not in (None, "none") for kind in found):
        return None
    return [kind or "full" for kind in found]  # what is not known is not a layer without a cache


def _by_indexes(config: Config, layers: int) -> list[LayerKind] | None:
    """Read lists of the attending layers: LFM2, Bamba, Zamba2, Kimi-Linear (from 1), Jamba."""
    full = config.part("linear_attn_config").get("full_attn_layers")
    if isinstance(full, list):
        return ["full" if at + 1 in full else "state" for at in range(layers)]
    for key, attends in (
        ("full_attn_idxs", "full"),
        ("attn_layer_indices", "full"),
        ("hybrid_layer_ids", "both"),
    ):
        indexes = config.listed(key)
        if indexes is not None:
            return [attends if at in indexes else "state" for at in range(layers)]  # type: ignore[misc]
    period = config.count("attn_layer_period")
    if period:
        offset = config.count("attn_layer_offset")
        return ["full" if at % period == offset else "state" for at in range(layers)]
    return None


def _by_bits(config: Config, layers: int) -> list[LayerKind] | None:
    """Read one number a layer: MiniMax-Text-01's 1 attends, MiMo-V2's and Llama-4's 1 is local."""
    for key, of_one, of_zero in (
        ("attn_type_list", "full", "state"),
        ("hybrid_layer_pattern", "sliding", "full"),
        ("no_rope_layers", "chunked", "full"),
    ):
        bits = config.listed(key)
        if bits is not None and len(bits) >= layers and all(bit in (0, 1) for bit in bits):
            return [of_one if bit else of_zero for bit in bits[:layers]]  # type: ignore[misc]
    if config.count("attention_chunk_size") and not config.has("sliding_window"):
        every = config.count("no_rope_layer_interval") or 4  # Llama4TextConfig
        return ["full" if (at + 1) % every == 0 else "chunked" for at in range(layers)]
    return None


def _by_interval(config: Config, layers: int) -> list[LayerKind] | None:
    """Read Qwen3-Next and what follows it: one of so many layers attends, the last of them."""
    group = config.count("layer_group_size", assumed=False)  # Ling 2.5
    if group:
        return ["full" if (at + 1) % group == 0 else "state" for at in range(layers)]
    if not config.number("linear_num_value_heads", needed=False):
        return None
    every = config.number("full_attention_interval", needed=False) or 4
    return ["full" if (at + 1) % every == 0 else "state" for at in range(layers)]


def _by_window(config: Config, row: Architecture, layers: int) -> list[LayerKind]:
    if row.window == "all" and config.number("sliding_window", needed=False):
        return ["sliding"] * layers
    every = 0
    if row.window == "pattern":
        letters = config.word("sliding_window_pattern")  # `LLLG` of EXAONE 4
        keys = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
        every = len(letters) or config.number(*keys, needed=False)
    if not every or not config.number("sliding_window", needed=False):
        return ["full"] * layers
    return ["full" if (at + 1) % every == 0 else "sliding" for at in range(layers)]


def _groups_of(
    kind: LayerKind,
    at: int,
    config: Config,
    row: Architecture,
    numbers: Mapping[str, int],
    latent: tuple[KvGroup, ...],
) -> Iterator[KvGroup]:
    if kind in ("state", "none"):
        return
    rate = _compress_rate(at, config)
    if rate is not None:
        yield from _compressed(rate, config, numbers)
        return
    if latent:
        yield latent[0]
        yield from latent[1:] if _is_indexed(at, config) else ()
        return
    heads, size = numbers["kv_heads"], numbers["head_dim"]
    if row.cache == "expanded":  # MiniCPM3: a latent in the weights, heads in the cache
        size = config.number("qk_nope_head_dim") + config.number("qk_rope_head_dim")
        yield KvGroup(kind="full", layers=1, kv_heads=numbers["heads"], head_dim=size)
        return
    blocks = read_blocks(config)
    if at < len(blocks) and blocks[at].attends:
        heads = numbers["heads"] // blocks[at].heads_a_group or 1
    value = config.count("v_head_dim", assumed=False)
    value = 0 if value == size else value
    if kind == "sliding":
        window = config.number("sliding_window", needed=False)
        heads = config.count("swa_num_key_value_heads", assumed=False) or heads
        size = config.count("swa_head_dim", assumed=False) or size
        value = config.count("swa_v_head_dim", assumed=False) or value
        own = KvGroup(kind="sliding", layers=1, kv_heads=heads, head_dim=size, value_dim=value)
        yield replace(own, window_tokens=window) if window else replace(own, kind="full")
        return
    if kind == "chunked":
        chunk = config.count("attention_chunk_size")
        own = KvGroup(kind="chunked", layers=1, kv_heads=heads, head_dim=size)
        yield replace(own, window_tokens=chunk) if chunk else replace(own, kind="full")
        return
    size = config.count("global_head_dim", assumed=False) or size  # Gemma 4
    heads = config.count("num_global_key_value_heads", assumed=False) or heads
    yield KvGroup(kind="full", layers=1, kv_heads=heads, head_dim=size, value_dim=value)
    yield from _sparse_index(at, config)


def _sparse_index(at: int, config: Config) -> Iterator[KvGroup]:
    """Yield the 16-bit keys of MiniMax-M3's indexer, in the layers that it chooses blocks for."""
    own = Config(config.part("sparse_attention_config"), {})
    every, size = own.listed("sparse_attention_freq"), own.count("sparse_index_dim")
    if size and (every is None or (at < len(every) and every[at] == 1)):
        yield KvGroup(kind="mla", layers=1, kv_heads=1, entry_bytes=size * KV_ELEMENT_BYTES)


def _compress_rate(at: int, config: Config) -> int | None:
    """Return the tokens of an entry in one layer: 0 for a window alone, None where none says."""
    ratios = config.listed("compress_ratios")
    if ratios is not None:
        return ratios[at] if at < len(ratios) and type(ratios[at]) is int else None
    words = config.listed("layer_types") or []
    if not any(isinstance(word, str) and word in RATES for word in words):
        return None
    word = words[at] if at < len(words) and isinstance(words[at], str) else ""
    stated = config.part("compress_rates").get(word)
    return stated if type(stated) is int else RATES.get(word, 0)


def _compressed(rate: int, config: Config, numbers: Mapping[str, int]) -> Iterator[KvGroup]:
    """Yield DeepSeek-V4's groups: a window of latents, and one for each `rate` tokens.

    Beside them lie the index of it, and what sums up the tokens of an entry that is not full yet:
    of two entries where they overlap, each of numerators and denominators in 32 bits.
    """
    size, rotary = numbers["head_dim"], config.count("qk_rope_head_dim")
    plain = max(0, size - rotary)
    packed = plain + rotary * KV_ELEMENT_BYTES + plain // SCALED_GROUP + 1
    latent = KvGroup(kind="compressed", layers=1, kv_heads=1, head_dim=size, entry_bytes=packed)
    window = config.number("sliding_window", needed=False)
    yield replace(latent, window_tokens=window, block_tokens=LATENT_BLOCK)
    if rate <= 1:
        return
    overlap = 2 if rate == INDEXED_RATE else 1
    sums = KvGroup(
        kind="sums",
        layers=1,
        kv_heads=1,
        entry_bytes=2 * overlap * size * LONG_ELEMENT_BYTES,
        window_tokens=overlap * rate,
        block_tokens=SUM_BLOCKS.get(rate, LATENT_BLOCK),
    )
    yield replace(latent, entry_tokens=rate)
    yield sums
    index = config.count("index_head_dim")
    if rate == INDEXED_RATE and index:
        yield KvGroup(
            kind="compressed",
            layers=1,
            kv_heads=1,
            entry_bytes=_index_bytes(index),
            entry_tokens=rate,
        )
        yield replace(sums, entry_bytes=2 * overlap * index * LONG_ELEMENT_BYTES)


def _index_bytes(size: int) -> int:
    """Return the bytes of an indexer's key: one for each element, and scales."""
    return size + max(1, size // INDEX_GROUP) * 4


def _read_latent(config: Config, row: Architecture) -> tuple[KvGroup, ...]:
    """Read MLA: one latent for all heads, and the keys of an indexer where one chooses tokens.

    The indexer keeps a byte for each element and 4 bytes of scales (vLLM 0.27.1,
    models/deepseek_v2.py DeepseekV32IndexerCache): 132 bytes for 128.
    """
    is_latent = row.cache == "mla" or (not row.cache and config.count("kv_lora_rank") > 0)
    rank = config.number("kv_lora_rank", needed=row.cache == "mla") if is_latent else 0
    if not rank:
        return ()
    rotary = config.number("qk_rope_head_dim", needed=row.cache == "mla")
    found = KvGroup(kind="mla", layers=1, kv_heads=1, head_dim=rank + rotary)
    index = config.count("index_head_dim", assumed=False)
    if not index:
        return (found,)
    return (
        replace(found, eight_bit_bytes=SPARSE_EIGHT_BIT_BYTES),
        KvGroup(kind="mla", layers=1, kv_heads=1, entry_bytes=_index_bytes(index)),
    )


def _is_indexed(at: int, config: Config) -> bool:
    """Whether a layer has an index of its own, which others take over: GLM-5.2.

    As vLLM 0.33 models/deepseek_v2.py reads it.
    """
    pattern = config.word("index_topk_pattern")
    if pattern:
        return pattern[at : at + 1] != "S"
    every = config.count("index_topk_freq") or 1
    first = config.count("index_skip_topk_offset") if config.has("index_skip_topk_offset") else 2
    return max(at - first + 1, 0) % every == 0


def _state_group(state: State) -> KvGroup:
    return KvGroup(
        kind="state",
        layers=1,
        state_bytes=state.layer_bytes,
        mixed_elements=state.mixed_elements,
        recurrent_elements=state.recurrent_elements,
        block_tokens=state.chunk_tokens,
    )


def _attention_size(config: Config, numbers: Mapping[str, int], latent: tuple[KvGroup, ...]) -> int:
    if not latent:
        return 0
    return numbers["heads"] * config.number("v_head_dim")


def _without_shared(groups: tuple[KvGroup, ...], shared: int) -> tuple[KvGroup, ...]:
    """Return the groups without the last layers, which read earlier layers' cache: Gemma 3n and 4.

    They have the same kinds in the same proportion, so that each group loses its share.
    """
    layers = sum(group.layers for group in groups)
    if not 0 < shared < layers:
        return groups
    kept = layers - shared
    rest = [replace(group, layers=group.layers * kept // layers) for group in groups]
    missing = kept - sum(group.layers for group in rest)
    largest = max(range(len(rest)), key=lambda at: groups[at].layers)
    rest[largest] = replace(rest[largest], layers=rest[largest].layers + missing)
    return tuple(group for group in rest if group.layers)
