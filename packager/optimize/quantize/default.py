"""Choice of who quantizes where the request names a method alone.

The stream does what it does exactly as the tool: one read, no environment to install, nothing on
the disk.  All else is the tool's: methods that look at texts, and results that a later step needs
as files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from packager.core.devices import GpuUse
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.model import ModelFile, WeightsHeader
from packager.core.plan import Plan
from packager.core.ports import Quantizer
from packager.core.recipe import Step
from packager.core.techniques import Scheme
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.optimize.quantize.llmcompressor_options import TOOL, needs_data
from packager.optimize.quantize.stream.quantizer import StreamQuantizer
from packager.optimize.quantize.stream.same import METHODS, why_not, why_not_described


def alternative_of(quantizer: Quantizer, facts: Facts, plan: Plan) -> Quantizer | None:
    """Return who makes the same files of a plan otherwise: the tool, or the stream."""
    if isinstance(quantizer, StreamQuantizer):
        return LlmCompressorQuantizer()
    if isinstance(quantizer, LlmCompressorQuantizer) and why_not_described(facts, plan) is None:
        return StreamQuantizer()
    return None


class DefaultQuantizer(Quantizer):
    """Quantizes in the stream where that writes the tool's bytes, else with llm-compressor."""

    name = LlmCompressorQuantizer.name
    tool = TOOL
    methods: Mapping[str, tuple[Scheme, ...]] = LlmCompressorQuantizer.methods

    def __init__(self) -> None:
        self._worker, self._stream = LlmCompressorQuantizer(), StreamQuantizer()

    @property
    def mixable(self) -> frozenset[str]:
        """Return the tool's."""
        return self._worker.mixable

    def for_plan(self, facts: Facts, plan: Plan) -> Quantizer:
        """Return who does the work of a plan."""
        return self._stream if why_not(facts, plan) is None else self._worker

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Yield the findings of who does it, and why the stream does not do what it could."""
        reason = why_not(facts, plan)
        yield from (self._stream if reason is None else self._worker).check(facts, plan)
        chosen = plan.quantization
        assert chosen is not None
        if reason is not None and chosen.method in METHODS and not needs_data(chosen):
            message = f"a tool quantizes, not the stream: {reason}"
            yield Finding("note", "quantize-by-tool", message)

    def step(self, facts: Facts, plan: Plan) -> Step:
        """Describe the tool's run."""
        return self._worker.step(facts, plan)

    def gpu_use(self, facts: Facts, plan: Plan) -> GpuUse:
        """Describe the GPUs that the tool's run can use."""
        return self.for_plan(facts, plan).gpu_use(facts, plan)

    def describe(
        self, facts: Facts, plan: Plan, read_header: Callable[[ModelFile], WeightsHeader]
    ) -> tuple[ModelFile, ...]:
        """Return the files of the stream."""
        return self._stream.describe(facts, plan, read_header)
