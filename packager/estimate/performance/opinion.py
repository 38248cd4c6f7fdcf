"""A second opinion of a plan's speed: the request to aiconfigurator, and its answer.

The request describes the planned set-up: GPU, engine, split, number formats, lengths of requests
and concurrencies.  Where aiconfigurator lacks a name for a part, the opinion is that reason.  It
never changes a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from packager.core.documents import NotStrict, field
from packager.core.engine_rows import engine_row
from packager.core.model import ModelFile
from packager.core.plan import Plan
from packager.core.recipe import Estimate, Step, StepInput
from packager.core.workload import Workload

TOOL = "aiconfigurator"
MOST_POINTS = 8  # a second each
MEMORY_BYTES = 1_500_000_000  # libraries, and tables of one GPU and engine
TIMEOUT_S, QUIET_S = 900.0, 300.0  # it takes 15 s of a processor
PLAIN = "bfloat16"
LONGEST = 500  # characters of a reason that are shown

# our accelerators → its systems (aiconfigurator-core 0.12.0, 2026-08: `systems/*.yaml`)
SYSTEMS: Mapping[str, str] = MappingProxyType(
    {
        "A100-80": "a100_sxm",
        "A100-80-PCIe": "a100_pcie",
        "H100": "h100_sxm",
        "H100-PCIe": "h100_pcie",
        "H200": "h200_sxm",
        "B200": "b200_sxm",
        "B300": "b300_sxm",
        "GB200": "gb200",
        "L4": "l4",
        "L40S": "l40s",
        "RTX PRO Server 6000": "rtx_pro_6000_server",
    }
)

# scheme of the weights → its names for products of dense layers and of experts, where they are
# quantized by us; of a checkpoint that arrived quantized it reads the config: FP8 may have blocks
MODES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "": ("bfloat16", "bfloat16"),
        "W8A8-FP8": ("fp8", "fp8"),
        "fp8_w8a8": ("fp8", "fp8"),
        "W4A16": ("int4_wo", "int4_wo"),
        "w4a16": ("int4_wo", "int4_wo"),
        "NVFP4": ("nvfp4", "nvfp4"),
        "nvfp4_w4a4": ("nvfp4", "nvfp4"),
        "MXFP4": ("bfloat16", "w4a16_mxfp4"),
    }
)
KV_MODES: Mapping[str, str] = MappingProxyType(
    {"auto": "bfloat16", "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "int8": "int8"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpinionPoint:
    """Its estimate of one concurrency, or the reason why there is none."""

    concurrency: int
    tpot_s: float | None = None
    ttft_s: float | None = None
    output_tokens_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """Another predictor's figures for a plan, or why it has none."""

    source: str  # `aiconfigurator 0.12.0`
    points: tuple[OpinionPoint, ...] = ()
    engine: str = ""  # whose tables it has: `vllm 0.24.0`
    formats: str = ""  # that it computed with
    reason: str = ""  # why there is no request, or no answer


def ask(
    plan: Plan,
    workload: Workload,
    concurrencies: Sequence[int],
    config: ModelFile | None,
) -> Step | Opinion:
    """Return the step that asks about a plan, or the opinion that there can be none."""
    if reason := _cannot_ask(plan, config):
        return Opinion(source=TOOL, reason=reason)
    assert config is not None
    split = plan.split
    copies = split.workers * (1 if plan.dp_attention else split.dp_degree)
    ranks = split.dp_degree if plan.dp_attention else 1
    shared = split.tp_degree * ranks
    arrived = plan.quantization is None or plan.quantization.existing
    gemm, moe = ("", "") if arrived and _scheme(plan) else MODES[_scheme(plan)]
    points = [
        {
            "concurrency": concurrency,
            "batch": max(1, round(concurrency / (copies * ranks * split.pp_degree))),
            "isl": workload.input_tokens,
            "osl": workload.output_tokens,
        }
        for concurrency in spread(concurrencies, MOST_POINTS)
    ]
    return Step(
        name="second-opinion",
        tool=TOOL,
        gives="opinion",
        parameters={
            "system": SYSTEMS[plan.instance.device_name],
            "backend": engine_row(plan.container.engine).second_opinion,
            "tp": split.tp_degree,
            "pp": split.pp_degree,
            "dp": ranks,
            "moe_tp": 1 if plan.expert_parallel else shared,
            "moe_ep": shared if plan.expert_parallel else 1,
            "modes": {"gemm": gemm, "moe": moe, "kvcache": KV_MODES[plan.kv_dtype]},
            "points": points,
        },
        inputs={"model": StepInput(files=(config,))},
        env={"OMP_NUM_THREADS": "1"},
        labels={"weights": _scheme(plan)},
        needs=Estimate(memory_bytes=MEMORY_BYTES),
        timeout_s=TIMEOUT_S,
        quiet_s=QUIET_S,
    )


def read_opinion(step: Step, details: Mapping[str, Any], versions: Mapping[str, str]) -> Opinion:
    """Parse the output of a finished step; raises `NotStrict` for an invalid one."""
    document = dict(details)
    points = tuple(_read_point(point) for point in field(document, "points", list))
    asked = [point["concurrency"] for point in step.parameters["points"]]
    if [point.concurrency for point in points] != asked:
        raise NotStrict("it answered for other concurrencies than requested")
    modes = field(document, "modes", dict)
    weights = step.labels.get("weights", "")
    if weights and modes and {modes.get("gemm"), modes.get("moe")} == {PLAIN}:
        reason = f"it took the weights, which are {weights}, for {PLAIN}"
        return Opinion(source=f"{TOOL} {versions.get(TOOL, '')}".strip(), reason=reason)
    shown = [f"{name} {mode}" for name, mode in sorted(modes.items()) if isinstance(mode, str)]
    version = field(document, "engine_version", str)[:LONGEST]
    reasons = {point.reason for point in points}
    return Opinion(
        source=f"{TOOL} {versions.get(TOOL, '')}".strip(),
        points=points if any(point.tpot_s for point in points) else (),
        engine=f"{step.parameters['backend']} {version}".strip() if version else "",
        formats=", ".join(shown)[:LONGEST],
        reason="" if any(point.tpot_s for point in points) else "; ".join(sorted(reasons)),
    )


def spread(concurrencies: Sequence[int], most: int) -> tuple[int, ...]:
    """Choose at most so many, evenly, with the first and the last."""
    found = sorted(set(concurrencies))
    if len(found) <= most:
        return tuple(found)
    places = {round(n * (len(found) - 1) / (most - 1)) for n in range(most)}
    return tuple(found[place] for place in sorted(places))


def _cannot_ask(plan: Plan, config: ModelFile | None) -> str:
    """Return why aiconfigurator has no words for a plan; "" when it has."""
    if plan.instance.device_name not in SYSTEMS:
        return f"it does not support {plan.instance.device_name}"
    if not engine_row(plan.container.engine).second_opinion:
        return f"it does not know the engine {plan.container.engine!r}"
    if plan.draft is not None:
        return f"it does not know drafts of the kind {plan.draft.kind!r}"
    if plan.nodes > 1:
        return "it predicts one machine, and the plan spans several"
    if _scheme(plan) not in MODES:
        return f"it does not know weights of the format {_scheme(plan)!r}"
    if plan.kv_dtype not in KV_MODES:
        return f"it does not know a KV cache in {plan.kv_dtype!r}"
    if config is None:
        return "the model has no config.json to show it"
    return ""


def _scheme(plan: Plan) -> str:
    if plan.quantization is None:
        return plan.profile.weight_format
    mixed = len(plan.quantization.parts) > 1
    return plan.precision if mixed else plan.quantization.scheme


def _read_point(point: object) -> OpinionPoint:
    concurrency = field(point, "concurrency", int, "a point")
    if isinstance(point, dict) and "reason" in point:
        reason = field(point, "reason", str, "a point")
        return OpinionPoint(concurrency=concurrency, reason=reason[:LONGEST] or "no reason given")
    return OpinionPoint(
        concurrency=concurrency,
        tpot_s=_positive(point, "tpot_s"),
        ttft_s=_positive(point, "ttft_s"),
        output_tokens_s=_positive(point, "output_tokens_s"),
    )


def _positive(point: object, name: str) -> float:
    value = field(point, name, float, "a point")
    if not 0 < value < 1e12:
        raise NotStrict(f"{name} of a point is {value:g}")
    return value
