"""A quantizer of another package, as docs/plug-ins.md describes one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.ports import Quantizer
from packager.core.recipe import Estimate, Step, StepInput
from packager.core.techniques import Scheme
from packager.optimize.keys.documents import QuantizedCheckpointKey
from packager.optimize.keys.parts import Calibration, Invocation, Precision, Quantization, Weights
from packager.optimize.steps.key_parts import files_by_path, graph_of, toolchain_of

TOOL = Path(__file__).parent / "demo-tool"  # its entry point is in the group packager.tools

DEMO8 = Scheme(name="DEMO8", needs="int8_w8a8", word="demo8", bits=8)
WAYS = (
    "copy",
    "rounded",
    "slow",
    "counted",
    "refuse",
    "status",
    "memory",
    "half_a_result",
    "broken_model",
    "orphan",
)


class DemoQuantizer(Quantizer):
    """Rounds or copies the model; the other methods are ways in which a tool fails."""

    name = "demo"
    tool = "demo-tool"
    methods: Mapping[str, tuple[Scheme, ...]] = MappingProxyType(
        {f"demo-{way.replace('_', '-')}": (DEMO8,) for way in WAYS}
    )

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Refuse only drafts, to show how."""
        if plan.draft:
            yield Finding("error", "demo-draft", "the demo has no drafts", "use --draft none")

    def step(self, facts: Facts, plan: Plan) -> Step:
        """Describe the run; `--quantize METHOD,NAME=VALUE` gives options."""
        assert plan.quantization is not None
        asked = dict(plan.quantization.options)
        way = plan.quantization.method.removeprefix("demo-").replace("-", "_")
        seed = int(asked.get("seed", "0"))
        env = {"OMP_NUM_THREADS": "1"}
        weights = files_by_path(facts.model.files)
        key = None
        if weights:
            key = QuantizedCheckpointKey(
                graph=graph_of(facts.model.config, frozenset()),
                weights=Weights(files=weights, adapters=(), draft=None),
                precision=Precision(
                    dtype=plan.dtype,
                    weights=Quantization(
                        algorithm=plan.quantization.method,
                        bits=8,
                        group_size=None,
                        symmetric=True,
                        zero_point=False,
                        excluded_modules=(),
                    ),
                    activations=None,
                    kv_dtype="auto",
                    auto_cast=None,
                    auto_cast_dtype=None,
                    logits_dtype="fp32",
                ),
                calibration=Calibration(dataset="0" * 64, samples=1, sequence_tokens=1, seed=seed),
                sharding=None,
                toolchain=toolchain_of(facts.tools["demo-tool"]),
                invocation=Invocation(compiler_args=(), engine_args={}, env=env),
                computed_on=None,
            )
        return Step(
            name="quantize",
            tool="demo-tool",
            gives="model",
            parameters={
                "do": way,
                "seed": seed,
                "ran": asked.get("ran", ""),
                "pids": asked.get("pids", ""),
                "seconds": asked.get("seconds", ""),
            },
            inputs={"model": StepInput(files=facts.model.files)},
            env=env,
            key=key,
            needs=Estimate(disk_bytes=facts.model.weight_bytes, seconds=2.0),
        )
