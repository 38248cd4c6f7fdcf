"""Hugging Face's vLLM for Neuron devices: optimum-neuron's `serve`, which passes the rest to vLLM.

The image's script makes an option of each SM_ON_* variable, and a flag of one whose value is empty.
`serve` consumes a few options, derives some of vLLM's from them, and passes the rest to vLLM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from packager.core.findings import Finding
from packager.engines.schema import EngineSchema, find_schema
from packager.engines.vllm.check import check_options
from packager.engines.vllm.options import Options

VARIANT = "hf-vllm-neuronx"
PREFIX = "SM_ON_"
RELEASE = re.compile(r"optimum(\d+\.\d+\.\d+)", re.ASCII)

# What `serve` decides for vLLM, and from which of its own options.
DECIDED_BY = {
    "max-num-seqs": "batch-size",
    "max-model-len": "sequence-length",
    "dtype": "the model's config.json",
}

# Set by optimum/neuron/vllm/platform.py check_and_update_config of 0.4.5; options have no effect.
WITHOUT_EFFECT = {
    "enable-prefix-caching": "it keeps no prefixes",
    "block-size": "each request is one block",
    "distributed-executor-backend": "one process drives every core",
}


def serve_schema(container_version: str) -> EngineSchema:
    """Return what `serve` of an image takes, with the options of the vLLM that gets the rest."""
    found = RELEASE.search(container_version)
    own = find_schema("optimum-neuron", found[1] if found else "")
    vllm = find_schema(*own.hands_to)
    rest = {name: row for name, row in vllm.options.items() if name not in own.decides}
    return replace(
        vllm,
        version=own.hands_to[1],
        options={**rest, **own.options},
        decides=own.decides - own.options.keys(),
    )


def check_serve(options: Mapping[str, str | bool], schema: EngineSchema) -> Iterator[Finding]:
    """Find options that `serve` or its vLLM refuses, overwrites or gives no effect."""
    for name in options:
        if name in schema.decides:
            message = f"{VARIANT} decides {name!r} itself"
            instead = DECIDED_BY.get(name)
            hint = f"it follows from {instead}" if instead else "leave it out"
            yield Finding("error", "options-conflict", message, hint)
        elif name in WITHOUT_EFFECT and options[name] is not False:
            message = f"{name!r} has no effect in {VARIANT}: {WITHOUT_EFFECT[name]}"
            yield Finding("error", "key-dropped", message, "leave it out")
    taken = {name: value for name, value in options.items() if name not in schema.decides}
    yield from check_options(VARIANT, taken, schema)


def serve_environment(options: Options) -> dict[str, str]:
    """Return options as the variables that the image's script converts into options."""
    env: dict[str, str] = {}
    for name, value in options.items():
        spelled = f"no-{name}" if value is False else name
        env[PREFIX + spelled.upper().replace("-", "_")] = "" if isinstance(value, bool) else value
    return env


def serve_arguments(options: Options) -> list[str]:
    """Return options as a command line of `serve`."""
    argv: list[str] = []
    for name, value in options.items():
        if isinstance(value, bool):
            argv.append(f"--{name}" if value else f"--no-{name}")
        else:
            argv += [f"--{name}", value]
    return argv
