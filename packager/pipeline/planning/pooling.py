"""Plans of models that give vectors or scores: what they need besides, and cannot have."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.model import ModelProfile
from packager.estimate.sizing.device_rules import default_step

_WORDS = {
    "embed": "gives vectors",
    "rerank": "scores texts against a query",
    "classify": "gives scores of labels",
    "reward": "gives rewards",
}


def check_request(facts: Facts, profile: ModelProfile) -> Iterator[Finding]:
    """Refuse what only models that write text can have, and engines without pooling."""
    pooling, request = profile.pooling, facts.request
    if pooling is None:
        if facts.workload.texts:
            message = "the workload counts texts for vectors or scores, and the model writes text"
            hint = "write --workload IN:OUT, tokens of a prompt and of its answer"
            yield Finding("error", "pooling-option", message, hint)
        return
    what = f"the model {_WORDS[pooling.task]}"
    asked = {
        "draft": request.draft,
        "tool_call_parser": request.tool_call_parser,
        "reasoning_parser": request.reasoning_parser,
        "tpot_limit_ms": request.tpot_limit_ms,
        "kv_dtype": None if pooling.is_causal else request.kv_dtype,
        "evaluate": request.evaluate or None,
    }
    for name, value in asked.items():
        if value not in (None, "none", "off", "auto", "skip"):
            message = f"{what}, and writes no text: {name} {value!r} means nothing"
            yield Finding("error", "pooling-option", message, f"leave {name} out")
    traits = facts.container.traits
    if pooling.task not in traits.pools:
        message = f"{what}, which {traits.who or facts.container.engine} does not serve"
        hint = traits.pools_hint or "use --family vllm with a version from 0.10.2 on"
        yield Finding("error", "pooling-engine", message, hint)
    total, longest = request.max_total_tokens or request.max_input_tokens, profile.max_positions
    if total is not None and total > longest:
        message = f"texts of {total} tokens are requested; the model takes {longest}"
        yield Finding("error", "shape-over-positions", message, f"ask for at most {longest}")
    yield from _note(profile)


def _note(profile: ModelProfile) -> Iterator[Finding]:
    pooling = profile.pooling
    assert pooling is not None
    modules = pooling.modules
    if modules is not None and modules.prompts and any(modules.prompts.values()):
        named = ", ".join(sorted(name[:40] for name, text in modules.prompts.items() if text)[:4])
        message = (
            f"the model is trained with prompts before its texts ({named}): engines put none "
            "before what /v1/embeddings gets"
        )
        hint = "put the prompt of 'config_sentence_transformers.json' before each text yourself"
        yield Finding("note", "pooling-prompts", message, hint)


def step_of(
    facts: Facts, profile: ModelProfile, instance: Instance, longest: int
) -> tuple[int | None, tuple[Finding, ...]]:
    """Return the tokens of a step where they must be set: a text is computed in one.

    None where the engine's own do, and for models whose tokens see what came before alone.
    """
    asked = facts.request.max_prefill_tokens
    if profile.pooling is None or profile.pooling.is_causal:
        return asked, ()
    if asked is not None and asked < longest:
        message = f"max_prefill_tokens {asked} is less than a text of {longest} tokens"
        hint = (
            f"each text is computed in one step: raise it to {longest}, or lower max_total_tokens"
        )
        return asked, (Finding("error", "prefill-too-small", message, hint),)
    if asked is None and default_step(instance) < longest:
        return longest, ()
    return asked, ()
