"""Measured speeds as set-ups of the speed model, read from a copy of aiconfigurator's data.

DIR is a checkout of https://github.com/ai-dynamo/aiconfigurator (Apache-2.0), or only these of its
files, with their paths:

    aic-core/src/aiconfigurator_core/systems/silicon_sample.csv
    aic-core/src/aiconfigurator_core/model_configs/*_config.json
    aic-core/src/aiconfigurator_core/systems/data/*/comm/{vllm,nccl}/*/*.parquet   to fit only
    aic-core/src/aiconfigurator_core/systems/data/*/gemm/vllm/*/gemm_perf.parquet  to fit only
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packager.catalog.accelerators import accelerator_of, accelerator_rows
from packager.catalog.instances import find_instance
from packager.core.catalog import Accelerator
from packager.estimate.performance.served import ServedModel, Setup, precision_of
from packager.estimate.performance.speed_table import Form, Kind

ROOT = Path("aic-core/src/aiconfigurator_core")
POINTS = ROOT / "systems" / "silicon_sample.csv"
CONFIGS = ROOT / "model_configs"

ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}

# system → an instance with the device, and our name of the device
SYSTEMS = {
    "h100_sxm": ("ml.p5.48xlarge", "H100"),
    "h200_sxm": ("ml.p5en.48xlarge", "H200"),
    "b200_sxm": ("ml.p6-b200.48xlarge", "B200"),
    "b300_sxm": ("ml.p6-b300.48xlarge", "B300"),
    "gb200": ("ml.p6e-gb200.36xlarge", "GB200"),
}

# Names of the points whose configuration has another name.
SAME_CONFIG = {
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-ai/DeepSeek-V3",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "zhipuai/GLM-5": "zai-org/GLM-5",
}

# format of the weights → scheme in our words, bytes of one weight with its scales
FORMATS = {"": ("", 2.0), "fp8": ("W8A8-FP8", 1.0), "fp8_block": ("W8A8-FP8", 1.0)}
FORMATS |= {"nvfp4": ("NVFP4", 0.5625), "int4_wo": ("W4A16", 0.53), "mxfp4": ("MXFP4", 0.53)}
EXPERTS_ONLY = ("int4_wo", "mxfp4")  # in these files, attention and shared parts stay in 16 bits

REPEATED = 0.01  # the files hold many points twice
# Of a device's memory, what engines take by default.
ENGINE_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedPoint:
    """One measured point."""

    model: str
    family: str  # models of one shape count as one when models are left out
    setup: Setup
    input_tokens: int
    output_tokens: int
    batch: float  # requests at once on the server
    tpot_s: float
    ttft_s: float

    @property
    def kind(self) -> Kind:
        return "moe" if self.setup.model.experts else "dense"

    @property
    def cell(self) -> tuple[str, str, Kind]:
        return (self.setup.engine, self.setup.accelerator.name, self.kind)

    @property
    def curve(self) -> str:
        """Return what a curve shares: all but the number of requests."""
        setup = self.setup
        lengths = f"{self.input_tokens}:{self.output_tokens}"
        precision = f"{setup.model.scheme or 'bf16'} TP {setup.tp_degree}"
        device = setup.accelerator.name
        return f"{self.model} {device} {setup.engine} {precision} {lengths}"

    @property
    def form(self) -> Form:
        model = self.setup.model
        return (model.hidden_size, model.layers, model.experts)

    @property
    def precision(self) -> str:
        return precision_of(self.setup)

    @property
    def tokens_s(self) -> float:
        latency_s = self.ttft_s + (self.output_tokens - 1) * self.tpot_s
        return self.batch * self.output_tokens / latency_s


def read_points(data: Path) -> list[SpeedPoint]:
    """Read the points of one server with tensor parallelism, each of them once."""
    found: list[SpeedPoint] = []
    seen: dict[tuple[str, float, bool], list[float]] = {}
    with (data / POINTS).open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            ranks = float(row["attention_dp_size"] or 0)
            if row["mode"] != "agg" or ranks > 1 or int(float(row["tp_size"])) > 8:
                continue
            point = _point(row, data)
            if not is_held(point):
                continue
            times = seen.setdefault((point.curve, point.batch, point.setup.expert_parallel), [])
            if any(abs(time / point.tpot_s - 1) < REPEATED for time in times):
                continue
            times.append(point.tpot_s)
            found.append(point)
    return found


def is_held(point: SpeedPoint) -> bool:
    """Return whether weights and a cache in 8 bits of all requests fit the devices.

    Where they do not, fewer requests ran than the point says and the others waited: 64 requests
    then take each no longer than 32.
    """
    setup, model = point.setup, point.setup.model
    tokens = point.input_tokens + point.output_tokens / 2
    share = 0.0 if model.latent else model.window_share  # sparse attention keeps every token
    kept = (1 - share) * tokens + share * min(tokens, model.window_tokens)
    asked = model.weight_bytes + point.batch * model.kv_bytes_per_token / 2 * kept
    row = accelerator_rows()[setup.accelerator.name]
    return asked <= ENGINE_SHARE * setup.tp_degree * row.memory_bytes


def read_rank_points(data: Path) -> list[SpeedPoint]:
    """Read the points of vLLM with data-parallel attention: they are compared, never fitted.

    The file has one degree for both: as many ranks as devices, which share the experts.  Taken for
    ranks of so many devices each, they would be a third faster than they were measured.
    """
    found = []
    with (data / POINTS).open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["mode"] != "agg" or row["backend"] != "vllm":
                continue
            ranks = int(float(row["attention_dp_size"] or 0))
            if ranks < 2 or ranks != int(float(row["tp_size"])):
                continue
            point = _point(row, data, tp=1)
            setup = replace(point.setup, dp_degree=ranks)
            found.append(replace(point, setup=setup, batch=point.batch * ranks))
    return found


def _point(row: dict[str, str], data: Path, tp: int = 0) -> SpeedPoint:
    name = row["model_path"]
    config = config_of(name, data)
    quantized = "mxfp4" if name.startswith("openai/") else row["gemm_quant_mode"]
    quantized = "" if quantized in ("bf16", "nan") else quantized
    tp = tp or int(float(row["tp_size"]))
    experts = float(row["moe_ep_size"] or 0)
    return SpeedPoint(
        model=name,
        family=f"{config['hidden_size']}x{config['num_hidden_layers']}",
        setup=Setup(
            model=served_model(config, quantized, tp),
            accelerator=device_of(row["system"]),
            tp_degree=tp,
            engine=ENGINES[row["backend"]],
            engine_version=row["backend_version"],
            expert_parallel=experts > 1,
        ),
        input_tokens=int(row["isl"]),
        output_tokens=int(row["osl"]),
        batch=float(row["batch_size"]),
        tpot_s=float(row["silicon_tpot_ms"]) / 1e3,
        ttft_s=float(row["silicon_ttft_ms"]) / 1e3,
    )


def device_of(system: str) -> Accelerator:
    """Describe the device of a system by our own catalog."""
    instance, name = SYSTEMS[system]
    return replace(accelerator_of(find_instance(instance)), name=name)


def served_model(config: dict[str, Any], quantized: str, tp: int) -> ServedModel:
    """Describe a model by its configuration, since the points have no files of weights."""
    hidden, layers, words = (
        config[name] for name in ("hidden_size", "num_hidden_layers", "vocab_size")
    )
    experts = _first(config, "n_routed_experts", "num_experts", "num_local_experts")
    expert_size = _first(config, "moe_intermediate_size", "intermediate_size")
    dense_layers = config.get("first_k_dense_replace", 0) if experts else layers
    sparse_layers = layers - dense_layers
    routed = 3 * hidden * expert_size * experts * sparse_layers if experts else 0
    shared = 3 * hidden * expert_size * config.get("n_shared_experts", 0) * sparse_layers
    shared += 3 * hidden * config.get("shared_expert_intermediate_size", 0) * sparse_layers
    dense = 3 * hidden * config.get("intermediate_size", 0) * dense_layers
    chosen = _first(config, "num_experts_per_tok") if experts else 0
    attention = _attention(config, tp)
    others = attention.parameters + shared + dense
    scheme, width = FORMATS[quantized]
    active = others + words * hidden + routed * chosen / max(1, experts)
    other_bytes = others * (2.0 if quantized in EXPERTS_ONLY else width) + 2 * words * hidden
    weight_bytes = other_bytes + routed * width
    return ServedModel(
        weight_bytes=int(weight_bytes),
        parameters=int(others + routed + words * hidden),
        layers=layers,
        hidden_size=hidden,
        kv_bytes_per_token=attention.kv_bytes,
        scheme=scheme,
        expert_share=routed * width / weight_bytes,
        experts=experts,
        experts_per_token=chosen,
        active_parameters=int(active) if experts else 0,
        cached_layers=attention.cached_layers,
        attention_size=attention.size,
        window_tokens=attention.window_tokens,
        window_share=attention.window_share,
        state_bytes=attention.state_bytes,
        latent="kv_lora_rank" in config,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attention:
    parameters: int
    kv_bytes: int  # of one token, on all devices together
    size: int
    cached_layers: int
    window_tokens: int
    window_share: float
    state_bytes: int


def _attention(config: dict[str, Any], tp: int) -> _Attention:
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads = config["num_attention_heads"]
    if "kv_lora_rank" in config:
        latent, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
        query, value = config["qk_nope_head_dim"] + rope, config["v_head_dim"]
        rank = config["q_lora_rank"]
        each = hidden * rank + rank * heads * query + hidden * (latent + rope)
        each += latent * heads * (query - rope + value) + heads * value * hidden
        looked_at = config.get("index_topk", 0)  # sparse attention reads so many tokens
        return _Attention(
            parameters=each * layers,
            kv_bytes=2 * layers * (latent + rope) * tp,  # whole on every device
            size=heads * (query + value) // 2,
            cached_layers=layers,
            window_tokens=looked_at,
            window_share=1.0 if looked_at else 0.0,
            state_bytes=0,
        )
    size = config.get("head_dim") or hidden // heads
    kv_heads = config["num_key_value_heads"]
    kinds = config.get("layer_types") or ["full_attention"] * layers
    cached = sum(kind != "linear_attention" for kind in kinds)
    windowed = sum(kind == "sliding_attention" for kind in kinds)
    queries = heads * (2 if config.get("attn_output_gate") else 1)
    parameters = cached * hidden * size * (queries + 2 * kv_heads + heads)
    state_bytes = 0
    linear = layers - cached
    if linear:
        key = config["linear_num_key_heads"] * config["linear_key_head_dim"]
        value = config["linear_num_value_heads"] * config["linear_value_head_dim"]
        parameters += linear * hidden * (2 * key + 3 * value)
        state_bytes = 4 * linear * value * config["linear_key_head_dim"]
    return _Attention(
        parameters=parameters,
        kv_bytes=4 * cached * max(kv_heads, tp) * size,
        size=heads * size,
        cached_layers=cached,
        window_tokens=(config.get("sliding_window") or 0) if windowed else 0,
        window_share=windowed / cached,
        state_bytes=state_bytes,
    )


def _first(config: dict[str, Any], *names: str) -> int:
    return next((int(config[name]) for name in names if config.get(name)), 0)


def config_of(name: str, data: Path) -> dict[str, Any]:
    """Read the configuration that aiconfigurator has of a model, of its text part alone."""
    path = data / CONFIGS / f"{SAME_CONFIG.get(name, name).replace('/', '--')}_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    return dict(config.get("text_config", config))
