"""The vLLM family: vLLM's own OpenAI-compatible server.

Two kinds of image.  AWS's and Hugging Face's for SageMaker are configured by `SM_VLLM_*` variables
alone; their entrypoint makes a command line of them.  Upstream's image and the one for processors
get the command line itself: it is data, in `command.json` beside `launch.py`, which takes the
container's arguments after it (SageMaker's `serve` is dropped); the container's environment
overrides the environment set here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from packager.core.plan import Plan
from packager.core.serving import SERVING_DIR, RenderedFile, ServingConfig
from packager.core.share import share_dir
from packager.core.units import GIB
from packager.core.versions import is_before
from packager.engines.compile_caches import find_caches
from packager.engines.rendering.check import check_json
from packager.engines.rendering.environment import render_template
from packager.engines.schema import EngineSchema, value_tokens
from packager.engines.shared import OFFLINE_ENV
from packager.engines.vllm.options import (
    Options,
    default_options,
    planned_options,
    requested_options,
    schema_of,
)

PORT = 8080  # serves SageMaker's /ping and /invocations

SHIPPED = ("launch.py", "inputs_adapter.py")  # from containers/serving/vllm
POOLING = "pooling_adapter.py"  # beside them, of models that give vectors or scores
COMPILED = "compiled_cache.py"  # beside them, where something is compiled ahead of time
PERMISSIONS = "sitecustomize.py"  # beside them, where the engine computes on the processor

# From here on the module that started the server warns that it goes away (0.32.0, api_server.py:
# "Please use `vllm server` instead", and means `vllm serve`).
SERVE_SINCE = "0.32.0"

PREFIX = "SM_VLLM_"
BY_COMMAND = ("upstream",)  # variants of GPU images that take a command line

# Images up to here join the command line with spaces and split it again as a shell would
# (standard-supervisor before 0.1.16): what has quotes or spaces in it must be quoted.
QUOTES_UNTIL = "0.24.0"

# Images after this one have `sagemaker_args.py`, which makes words of a JSON list
# (aws/deep-learning-containers#6564, 2026-08-19); those between pass each value as one word.
LISTS_AFTER = "0.27.1"


def launched(
    argv: list[str],
    env: Mapping[str, str],
    *,
    adapter: bool = True,
    compiled: bool = False,
    on_processor: bool = False,
    pools: bool = False,
) -> ServingConfig:
    """Return the configuration that starts a command by the launcher.

    `adapter` adds the middleware.

    `pools` adds that of vectors and scores, `compiled` what makes the image's compiled files
    ready for the engine, `on_processor` what requests the permissions that an engine on
    processors needs.
    """
    shipped = share_dir("containers") / "serving" / "vllm"
    names = (
        *(SHIPPED if adapter else SHIPPED[:1]),
        *((COMPILED,) if compiled else ()),
        *((PERMISSIONS,) if on_processor else ()),
        *((POOLING,) if pools else ()),
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
    """Return whether the image's own entrypoint reads SM_VLLM_*.

    With adapters it does not: its variables carry one adapter up to 0.27.1, and without our
    middleware the base answers for every name on /invocations.  AWS's images are upstream's, with
    another entrypoint (aws/deep-learning-containers, docker/vllm/Dockerfile, 2026-11-29).
    """
    is_read = plan.instance.kind == "nvidia" and plan.container.variant not in BY_COMMAND
    return is_read and plan.adapters is None


def options(plan: Plan) -> Options:
    """Return every option: the plan's, the user's, and defaults for the rest."""
    schema = schema_of(plan)
    own, asked = own_options(plan), requested_options(plan, schema)
    return {**own, **default_options(plan, schema), **asked}


def command(options: Mapping[str, str | bool], schema: EngineSchema, *, version: str) -> list[str]:
    """Return options as a command line; options with several values get a word for each."""
    argv = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    if not is_before(version, SERVE_SINCE):
        argv = ["vllm", "serve", str(options["model"])]  # it warns of the model as an option
        options = {name: value for name, value in options.items() if name != "model"}
    for name, value in options.items():
        if isinstance(value, bool):
            argv.append(f"--{name}" if value else f"--no-{name}")
        else:
            argv += [f"--{name}", *words_of(schema, name, value)]
    return argv


def sagemaker_env(
    options: Mapping[str, str | bool], version: str, schema: EngineSchema
) -> dict[str, str]:
    """Return options as the variables that the image's entrypoint converts into a command line.

    A name is lowered and its underscores become dashes; `true` is a bare flag and
    `false` is left out, so that a switch is turned off by `SM_VLLM_NO_…=true`.  Several
    values are words for a shell where the command line is split again, else a JSON list.
    """
    env: dict[str, str] = {}
    for name, value in options.items():
        if name == "port":
            continue  # set by the entrypoint
        variable = name.upper().replace("-", "_")
        if isinstance(value, bool):
            env[f"{PREFIX}{variable}" if value else f"{PREFIX}NO_{variable}"] = "true"
            continue
        words = words_of(schema, name, value)
        if words != (value,) and is_before(version, QUOTES_UNTIL):
            env[f"{PREFIX}{variable}"] = shlex.join(words)
        elif len(words) == 1 and not is_before(LISTS_AFTER, version):
            env[f"{PREFIX}{variable}"] = _quoted(words[0], version)
        else:
            env[f"{PREFIX}{variable}"] = _quoted(value, version)
    return env


def words_of(schema: EngineSchema, name: str, value: str) -> tuple[str, ...]:
    """Return the words of an option's value: several where it takes a JSON list of them."""
    option = schema.options.get(name)
    return (value,) if option is None else value_tokens(option, value)


def own_options(plan: Plan) -> Options:
    options = planned_options(plan)
    options["port"] = str(PORT)
    if by_environment(plan):
        options["gpu-memory-utilization"] = str(plan.gpu_memory_utilization)
        return options
    pools = plan.profile.pooling is not None
    adapter = "pooling_adapter.PoolingAdapter" if pools else "inputs_adapter.InputsAdapter"
    options |= {"host": "0.0.0.0", "middleware": adapter}
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


def compiled_env(plan: Plan) -> dict[str, str]:
    caches = find_caches(plan.container) if plan.compiler else None
    compiled = caches.rendered() if caches else {}
    if plan.instance.kind != "cpu":
        return compiled
    env = {
        "VLLM_CPU_KVCACHE_SPACE": str(plan.budget.kv_bytes // GIB),  # planned in whole GiB
        # Binding threads to cores fails where a container may use some of them only.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        **_threads_of_ranks(plan),
    }
    if plan.compiler:
        return {**env, **compiled}
    return {
        **env,
        # --enforce-eager leaves torch.compile on for the sampler: the first request that asks
        # for log probabilities would wait for a C++ compiler (14 s on vLLM 0.32.0).
        "TORCH_COMPILE_DISABLE": "1",
    }


def runtime_env(plan: Plan) -> dict[str, str]:
    """Return the variable that opens loading adapters while the server runs, where asked for."""
    traits, adapters = plan.container.traits.adapters, plan.adapters
    if traits is None or adapters is None or not adapters.runtime:
        return {}
    return {traits.runtime_variable: "1"} if traits.runtime_variable else {}


def _threads_of_ranks(plan: Plan) -> dict[str, str]:
    """Divide a processor's threads among ranks, each of which would take all of them."""
    if plan.tp_degree == 1 or not plan.rank_threads:
        return {}
    return {"OMP_NUM_THREADS": str(plan.rank_threads)}


def _quoted(value: str, version: str) -> str:
    if not value or not is_before(version, QUOTES_UNTIL) or _is_one_word(value):
        return value
    return shlex.quote(value)


def _is_one_word(value: str) -> bool:
    """Check that a shell reads the value as it is."""
    try:
        return shlex.split(value) == [value]
    except ValueError:  # a quote without its partner
        return False
