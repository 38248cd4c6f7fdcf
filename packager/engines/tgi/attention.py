"""Attention implementation that TGI chooses, and its consequences: FP8 cache, chunked prefill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packager.core.findings import Finding
from packager.core.versions import version_key
from packager.engines.rules import NO_FACTS, Facts

CHUNKS_SINCE = 3  # the first major version that computes long prompts in pieces
CHUNKS_FROM_CAPABILITY = 8.0  # older GPUs get paged attention

# Attention that keeps an FP8 cache on NVIDIA's GPUs (server/layers/attention/kv_cache.py), and when
# the launcher takes another unasked (resolve_attention): text-generation-inference at db931fcf.
FP8_CACHE_ATTENTION = {"flashinfer", "paged"}
FLASHINFER_HEAD_DIMS = {64, 128, 256}
NEVER_FLASHINFER = {"falcon", "deepseek_v2"}  # as config.json's `model_type`

# Built with `support_chunking=False` (server/models/__init__.py at db931fcf), the same names.
NEVER_CHUNKED = {"gemma3", "qwen2_vl", "qwen2_5_vl", "mllama"}
CHUNKING_ATTENTION = {"flashinfer", "flashdecoding"}
TRUE = {"1", "true"}  # as the shards read a variable that says yes


def check_cache(
    env: Mapping[str, str],
    facts: Facts = NO_FACTS,
    *,
    medusa: bool = False,
    option: str = "kv_dtype",
) -> Iterator[Finding]:
    """Refuse an FP8 cache, set by `option`, where the shards' attention does not support it."""
    attention, because = choose_attention(env, facts, medusa=medusa)
    if "KV_CACHE_DTYPE" not in env or attention in FP8_CACHE_ATTENTION:
        return
    message = f"TGI keeps an FP8 cache with flashinfer only, and runs {attention}: {because}"
    yield Finding("error", "kv-dtype-unsupported", message, f"leave {option} out")


def choose_attention(
    env: Mapping[str, str], facts: Facts, *, medusa: bool = False
) -> tuple[str, str]:
    """Return the attention that the launcher chooses, and why it is none of the default.

    What is not known of the model or the machine leads to the default.
    """
    if "ATTENTION" in env:
        return env["ATTENTION"], "ATTENTION says so"
    if medusa:
        because = "its launcher reads the config.json of the Medusa heads, which names no head size"
    elif facts.get("head_dim", 128) not in FLASHINFER_HEAD_DIMS:
        because = f"heads of {facts['head_dim']} are none of flashinfer's (64, 128, 256)"
    elif facts.get("model_type") in NEVER_FLASHINFER:
        because = f"its launcher decides so for models of type {facts['model_type']!r}"
    else:
        return "flashinfer", ""
    return "flashdecoding" if _capability(facts) >= CHUNKS_FROM_CAPABILITY else "paged", because


def runs_chunks(
    version: str, env: Mapping[str, str], facts: Facts = NO_FACTS, *, medusa: bool = False
) -> bool:
    """Report whether TGI computes long prompts in pieces (`server/models/model.py`).

    Paged attention does not, PREFILL_CHUNKING turns it off, and so does speculation.
    """
    key = version_key(version)
    is_old = key is not None and key.major < CHUNKS_SINCE
    if is_old or _capability(facts) < CHUNKS_FROM_CAPABILITY:
        return False
    if medusa or env.get("SPECULATE", "0") != "0":
        return False
    if env.get("PREFILL_CHUNKING", "1").lower() not in TRUE:
        return False
    attention, _ = choose_attention(env, facts, medusa=medusa)
    return attention in CHUNKING_ATTENTION and facts.get("model_type") not in NEVER_CHUNKED


def _capability(facts: Facts) -> float:
    found = facts.get("compute_capability", CHUNKS_FROM_CAPABILITY)
    return float(found) if isinstance(found, (int, float)) else CHUNKS_FROM_CAPABILITY
