"""Keywords of the API's functions: the fields of what they make, typed for editors and checkers.

A test compares them with the fields themselves.  None, or leaving one out, is the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class RequestFields(TypedDict, total=False):
    """Fields of a request file, but for the model, the instance and where the image goes."""

    family: str | None
    base: str | None
    served_name: str | None
    tp_degree: int | None
    pp_degree: int | None
    dp_degree: int | None
    ep: bool | None
    nodes: int | None
    max_batch: int | None
    max_input_tokens: int | None
    max_total_tokens: int | None
    max_prefill_tokens: int | None
    kv_dtype: Literal["auto", "fp8"] | None
    dtype: Literal["auto", "bfloat16", "float16", "float32"] | None
    gpu_memory_utilization: float | None
    quantize: str | None
    quantize_ignore: Sequence[str] | None
    quantize_layer: Sequence[str] | None
    try_untested: bool | None
    calibration: str | None
    calibration_samples: int | None
    calibration_tokens: int | None
    calibration_seed: int | None
    evaluate: str | None
    evaluate_samples: int | None
    evaluate_tokens: int | None
    evaluate_seed: int | None
    max_kld: float | None
    min_top1: float | None
    max_ppl_increase: float | None
    draft: str | None
    speculative_tokens: int | None
    adapters: Mapping[str, str] | None
    adapters_dir: str | None
    max_adapters: int | None
    allow_runtime_adapters: bool | None
    merge_adapter: str | None
    compile: str | None
    gpus: int | Literal["auto"] | None
    threads: int | None
    goal: Literal["cost", "latency", "throughput"] | None
    workload: str | None
    images: str | None
    ttft_limit_ms: float | None
    tpot_limit_ms: float | None
    load_format: str | None
    weights: Literal["baked", "mounted"] | None
    max_layer_size: int | str | None
    layer_order: Literal["base-first", "weights-first"] | None
    compression: Literal["none", "zstd", "auto"] | None
    layer_format: Literal["plain", "erofs"] | None
    base_files: Literal["read", "skip"] | None
    container_version: str | None
    tool_call_parser: str | None
    reasoning_parser: str | None
    engine_options: Mapping[str, str] | None
    platform: Literal["linux/amd64", "linux/arm64"] | None
    region: str | None
    trust_roots: Sequence[str] | None
    executor: Literal["local", "docker", "ray"] | None
    address: str | None


class SentFields(TypedDict, total=False):
    """What requests of a load are like, and how they are sent."""

    data: str | None
    endpoint: (
        Literal["chat", "completions", "invocations", "embeddings", "rerank", "score", "classify"]
        | None
    )
    input_stddev: float | None
    output_stddev: float | None
    prefix_tokens: int | None
    ignore_eos: bool | None
    adapter_zipf: float | None
    stream: bool | None
    temperature: float | None
    seed: int | None
    extra: Sequence[str] | None
    requests: int | None
    duration_s: float | None
    warm_up: int | None
    request_timeout_s: float | None
    latency_ms: float | None


class BenchFields(SentFields, total=False):
    """Options of a benchmark."""

    concurrency: Sequence[int] | None
    rate: Sequence[float] | None
    arrivals: Literal["poisson", "constant"] | None
    rounds: int | None
    find: Literal["max-concurrency", "knee"] | None
    most: int | None
    ttft_ms: float | None
    tpot_ms: float | None
    min_goodput: float | None
    workload: str | None
    input_tokens: int | None
    output_tokens: int | None
    turns: int | None
    tools: bool | None
    images: str | None
    adapter_shares: Sequence[str] | None
    request_template: str | None
    response_field: str | None


class TuneFields(RequestFields, SentFields, total=False):
    """Options of a tune: of the request that candidates vary, of loads, and what may be spent."""

    concurrency: Sequence[int] | None
    rounds: int | None
    budget_measurements: int | None
    budget_usd: float | None
    keep_images: bool | None
    only: bool | None
