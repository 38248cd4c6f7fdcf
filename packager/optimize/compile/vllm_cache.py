"""Keeps what vLLM compiles when it starts: torch.compile, Triton and FlashInfer caches.

The step runs the finished configuration in the base image, with the model where the image will have
it, keeps the caches, and starts a second time to check that the caches are complete. They contain
no weights, so fine-tunes of one model share an artifact.

Code for a processor depends on the processor that compiled it.  It is made only for the
machine that it is made on (`--instance local`), and the launcher leaves it alone on others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packager.core.documents import shorten
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.image import BaseImage, Inline
from packager.core.key_options import keyed_options, plain_name
from packager.core.model import ModelFile
from packager.core.plan import Plan
from packager.core.ports import Compiler
from packager.core.recipe import Estimate, Step, StepInput, Work
from packager.core.serving import COMPILED_DIR, SERVING_DIR, RenderedFile, ServingConfig
from packager.core.units import GIB
from packager.engines.compile_caches import CompileCaches, find_caches
from packager.estimate.performance.amounts import counts
from packager.optimize.compile.vllm_keys import vllm_precision, vllm_target
from packager.optimize.keys.documents import VllmCompileKey
from packager.optimize.keys.parts import Cpu, Invocation, Sampling, Shape, Speculation
from packager.optimize.steps.configs import NO_GRAPH, NO_SHAPE
from packager.optimize.steps.inputs import environment_of
from packager.optimize.steps.key_parts import (
    OF_THE_IMAGE,
    architecture_digest,
    graph_of,
    parallelism_of,
    toolchain_in_image,
)

_PROMPT = tuple(range(1, 9))  # tokens, so that no tokenizer decides how many are compiled for
_TOKENS = 16
_READY_S = 3600.0
_COMPILING_BYTES = 2 * GIB  # a C++ compiler beside the engine


class VllmCacheCompiler(Compiler):
    """Describes runs of `containers/tools/vllm-cache`."""

    name = "vllm_cache"
    tool = "vllm-cache"

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Yield findings where a cache cannot be baked, or not for the serving machine."""
        container = plan.container
        if find_caches(container) is None or (facts.base and not facts.base.digest):
            variant = f" {container.variant}" if container.variant else ""
            message = (
                f"the caches of {container.family}{variant} with {container.engine} "
                f"{container.engine_version} on {container.kind} cannot be kept in an image"
            )
            hint = "name a newer container, or use `--compile off`"
            yield Finding("error", "compile-unsupported", message, hint)
        elif (found := _other_entrypoint(facts.base, plan)) is not None:
            yield Finding(
                "error",
                "compile-unsupported",
                f"the base image starts {shorten(found)}, and compiled files are put in place "
                "before the entrypoint that its family has",
                "name the family's own image with --base, or use `--compile off`",
            )
        elif plan.nodes > 1:
            message = f"caches come of starts of the engine, which takes {plan.nodes} machines here"
            hint = "leave --compile out: each machine compiles when it starts"
            yield Finding("error", "compile-several-nodes", message, hint)
        elif plan.instance.kind == "cpu" and not plan.instance.isa:
            message = (
                "code for processors is compiled on the machine that serves, and "
                f"{plan.instance.name} is elsewhere"
            )
            hint = "build there with `--instance local`, or use `--compile off`"
            yield Finding("error", "compile-elsewhere", message, hint)
        if any(
            name.lower().replace("_", "-").strip("-") == "enforce-eager" and value == "true"
            for name, value in plan.engine_options
        ):
            message = "the option enforce-eager disables compilation"
            yield Finding("error", "compile-eager", message, "leave the option out")

    def step(
        self, facts: Facts, plan: Plan, serving: ServingConfig, inputs: Mapping[str, StepInput]
    ) -> Step:
        """Describe two starts of the finished configuration."""
        caches = find_caches(plan.container)
        assert caches is not None  # `check` refused other containers
        argv, defaults = _command(serving, caches)
        env = {**defaults, **serving.env}
        declared = _without_options(env, caches)
        parameters = {
            "command": [*serving.entrypoint, *serving.cmd],
            "directory": _directory(facts.base),
            # Containers of steps are offline.
            "env": {
                **env,
                **environment_of(facts.base),
                **serving.env,
                "VLLM_HOST_IP": "127.0.0.1",
            },
            "verify_env": dict(caches.verify_env),
            "serving_dir": SERVING_DIR,
            "port": serving.port,
            "ready_s": _READY_S,
            "requests": _requests(plan, caches.endpoint),
            "engine": {"name": plan.container.engine, "version": plan.container.engine_version},
            "target": _target_words(plan),
        }
        return Step(
            name="compile",
            tool=self.tool,
            gives="compiled",
            parameters=parameters,
            inputs=_with_rendered(inputs, serving),
            env=declared,
            key=_key(facts, plan, serving, argv, declared),
            needs=Estimate(
                memory_bytes=plan.budget.needed_bytes + _COMPILING_BYTES,
                work=_starts(facts, plan),
                method=f"{self.tool}/{plan.container.engine}",
                size_bytes=facts.model.weight_bytes,
                only_here=plan.instance.kind == "cpu",  # code is for this very processor
            ),
            gpus=plan.split.server_devices if plan.instance.kind == "nvidia" else 0,
            gpu=plan.instance.device_name if plan.instance.kind == "nvidia" else "",
            image=facts.base,
            places={
                "model": serving.model_dir,
                "draft": serving.draft_dir,
                "serving": SERVING_DIR,
                "output": COMPILED_DIR,
            },
        )


def _starts(facts: Facts, plan: Plan) -> tuple[Work, ...]:
    """Return two starts of the server; what GPUs take was measured nowhere."""
    if plan.instance.kind != "cpu":
        return ()
    constants, read = counts()["serve"], facts.model.weight_bytes
    return (
        Work(
            stage="compiling", seconds=constants["compile_start_s"], read_bytes=read, on_host=True
        ),
        Work(stage="verifying", seconds=constants["warm_start_s"], read_bytes=read, on_host=True),
    )


def _command(serving: ServingConfig, caches: CompileCaches) -> tuple[list[str], dict[str, str]]:
    """Read the command line and the environment that the launcher will read.

    Where the image's own entrypoint starts the server, options are variables: they are converted to
    the arguments that the entrypoint makes of them.
    """
    if caches.entrypoint:
        words = []
        for name, value in serving.env.items():
            if name.startswith(caches.options):
                words += [f"--{plain_name(name.removeprefix(caches.options))}", value]
        return words, {}
    path = f"{SERVING_DIR}/command.json"
    document = next(json.loads(file.data) for file in serving.files if file.path == path)
    return list(document["argv"]), dict(document["env"])


def _without_options(env: Mapping[str, str], caches: CompileCaches) -> dict[str, str]:
    """Return the variables of a key: options are in it by their names, and some are not."""
    if not caches.options:
        return dict(env)
    return {name: value for name, value in env.items() if not name.startswith(caches.options)}


def _other_entrypoint(base: BaseImage | None, plan: Plan) -> str | None:
    """Return the base image's entrypoint if it is not the family's own."""
    caches = find_caches(plan.container)
    if base is None or caches is None or not caches.entrypoint:
        return None
    found = (base.config.get("config") or {}).get("Entrypoint") or ()
    return None if tuple(found) == caches.entrypoint else " ".join(found)


def _requests(plan: Plan, endpoint: str) -> list[Any]:
    """Return the requests for a started server: log probabilities need kernels of their own."""
    plain = {
        "model": plan.served_name,
        "prompt": list(_PROMPT[: max(1, plan.shape.max_input_tokens // 2)]),
        "max_tokens": min(_TOKENS, max(1, plan.shape.max_total_tokens // 4)),
        "temperature": 0,
        "ignore_eos": True,  # no token that a model ends with decides how far it gets
    }
    return [[endpoint, plain], [endpoint, {**plain, "logprobs": 1}]]


def _target_words(plan: Plan) -> dict[str, Any]:
    """Return the properties of the machine that the worker detects and compares."""
    instance = plan.instance
    if instance.kind == "nvidia":
        return {"gpu": instance.device_name}
    cpu = _cpu_of(plan)
    machine = instance.machine or ""
    return {"machine": machine, "isa": list(cpu.isa), "threads": cpu.threads}


def _cpu_of(plan: Plan) -> Cpu:
    """Return the key part of a rank's processor; unknown values are 0."""
    return Cpu(isa=plan.instance.isa, threads=plan.rank_threads)


def _with_rendered(inputs: Mapping[str, StepInput], serving: ServingConfig) -> dict[str, StepInput]:
    """Add the rendered files; beside model and draft, they take the place of the same name."""
    inputs_by_role = dict(inputs)
    for role, directory in (("model", serving.model_dir), ("draft", serving.draft_dir)):
        ours = tuple(_rendered(serving.files, directory))
        if ours and role in inputs_by_role:
            theirs = tuple(
                file
                for file in inputs_by_role[role].files
                if file.path not in {rendered.path for rendered in ours}
            )
            inputs_by_role[role] = StepInput(
                files=(*theirs, *ours), result_of=inputs_by_role[role].result_of
            )
    inputs_by_role["serving"] = StepInput(files=tuple(_rendered(serving.files, SERVING_DIR)))
    return inputs_by_role


def _rendered(files: Iterable[RenderedFile], directory: str) -> Iterator[ModelFile]:
    for file in files:
        if file.path.startswith(f"{directory}/"):
            path = file.path.removeprefix(f"{directory}/")
            yield ModelFile(
                path=path, role="other", content=Inline(file.data), executable=file.executable
            )


def _directory(base: BaseImage | None) -> str:
    config = (base.config.get("config") or {}) if base else {}
    return str(config.get("WorkingDir") or "/")


def _key(
    facts: Facts, plan: Plan, serving: ServingConfig, argv: list[str], env: Mapping[str, str]
) -> VllmCompileKey | None:
    """Return the key document; None while the base is unknown."""
    base = facts.base
    if base is None or not base.digest:
        return None
    shape = plan.shape
    return VllmCompileKey(
        graph=graph_of(facts.model.config, _fields_left_out(plan)),
        shape=Shape(
            max_batch=shape.max_batch,
            context_batch=None,
            token_batch=None,
            max_input_tokens=shape.max_input_tokens,
            max_total_tokens=shape.max_total_tokens,
            max_batched_tokens=plan.max_prefill_tokens,
            context_buckets=(),
            token_buckets=(),
            prefill_chunk_tokens=None,
            beam_width=1,
            block_tokens=None,
            paged=True,
            graph_sizes=(),
            dynamic=(),
        ),
        precision=vllm_precision(plan),
        parallelism=parallelism_of(
            tp=plan.tp_degree,
            pp=plan.pp_degree,
            sharding="replicate",
            ep=plan.split.expert_degree if plan.expert_parallel else 1,
            attention_dp=plan.dp_degree if plan.dp_attention else 1,
        ),
        target=vllm_target(plan, _cpu_of(plan)),
        toolchain=toolchain_in_image(facts.tools["vllm-cache"], base, plan.container, serving),
        invocation=Invocation(
            compiler_args=(), engine_args=_engine_args(plan, argv), env=dict(env)
        ),
        speculation=_speculation(facts, plan),
        sampling=Sampling(on_device=False, max_top_k=None),
        lora=None,
        model_path_in_image=serving.model_dir,
        site_packages_in_image=OF_THE_IMAGE,
    )


def _fields_left_out(plan: Plan) -> frozenset[str]:
    """Return the fields of config.json that a cache does not depend on.

    torch finds what it compiled by the graph itself: base and instruct models share.  vLLM
    files what it compiled under a digest of all fields.
    """
    caches = find_caches(plan.container)
    if caches is None or caches.filed_by_config:
        return NO_SHAPE
    return NO_GRAPH - {"architectures"}  # it chooses the engine's code


def _engine_args(plan: Plan, argv: list[str]) -> dict[str, str]:
    """Return the engine's options by name, and how the weights were quantized."""
    args: dict[str, str] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            name = word.removeprefix("--")
            args[name] = ""
        elif name:
            args[name] = f"{args[name]} {word}".lstrip()
    kept = {name: value or "true" for name, value in keyed_options(args.items())}
    if plan.quantizing.method:
        kept["packager.quantize"] = plan.quantizing.method
    return kept


def _speculation(facts: Facts, plan: Plan) -> Speculation | None:
    draft = plan.draft
    if draft is None:
        return None
    config = architecture_digest(facts.draft.config, NO_SHAPE) if facts.draft else None
    return Speculation(
        method=draft.kind,
        tokens=draft.speculative_tokens,
        draft_config=config,
        heads=draft.heads or None,
        layers=draft.head_layers or None,
        tree=(),
    )
