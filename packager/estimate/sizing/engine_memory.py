"""Memory that an engine uses beside weights and cache: `data/memory.toml`.

Every figure is of one version of one engine, from its start-up logs; a later version may have
a row of its own.  A version that cannot be read counts as the newest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.instance import Instance
from packager.core.share import read_shipped
from packager.core.split import Split
from packager.core.units import GIB, MIB
from packager.core.versions import is_before, version_key

TABLE = Path(__file__).parent / "data" / "memory.toml"

EVERY = "*"  # an engine, or a device, without a row of its own
PCIE = "PCIe"
LARGEST_GRAPH = 512  # vLLM captures no larger batch, vllm/config: `max_cudagraph_capture_size`


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """Memory model of one engine version."""

    sampler_bytes: float  # of one entry of the vocabulary, for each sequence sampled at once
    step_bytes: int  # held while sampling
    non_torch_bytes: int  # inside the share that the engine may take
    static_share: bool  # a requested share is that of weights and cache alone
    least_reserve_bytes: int  # lower limit of all but weights and cache
    context_bytes: int  # outside the share, as all below but the graphs of some versions
    context_experts_bytes: int  # more for a mixture of experts
    loose_sequence_bytes: int  # reserved and unallocated for each sequence, of some formats
    graphs_inside: bool  # the estimate of CUDA graphs comes off the cache
    graph_bytes: int  # of all graphs, whatever their number
    graph_layer_bytes: int  # of one size of graphs in one layer
    graph_experts_bytes: int
    graph_excess: float  # what capturing takes of the estimate
    expert_workspace: bool  # buffers of the experts' kernels stay while sampling
    index_prompts: int  # of the longest length, whose keys an indexer gathers at once
    index_scores_bytes: int
    group_ratio: float
    state_pages: int  # that a sequence holds of each layer with a state, while prefixes are cached
    prefix_caching: bool  # by default, of a model whose layers keep states
    packs_sparse: bool  # 8-bit latents that an indexer chooses from lie with their scales
    shares_index: bool  # layers take over the index of an earlier one
    latent_block_tokens: int  # that blocks of latents beside states are a multiple of
    packs_groups: bool  # blocks of compressed attention are as wide as the widest group
    steps_in_flight: int  # whose tokens windows keep at once, beside the stages of a pipeline
    compressed_in_flight: int  # tokens at most that compressed attention should keep so
    hybrid_cache: bool  # windows are freed; layers of different kinds share one pool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraWeights:
    """Bytes per device that an architecture's weights take beside the checkpoint's."""

    share: float = 0.0
    extra_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """Condition of a row in the table."""

    engine: str
    version: str
    link: str
    devices: str
    format: str
    capability: int  # of a GPU, the whole number

    def is_in(self, row: Mapping[str, Any]) -> bool:
        stated = {
            key: row[key] for key in ("link", "devices", "format", "capability") if key in row
        }
        return all(getattr(self, key) == value for key, value in stated.items()) and _is_since(
            self.version, row.get("since", "")
        )


def engine_memory(
    engine: str, version: str, weight_format: str, instance: Instance, split: Split
) -> EngineMemory:
    """Return what `engine` takes of each GPU of `instance` that shares a model as `split` says."""
    talking = split.expert_degree > 1
    return _engine_memory(
        engine,
        version,
        weight_format,
        instance.link == PCIE,
        talking,
        talking or split.pp_degree > 1,
        int(instance.compute_capability or 0),
    )


def visible_bytes(instance: Instance) -> int:
    """Return the memory of one GPU that CUDA shows: less than the catalog or the driver say."""
    rows = _rows("visible")
    row = rows.get(instance.device_name) or rows[EVERY]
    if "mib" in row:
        return min(instance.device_bytes, int(row["mib"]) * MIB)
    return int(instance.device_bytes * row["share"])


def extra_weights(architecture: str) -> ExtraWeights:
    """Return the bytes that loading adds to an architecture's weights; 0 unless logs state them."""
    row = _rows("weights").get(architecture, {})
    return ExtraWeights(
        share=row.get("share", 0.0), extra_bytes=int(row.get("extra_gib", 0.0) * GIB)
    )


def keeps_every_state(engine: str, version: str, architecture: str) -> bool:
    """Whether a state stays in the cache for each block of tokens while prefixes are cached."""
    row = _rows("every_state").get(architecture)
    return row is not None and row["engine"] == engine and is_before(version, row["until"])


def image_tokens(model_type: str) -> int:
    """Return the tokens of the largest image that a model's own processor makes; 0: not known."""
    return int(_rows("image").get(model_type, {}).get("tokens", 0))


def padding_multiple(weight_format: str) -> int:
    """Return what an expert's intermediate size on one device is padded to; mostly 1."""
    return int(_rows("format").get(weight_format, {}).get("multiple", 1))


def adapted_multiples(weight_format: str) -> tuple[int, int]:
    """Return what hidden and intermediate size of experts beside adapters are padded to."""
    hidden, inner = _rows("format").get(weight_format, {}).get("adapted", (1, 1))
    return hidden, inner


def graph_sizes(sequences: int) -> int:
    """Count the batch sizes that vLLM captures graphs for: 1, 2, 4, each 8, from 256 each 16."""
    largest = min(2 * sequences, LARGEST_GRAPH)
    small = sum(1 for size in (1, 2, 4) if size <= largest)
    return small + min(largest, 255) // 8 + (max(0, largest - 256) // 16 + 1) * (largest >= 256)


@cache
def _engine_memory(
    engine: str,
    version: str,
    weight_format: str,
    pcie: bool,
    talking: bool,
    many: bool,
    capability: int,
) -> EngineMemory:
    link = "pcie" if pcie else "nvlink"

    def find(name: str, devices: bool = many) -> float:
        where = _Where(
            engine=engine,
            version=version,
            link=link,
            devices="many" if devices else "one",
            format=weight_format,
            capability=capability,
        )
        return _term(name, where)

    return EngineMemory(
        sampler_bytes=find("sampler_bytes"),
        step_bytes=int(find("step_gib") * GIB),
        non_torch_bytes=int(find("non_torch_gib", talking) * GIB),
        static_share=find("static_share") == 1,
        least_reserve_bytes=int(find("least_reserve_gib") * GIB),
        context_bytes=int(find("context_gib") * GIB),
        context_experts_bytes=int(find("context_experts_gib") * GIB),
        loose_sequence_bytes=int(find("loose_sequence_mib") * MIB),
        graphs_inside=find("graphs_inside") == 1,
        graph_bytes=int(find("graph_gib") * GIB),
        graph_layer_bytes=int(find("graph_layer_mib") * MIB),
        graph_experts_bytes=int(find("graph_experts_gib") * GIB),
        graph_excess=find("graph_excess"),
        expert_workspace=find("expert_workspace") == 1,
        index_prompts=int(find("index_prompts")),
        index_scores_bytes=int(find("index_scores_mib") * MIB),
        group_ratio=find("group_ratio"),
        state_pages=int(find("state_pages")),
        prefix_caching=find("prefix_caching") == 1,
        packs_sparse=find("packs_sparse") == 1,
        shares_index=find("shares_index") == 1,
        latent_block_tokens=int(find("latent_block_tokens")),
        packs_groups=find("packs_groups") == 1,
        steps_in_flight=int(find("steps_in_flight")),
        compressed_in_flight=int(find("compressed_in_flight")),
        hybrid_cache=find("hybrid_cache") == 1,
    )


def _term(name: str, where: _Where) -> float:
    """Return the value of the last row that holds; of an engine without any, that of `*`."""
    of_name = [row for row in _table()["term"] if row["name"] == name]
    for engine in (where.engine, EVERY):
        holding = [row for row in of_name if row["engine"] == engine and where.is_in(row)]
        if holding:
            return float(holding[-1]["value"])
    return 0.0


def _is_since(version: str, since: str) -> bool:
    if not since:
        return True
    found, first = version_key(version), version_key(since)
    return found is None or first is None or found >= first


def _rows(kind: str) -> Mapping[str, Mapping[str, Any]]:
    return _indexed()[kind]


@cache
def _indexed() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    keys = {
        "visible": "device",
        "weights": "architecture",
        "format": "name",
        "every_state": "architecture",
        "image": "model_type",
    }
    return {kind: {row[key]: row for row in _table()[kind]} for kind, key in keys.items()}


@cache
def _table() -> Mapping[str, list[dict[str, Any]]]:
    return read_shipped(TABLE)
