"""Quantization in the stream: weights are rounded while they are read, and no tool is run.

Methods that round each matrix by itself need no model in memory: what stands for a matrix follows
from its own bytes.  The result is what the worker of llm-compressor writes, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.image import Inline
from packager.core.model import ModelFile, WeightsHeader
from packager.core.plan import Plan
from packager.core.ports import Quantizer
from packager.core.recipe import Step
from packager.core.techniques import Scheme
from packager.core.units import decimal
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.optimize.quantize.stream.config import kept_matrices, quantization_config
from packager.optimize.quantize.stream.layout import quantized_files
from packager.optimize.quantize.stream.same import (
    METHODS,
    NO_NUMPY,
    form_of,
    left_whole,
    select,
    shard_bytes,
    why_not,
)
from packager.optimize.steps.inputs import carried_files
from packager.optimize.steps.report import duration
from packager.optimize.stream.tensors import read_tensors

CONFIG = "config.json"
ADDED = "quantization_config"
INSTALL = "`pip install 'numpy>=2.0'`"
BY_TOOL = "leave the quantizer out: a tool quantizes then"
MOST_BYTES = 500_000_000  # measured: 118 MB; beside it scales of one matrix, `KEPT_BYTES`
# Processor time for a byte read, with its hash: `benchmarks/stream.py` on an AMD EPYC, 2026-11-30.
COSTS_NS = {"fp8": 2.6, "int8": 2.0, "int4": 3.5, "nvfp4": 3.6, "mxfp4": 2.9, "mxfp8": 2.6}


class StreamQuantizer(Quantizer):
    """Describes quantized files that are computed while they are read."""

    name = "stream"
    tool = ""
    streams = True

    def __init__(self) -> None:
        self._worker = LlmCompressorQuantizer()
        self.methods: Mapping[str, tuple[Scheme, ...]] = {
            name: self._worker.methods[name] for name in METHODS
        }

    @property
    def mixable(self) -> frozenset[str]:
        """Return the tool's."""
        return self._worker.mixable

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Yield what the tool's quantizer finds, and why the stream cannot do it."""
        yield from self._worker.check(facts, plan)
        reason = why_not(facts, plan)
        if reason is None:
            yield self._note(facts, plan)
        else:
            message = f"the model cannot be quantized in the stream: {reason}"
            hint = INSTALL if reason == NO_NUMPY else BY_TOOL
            yield Finding("error", "quantize-stream", message, hint)

    def processor_s(self, facts: Facts, plan: Plan) -> float:
        """Return seconds of one processor, as measured on one kind of processor."""
        assert plan.quantization is not None
        kinds = {form_of(part).kind for part in plan.quantization.parts}
        return _source_bytes(facts) * max(COSTS_NS[kind] for kind in kinds) / 1e9

    def _note(self, facts: Facts, plan: Plan) -> Finding:
        message = (
            "weights are quantized while they are read: no tool, no model in memory, nothing on "
            f"the disk; about {duration(self.processor_s(facts, plan))} of processor time for "
            f"{decimal(_source_bytes(facts))}, at most {decimal(MOST_BYTES)} of memory"
        )
        return Finding("note", "quantize-streams", message)

    def step(self, facts: Facts, plan: Plan) -> Step:
        """Raise `NotImplementedError`: there is never a step."""
        raise NotImplementedError

    def describe(
        self, facts: Facts, plan: Plan, read_header: Callable[[ModelFile], WeightsHeader]
    ) -> tuple[ModelFile, ...]:
        """Return the quantized model's files; only headers are read."""
        assert plan.quantization is not None
        files = facts.model.files
        selected = select(
            facts.model, left_whole(facts, plan), plan.quantization, plan.quantizing.layers
        )
        weights = (file for file in files if file.role == "weights")
        found = quantized_files(
            read_tensors(weights, read_header),
            selected.quantized,
            selected.fused,
            shard_bytes=shard_bytes(plan),
        )
        ignore = kept_matrices(facts.model.tensors, selected.quantized)
        added = quantization_config(selected.groups, ignore)
        made = (*found, _config_file(facts.model.config, added), *carried_files(files))
        return tuple(sorted(made, key=lambda file: file.path))


def _source_bytes(facts: Facts) -> int:
    return sum(tensor.size for tensor in facts.model.tensors)


def _config_file(config: Mapping[str, Any], added: Mapping[str, Any]) -> ModelFile:
    document = {**config, ADDED: added}
    data = (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    return ModelFile(path=CONFIG, role="config", content=Inline(data))
