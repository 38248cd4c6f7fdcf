"""A quantizer that takes the last bits of bfloat16 weights away, without any library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.ports import Quantizer
from packager.core.recipe import Estimate, Step, StepInput
from packager.core.techniques import Scheme
from packager.optimize.keys.documents import QuantizedCheckpointKey
from packager.optimize.keys.parts import Calibration, Invocation, Precision, Quantization, Weights
from packager.optimize.steps.key_parts import files_by_path, graph_of, toolchain_of

TOOL = Path(__file__).parent / "fewer-bits"  # its entry point is in the group packager.tools
NO_TEXTS = Calibration(dataset="0" * 64, samples=1, sequence_tokens=1, seed=0)


class FewerBitsQuantizer(Quantizer):
    """Describes runs of the tool `fewer-bits`."""

    name = "fewer_bits"
    tool = "fewer-bits"
    methods: Mapping[str, tuple[Scheme, ...]] = {
        "fewer-bits": (Scheme(name="BF12", needs="int8_w8a8", word="bf12", bits=16),)
    }

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Refuse weights that have no bits to take away."""
        if plan.dtype != "bf16":
            message = f"fewer_bits reads bf16 weights, not {plan.dtype}"
            yield Finding("error", "fewer-bits-dtype", message, "use another quantizer")

    def step(self, facts: Facts, plan: Plan) -> Step:
        """Describe the run; without digests of the weights, as in a plan, it has no key."""
        weights = files_by_path(facts.model.files)
        return Step(
            name="quantize",
            tool=self.tool,
            gives="model",
            parameters={},
            inputs={"model": StepInput(files=facts.model.files)},
            env={},
            key=self._key(facts, plan, weights) if weights else None,
            needs=Estimate(disk_bytes=facts.model.weight_bytes, seconds=1.0),
        )

    def _key(self, facts: Facts, plan: Plan, weights: Mapping[str, str]) -> QuantizedCheckpointKey:
        fewer = Quantization(
            algorithm="fewer-bits",
            bits=12,
            group_size=None,
            symmetric=True,
            zero_point=False,
            excluded_modules=(),
        )
        return QuantizedCheckpointKey(
            graph=graph_of(facts.model.config, frozenset()),
            weights=Weights(files=dict(weights), adapters=(), draft=None),
            precision=Precision(
                dtype=plan.dtype,
                weights=fewer,
                activations=None,
                kv_dtype="auto",
                auto_cast=None,
                auto_cast_dtype=None,
                logits_dtype="fp32",
            ),
            calibration=NO_TEXTS,
            sharding=None,
            toolchain=toolchain_of(facts.tools[self.tool]),
            invocation=Invocation(compiler_args=(), engine_args={}, env={}),
            computed_on=None,
        )
