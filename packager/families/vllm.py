"""The vLLM family: vLLM's own OpenAI-compatible server.

Two kinds of image.  AWS's and Hugging Face's for SageMaker are configured by
`SM_VLLM_*` variables alone; their entrypoint makes a command line of them.
Upstream's image and the one for processors get the command line itself: it is
data, in `command.json` beside `launch.py`, which takes the container's arguments
after it (SageMaker's `serve` is swallowed) and lets the container's environment
win over the environment given here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.serving import SERVING_DIR, RenderedFile, ServingConfig
from packager.core.split import Abilities
from packager.core.units import GIB
from packager.core.versions import version_key
from packager.families.arrived import check_arrived
from packager.families.listed import check_listed
from packager.families.rules import plan_facts
from packager.families.sagemaker import check_environment
from packager.families.schema import EngineSchema, find_schema, value_tokens
from packager.families.shared import (
    OFFLINE_ENV,
    VLLM_LAYOUT,
    check_engine_options,
    check_input_limit,
    check_layout_options,
    draft_dir,
    model_dir,
)
from packager.families.vllm_options import (
    Options,
    abilities_of,
    asked_names,
    asked_options,
    check_asked_draft,
    check_draft,
    check_options,
    check_proven,
    default_options,
    draft_files,
    planned_options,
    schema_of,
)
from packager.planning.compile_caches import find_caches
from packager.rendering.check import check_json
from packager.rendering.environment import render_template
from packager.share import share_dir

PORT = 8080  # what SageMaker asks on /ping and /invocations

SHIPPED = ("launch.py", "inputs_adapter.py")  # from containers/serving/vllm
COMPILED = "compiled_cache.py"  # beside them, where something is compiled ahead of time
PERMISSIONS = "sitecustomize.py"  # beside them, where the engine computes on the processor

PREFIX = "SM_VLLM_"
BY_COMMAND = ("upstream",)  # variants of GPU images that take a command line

# Images up to here join the command line with spaces and split it again as a shell would
# (standard-supervisor before 0.1.16): what has quotes or spaces in it must be quoted.
QUOTES_UNTIL = "0.24.0"
# Images after this one have `sagemaker_args.py`, which makes words of a JSON list
# (aws/deep-learning-containers#6564, 2026-08-19); those between pass each value as one word.
LISTS_AFTER = "0.27.1"


class VllmFamily:
    """Describes images whose server is vLLM itself, on GPUs or on the processor."""

    name = "vllm"

    def abilities(self, container: ContainerFacts) -> Abilities:
        """Return what this vLLM can start; on the processor, one copy."""
        able = abilities_of(container, find_schema("vllm", container.engine_version))
        if container.kind == "cpu":
            return Abilities(
                who="vLLM for processors",
                tool_parsers=able.tool_parsers,
                reasoning_parsers=able.reasoning_parsers,
                stopping=able.stopping,
            )
        return able

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Say what the server refuses, drops, or leaves unused or unenforced."""
        yield from check_input_limit(plan)
        schema = schema_of(plan)
        yield from check_proven("vLLM", plan, schema)
        yield from check_layout_options(asked_names(plan, schema), VLLM_LAYOUT)
        yield from check_engine_options(plan, _own_options(plan), asked_names(plan, schema))
        version, facts = plan.container.engine_version, plan_facts(plan)
        yield from check_options("vLLM", options(plan), schema, facts, version=version)
        yield from check_draft("vLLM", plan, schema)
        yield from check_arrived("vLLM", plan)
        yield from check_listed("vLLM", plan)
        yield from check_asked_draft("vLLM", plan, schema)
        if by_environment(plan):
            version = plan.container.engine_version
            env = sagemaker_env(options(plan), version, schema)
            yield from check_sagemaker_env(options(plan), version, schema)
            yield from check_environment(plan, {**OFFLINE_ENV, **env})

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Give variables, or the launcher with its command and the adapter for other schemas."""
        if by_environment(plan):
            version = plan.container.engine_version
            env = sagemaker_env(options(plan), version, schema_of(plan))
            config = ServingConfig(env={**OFFLINE_ENV, **env}, port=PORT)
        else:
            config = launched(
                command(options(plan), schema_of(plan)),
                _env(plan),
                compiled=bool(plan.compiler),
                on_processor=plan.instance.kind == "cpu",
            )
        return replace(
            config,
            files=(*config.files, *draft_files(plan)),
            model_dir=model_dir(plan),
            draft_dir=draft_dir(plan),
        )


def launched(
    argv: list[str],
    env: Mapping[str, str],
    *,
    adapter: bool = True,
    compiled: bool = False,
    on_processor: bool = False,
) -> ServingConfig:
    """Put the launcher in charge of a command; `adapter` puts in vLLM's middleware.

    `compiled` puts in what makes the image's compiled files ready for the engine,
    `on_processor` what requests the permissions that an engine on processors needs.
    """
    shipped = share_dir("containers") / "serving" / "vllm"
    names = (
        *(SHIPPED if adapter else SHIPPED[:1]),
        *((COMPILED,) if compiled else ()),
        *((PERMISSIONS,) if on_processor else ()),
    )
    files = [
        RenderedFile(path=f"{SERVING_DIR}/{name}", data=(shipped / name).read_bytes())
        for name in names
    ]
    return ServingConfig(
        files=(_command_file(argv, env), *files),
        env=OFFLINE_ENV,
        entrypoint=("python3", f"{SERVING_DIR}/launch.py"),
        port=PORT,
    )


def by_environment(plan: Plan) -> bool:
    """Say whether the image's own entrypoint reads SM_VLLM_*."""
    return plan.instance.kind == "nvidia" and plan.container.variant not in BY_COMMAND


def options(plan: Plan) -> Options:
    """Return every option: the plan's, those asked for by name, and defaults of neither."""
    schema = schema_of(plan)
    own, asked = _own_options(plan), asked_options(plan, schema)
    return {**own, **default_options(plan, schema), **asked}


def command(options: Mapping[str, str | bool], schema: EngineSchema) -> list[str]:
    """Spell options as a command line; those that take several values get a word for each."""
    argv = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    for name, value in options.items():
        if isinstance(value, bool):
            argv.append(f"--{name}" if value else f"--no-{name}")
        else:
            argv += [f"--{name}", *_words(schema, name, value)]
    return argv


def sagemaker_env(
    options: Mapping[str, str | bool], version: str, schema: EngineSchema
) -> dict[str, str]:
    """Spell options as the variables that the image's entrypoint makes a command line of.

    A name is lowered and its underscores become dashes; `true` is a bare flag and
    `false` is left out, so that a switch is turned off by `SM_VLLM_NO_…=true`.  Several
    values are words for a shell where the command line is split again, else a JSON list.
    """
    env: dict[str, str] = {}
    for name, value in options.items():
        if name == "port":
            continue  # given by the entrypoint
        variable = name.upper().replace("-", "_")
        if isinstance(value, bool):
            env[f"{PREFIX}{variable}" if value else f"{PREFIX}NO_{variable}"] = "true"
            continue
        words = _words(schema, name, value)
        if words != (value,) and _is_before(version, QUOTES_UNTIL):
            env[f"{PREFIX}{variable}"] = shlex.join(words)
        elif len(words) == 1 and not _is_before(LISTS_AFTER, version):
            env[f"{PREFIX}{variable}"] = _quoted(words[0], version)
        else:
            env[f"{PREFIX}{variable}"] = _quoted(value, version)
    return env


def check_sagemaker_env(
    options: Mapping[str, str | bool], version: str, schema: EngineSchema
) -> Iterator[Finding]:
    """Find values that the image's entrypoint would read as something else."""
    for name, value in options.items():
        if isinstance(value, bool):
            continue
        words = _words(schema, name, value)
        if value.strip().lower() in {"true", "false"} or "\n" in value or not value:
            message = f"the image reads {value!r} for {name!r} as a switch, and drops the value"
            yield Finding("error", "value-refused", message, "choose another value")
        elif words == (value,) or _is_before(version, QUOTES_UNTIL):
            continue
        elif _is_before(LISTS_AFTER, version):
            if "" in words or not words:
                message = f"the image drops an empty value of {name!r}"
                yield Finding("error", "value-refused", message, "leave it out")
        elif len(words) != 1:
            message = f"the image passes one value for {name!r}, and {len(words)} are given"
            yield Finding("error", "value-refused", message, "give one, or use upstream's image")


def _words(schema: EngineSchema, name: str, value: str) -> tuple[str, ...]:
    """Return the words of an option's value: several where it takes a JSON list of them."""
    option = schema.options.get(name)
    return (value,) if option is None else value_tokens(option, value)


def _is_before(version: str, other: str) -> bool:
    found, until = version_key(version), version_key(other)
    return found is not None and until is not None and found < until


def _own_options(plan: Plan) -> Options:
    options = planned_options(plan)
    options["port"] = str(PORT)
    if by_environment(plan):
        options["gpu-memory-utilization"] = str(plan.gpu_memory_utilization)
        return options
    options |= {"host": "0.0.0.0", "middleware": "inputs_adapter.InputsAdapter"}
    if plan.instance.kind == "cpu":
        if not plan.compiler:
            options["enforce-eager"] = True  # compiling at each start doubles its time
    else:
        options["gpu-memory-utilization"] = str(plan.gpu_memory_utilization)
    return options


def _command_file(argv: list[str], env: Mapping[str, str]) -> RenderedFile:
    meant: dict[str, Any] = {"argv": argv, "env": dict(env)}
    text = render_template("vllm/command.json.j2", **meant)
    path = f"{SERVING_DIR}/command.json"
    check_json(path, text, meant)
    return RenderedFile(path=path, data=text.encode("ascii"))


def _env(plan: Plan) -> dict[str, str]:
    caches = find_caches(plan.container) if plan.compiler else None
    compiled = caches.rendered() if caches else {}
    if plan.instance.kind != "cpu":
        return compiled
    env = {
        "VLLM_CPU_KVCACHE_SPACE": str(plan.budget.kv_bytes // GIB),  # planned in whole GiB
        # Binding threads to cores fails where a container may use some of them only.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    if plan.compiler:
        return {**env, **compiled}
    return {
        **env,
        # --enforce-eager leaves torch.compile on for the sampler: the first request that asks
        # for log probabilities would wait for a C++ compiler (14 s on vLLM 0.32.0).
        "TORCH_COMPILE_DISABLE": "1",
    }


def _quoted(value: str, version: str) -> str:
    if not value or not _is_before(version, QUOTES_UNTIL) or _is_one_word(value):
        return value
    return shlex.quote(value)


def _is_one_word(value: str) -> bool:
    """Check that a shell reads the value as it is."""
    try:
        return shlex.split(value) == [value]
    except ValueError:  # a quote without its partner
        return False
