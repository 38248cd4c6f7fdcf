"""What a request means to the rooms below: each reads a value of its own, never the request."""

from __future__ import annotations

from packager.core.image import LayerOptions
from packager.core.quality import EVALUATION_TOKENS, Evaluation
from packager.core.request import BuildRequest
from packager.core.samples import CALIBRATION_TOKENS
from packager.core.techniques import QuantizingOptions
from packager.core.workload import Workload
from packager.estimate.performance.choice import Objective
from packager.estimate.performance.presets import TPOT_LIMIT_S
from packager.estimate.sizing.parallelism import RequestedSplit
from packager.estimate.sizing.shape import RequestedShape


def shape_of(request: BuildRequest) -> RequestedShape:
    """Return the requested numbers of requests and tokens."""
    return RequestedShape(
        max_batch=request.max_batch,
        max_input_tokens=request.max_input_tokens,
        max_total_tokens=request.max_total_tokens,
        max_prefill_tokens=request.max_prefill_tokens,
    )


def split_of(request: BuildRequest) -> RequestedSplit:
    """Return the requested degrees."""
    return RequestedSplit(
        tp_degree=request.tp_degree,
        pp_degree=request.pp_degree,
        dp_degree=request.dp_degree,
        ep=request.ep,
        nodes=request.nodes,
        latency=request.goal == "latency",
    )


def target_of(request: BuildRequest, workload: Workload) -> Objective:
    """Return what a request is planned for."""
    limit_ms, first_ms = request.tpot_limit_ms, request.ttft_limit_ms
    return Objective(
        goal=request.goal,
        workload=workload,
        tpot_limit_s=limit_ms / 1e3 if limit_ms else TPOT_LIMIT_S,
        ttft_limit_s=first_ms / 1e3 if first_ms else None,
    )


def layers_of(request: BuildRequest) -> LayerOptions:
    """Return how the image's layers are made."""
    return LayerOptions(
        order=request.layer_order or "base-first",
        compression=request.compression or "none",
        format=request.layer_format or "plain",
        max_size=request.max_layer_size,
        reads_base=request.base_files != "skip",
    )


def quantizing_of(request: BuildRequest) -> QuantizingOptions:
    """Return what the tool that quantizes is given as it was written."""
    return QuantizingOptions(
        method=request.quantize or "",
        ignored=request.quantize_ignore or (),
        layers=request.quantize_layer or (),
        tokens=request.calibration_tokens or CALIBRATION_TOKENS,
        seed=request.calibration_seed or 0,
    )


def evaluation_of(request: BuildRequest) -> Evaluation:
    """Return how quality is measured."""
    return Evaluation(
        max_tokens=request.evaluate_tokens or EVALUATION_TOKENS, seed=request.evaluate_seed or 0
    )
