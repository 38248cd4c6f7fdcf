"""TensorRT-LLM as data: which versions build engines, and who reads which option.

See `data/trtllm_options.toml`.  The compiler and the family must agree on what an engine
is built for, so the numbers that both need are worked out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.facts import ContainerFacts
from packager.core.plan import Plan
from packager.core.share import read_shipped
from packager.core.versions import release_of, version_key

DATA = Path(__file__).parent / "data" / "trtllm_options.toml"

ENGINE = "tensorrt-llm"
COMPILER = "tensorrt_llm"
LEAST_BATCHED_TOKENS = 8192  # trtllm-build's own; a prompt must fit in one step beside others
TOKENS_PER_BLOCK = 32  # default of the KV cache: PluginConfig, 0.21 to 1.2

_DIGITS = 10

DTYPES: Mapping[str, str] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def builds_engines(container: ContainerFacts) -> bool:
    """Return whether the version still has the engine backend of the open-source builder."""
    version, ended = version_key(container.engine_version), version_key(_versions()["ended"])
    if container.engine != ENGINE or version is None or ended is None or is_legacy(container):
        return False
    # Candidates for the release that ends it count as that.
    return release_of(version) < release_of(ended)


def is_legacy(container: ContainerFacts) -> bool:
    """Return whether LMI serves this version through the closed toolkit of older releases."""
    version, least = version_key(container.engine_version), version_key(_versions()["least"])
    return version is None or least is None or version < least


def batched_tokens(plan: Plan) -> int:
    """Return `max_num_tokens`, the tokens of one step, as the builder stores it.

    An engine refuses a longer prompt.  The builder (`builder.py: _init_max_seq_len`, `_common.py:
    check_max_num_tokens`) and the PyTorch backend limit the value to full slots; the builder then
    raises it to a whole prompt where attention in the context is not fused, else to one block of
    the cache.  A plan with another number would refuse the engine after an hour of compiling.
    """
    shape, asked = plan.shape, plan.max_prefill_tokens
    if asked is None:
        asked = max(shape.max_input_tokens, LEAST_BATCHED_TOKENS)
    clipped = min(asked, shape.max_batch * shape.max_total_tokens)
    if plan.compiler != COMPILER:
        return clipped
    built = build_options(plan)
    if built.get("context_fmha") == "disable":
        return max(clipped, shape.max_input_tokens)
    return max(clipped, _number(built, "tokens_per_block") or TOKENS_PER_BLOCK)


def clipped_option(plan: Plan) -> str:
    """Return a sentence about an option that the builder would lower; "" when there is none."""
    asked, most = _number(build_options(plan), "opt_num_tokens"), batched_tokens(plan)
    return f"opt_num_tokens {asked} is lowered to max_num_tokens {most}" if asked > most else ""


def _number(built: Mapping[str, str], name: str) -> int:
    """Read a small positive number; 0 for what is none, which the option's type refuses."""
    text = built.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else 0


def option_name(name: str) -> str:
    """Return an option's name as the builder and LMI spell it, without LMI's prefix."""
    bare = name.removeprefix("--").removeprefix("option.")
    return bare if bare == "entryPoint" else bare.lower().replace("-", "_")


def build_options(plan: Plan) -> dict[str, str]:
    """Return the requested options that the builder reads."""
    asked = {option_name(name): value for name, value in plan.engine_options}
    return {name: value for name, value in asked.items() if name in options()["build"]}


@cache
def options() -> Mapping[str, Any]:
    """Read the shipped table."""
    return read_shipped(DATA)


def _versions() -> Mapping[str, str]:
    versions: Mapping[str, str] = options()["versions"]
    return versions
