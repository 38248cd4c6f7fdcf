"""Splits weights into one set of files per rank before they are loaded.

With tensor parallelism every rank reads the whole checkpoint and keeps its share. Files with a
rank's share in its memory layout are read once, by that rank alone. They work with one engine
version at one degree, and the step runs in the serving image, on the devices that will serve: it
loads the checkpoint, writes what each rank has, loads that again, and compares answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.key_options import keyed_options, plain_name
from packager.core.plan import SHARDED_STATE, Plan
from packager.core.ports import Compiler
from packager.core.recipe import Estimate, Step, StepInput, Work
from packager.core.serving import ServingConfig
from packager.core.units import GIB
from packager.estimate.performance.amounts import counts
from packager.optimize.compile.vllm_keys import vllm_precision, vllm_target
from packager.optimize.keys.documents import ShardedCheckpointKey
from packager.optimize.keys.parts import Invocation, Weights
from packager.optimize.steps.configs import NO_WEIGHT
from packager.optimize.steps.inputs import environment_of, weight_files
from packager.optimize.steps.key_parts import (
    files_by_path,
    graph_of,
    parallelism_of,
    toolchain_in_image,
)

PART_BYTES = 4 * GIB  # one layer each
NO_FILES = ("ngram", "ngram_gpu", "suffix")  # drafts without weights

# Formats whose parameters get their shapes while they are filled.
LATE_SHAPES = frozenset({"bitsandbytes", "gguf"})

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}

# LMI's images up to 16 have vLLM in a separate environment.
PYTHONS = ("python3", "/opt/djl/vllm_venv/bin/python")

# Options that differ between the step and the image; none of them is in a parameter.
OWN = frozenset({"load-format", "model-loader-extra-config", "enforce-eager"})

_PORT = 18080
_PROMPT = tuple(range(1, 9))  # token ids, so that their number does not depend on a tokenizer
_TOKENS = 16
_LENGTH = 256  # of the step's own sequences
_READY_S = 3600.0
_ENGINE_BYTES = 4 * GIB


class StateSharder(Compiler):
    """Describes runs of `containers/tools/vllm-shards`."""

    name = SHARDED_STATE
    tool = "vllm-shards"

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Yield findings where the engine cannot load split weights, or gains nothing."""
        container = plan.container
        if not container.traits.loads_ranks:
            message = (
                "weights are split ahead of time for vLLM from 0.10.2 on, not for "
                f"{container.engine} {container.engine_version} in {container.family}"
            )
            yield _refused(message, "use `--family vllm`, or leave --load-format out")
            return
        if facts.base is not None and not facts.base.digest:
            message = "the base image has no engine that could split the weights"
            yield _refused(message, "name the base that will serve with --base")
        if plan.weights == "mounted" and not plan.one_mount:
            message = "what is mounted are the model's own files, and they are not split"
            hint = "use `--weights baked`, or write them with `--output dir:DIR`"
            yield _refused(message, hint)
        yield from _check_split(plan)
        yield from _check_weights(plan)
        draft = plan.draft
        if draft is not None and draft.kind not in NO_FILES:
            message = f"vLLM would look for split weights of the {draft.kind} draft, too"
            yield _refused(message, "leave the draft out, or use `--draft ngram`")
        for asked, value in plan.engine_options:
            if plain_name(asked) == "enable-lora" and value == "true":
                message = "adapters change the names of parameters that are split"
                yield _refused(message, "leave enable-lora or --load-format out")

    def step(
        self,
        facts: Facts,
        plan: Plan,
        serving: ServingConfig,
        inputs: Mapping[str, StepInput],
    ) -> Step:
        """Describe two starts of the engine: one that writes, one that reads."""
        arguments = list(_arguments(plan))
        env = _env(plan)
        weights = facts.model.weight_bytes
        on_gpus = plan.instance.kind == "nvidia"
        part_bytes = plan.layers.max_size or PART_BYTES
        model, container = inputs["model"], plan.container
        return Step(
            name="shard",
            tool=self.tool,
            gives="ranks",
            parameters={
                "engine": {"name": container.engine, "version": container.engine_version},
                "pythons": list(PYTHONS),
                "ranks": plan.tp_degree,
                "part_bytes": part_bytes,
                "arguments": [*arguments, *_small(plan)],
                "env": {**environment_of(facts.base), **env, "VLLM_HOST_IP": "127.0.0.1"},
                "port": _PORT,
                "ready_s": _READY_S,
                "requests": _requests(plan),
            },
            inputs={"model": model},
            env=env,
            key=_key(facts, plan, model, env, part_bytes),
            needs=Estimate(
                memory_bytes=2 * weights + _ENGINE_BYTES,
                disk_bytes=2 * weights,  # tensors that every rank has are written once per rank
                work=_starts(plan, weights),
                method=f"{self.tool}/{container.engine}",
                size_bytes=weights,
            ),
            gpus=plan.tp_degree if on_gpus else 0,
            gpu=plan.instance.device_name if on_gpus else "",
            image=facts.base,
            places={"model": serving.model_dir},
        )


def _refused(message: str, hint: str) -> Finding:
    return Finding("error", "load-format-unsupported", message, hint)


def _check_split(plan: Plan) -> Iterator[Finding]:
    if plan.pp_degree > 1:
        message = f"weights are split for tensor parallelism, and the plan has {plan.pp_degree} "
        yield _refused(f"{message}pipeline stages", "use `--pp-degree 1`, or leave it out")
    if plan.expert_parallel or plan.dp_attention or (plan.dp_degree > 1 and plan.profile.experts):
        message = "which experts a device holds depends on more than its tensor-parallel rank"
        yield _refused(message, "use `--no-ep --dp-degree 1`, or leave --load-format out")
    if plan.tp_degree == 1:
        message = "at TP 1 the one rank reads everything: nothing is gained by splitting"
        yield _refused(message, "ask for a --tp-degree, or leave --load-format out")


def _check_weights(plan: Plan) -> Iterator[Finding]:
    chosen = plan.quantization
    served = chosen.checkpoint_format if chosen else plan.profile.quantization
    if chosen is not None and not chosen.existing and not chosen.checkpoint_format:
        message = f"vLLM would quantize with {chosen.method} each time it loads"
        yield _refused(message, "leave --load-format out")
    elif served in LATE_SHAPES:
        message = f"vLLM gives parameters of {served} their shapes while it reads the checkpoint"
        yield _refused(message, "leave --load-format out")
    for asked, value in plan.engine_options:
        if plain_name(asked) == "quantization" and not served:
            message = f"vLLM would quantize with {value[:40]} each time it loads"
            yield _refused(message, "leave quantization or --load-format out")


def _arguments(plan: Plan) -> Iterator[str]:
    """Yield the options that decide which parameters there are, and in which type."""
    yield from ("--dtype", DTYPES[plan.dtype])
    yield from ("--tensor-parallel-size", str(plan.tp_degree))
    if plan.kv_dtype != "auto":  # its scales are parameters
        yield from ("--kv-cache-dtype", plan.kv_dtype)
    for name, value in keyed_options(plan.engine_options):
        if name in OWN:
            continue
        if value in ("true", "false"):
            yield f"--{name}" if value == "true" else f"--no-{name}"
        else:
            yield from (f"--{name}", value)


def _small(plan: Plan) -> list[str]:
    """Return options that make the step's engines small and quick: no parameter depends on them."""
    asked = {plain_name(name) for name, _ in plan.engine_options}
    length = str(min(_LENGTH, plan.shape.max_total_tokens))
    own = {"served-model-name": plan.served_name, "max-model-len": length, "max-num-seqs": "1"}
    words = [
        word for name, value in own.items() if name not in asked for word in _pair(name, value)
    ]
    if plan.instance.kind == "nvidia" and "gpu-memory-utilization" not in asked:
        words += _pair("gpu-memory-utilization", str(plan.gpu_memory_utilization))
    return [*words, "--enforce-eager"]


def _pair(name: str, value: str) -> list[str]:
    return [f"--{name}", value]


def _env(plan: Plan) -> dict[str, str]:
    """Return the step's variables, which its key lists."""
    env = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if plan.instance.kind == "cpu":
        env |= {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "TORCH_COMPILE_DISABLE": "1",
        }
    return env


def _requests(plan: Plan) -> list[Any]:
    """Return the requests for both engines: greedy answers, with and without probabilities."""
    length = min(_LENGTH, plan.shape.max_total_tokens)
    plain = {
        "model": plan.served_name,
        "prompt": list(_PROMPT[: max(1, length // 4)]),
        "max_tokens": min(_TOKENS, max(1, length // 4)),
        "temperature": 0,
        "ignore_eos": True,
    }
    return [["/v1/completions", {**plain, "logprobs": 1}]]


def _starts(plan: Plan, weights: int) -> tuple[Work, ...]:
    """Return two starts of the server; what GPUs take was measured nowhere."""
    if plan.instance.kind != "cpu":
        return ()
    constants = counts()["serve"]
    return tuple(
        Work(
            stage=stage,
            seconds=constants["warm_start_s"],
            read_bytes=weights,
            written_bytes=weights if stage == "splitting" else 0,
            on_host=True,
        )
        for stage in ("splitting", "verifying")
    )


def _key(
    facts: Facts, plan: Plan, model: StepInput, env: Mapping[str, str], part_bytes: int
) -> ShardedCheckpointKey | None:
    """Return the key document; None while the base or a digest of the weights is unknown."""
    base, files = facts.base, files_by_path(weight_files(facts.model.files))
    if model.result_of:  # whatever the step gives, its key identifies it
        files = {f"({model.result_of})": model.result_key} if model.result_key else None
    if base is None or not base.digest or files is None:
        return None
    others = {name: value for name, value in keyed_options(plan.engine_options) if name not in OWN}
    return ShardedCheckpointKey(
        graph=graph_of(facts.model.config, NO_WEIGHT),
        weights=Weights(files=files, adapters=(), draft=None),
        precision=vllm_precision(plan),
        parallelism=parallelism_of(tp=plan.tp_degree, pp=1, sharding="replicate"),
        # Before kernels see them, weights are the same on every processor.
        target=vllm_target(plan, None),
        toolchain=toolchain_in_image(facts.tools["vllm-shards"], base, plan.container),
        invocation=Invocation(
            compiler_args=(),
            engine_args={**others, "packager.part-bytes": str(part_bytes)},
            env=dict(env),
        ),
    )
