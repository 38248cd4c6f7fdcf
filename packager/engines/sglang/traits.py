"""Traits of SGLang, in any container."""

from __future__ import annotations

from dataclasses import replace

from packager.core.traits import Beyond, DraftTraits, EngineTraits
from packager.core.versions import known_since
from packager.engines.plain_modules import plain_modules

# Read in 0.5.5, 0.5.17 and 0.5.23, configs/model_config.py: an error unless
# SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN is set, for every kind of draft that has a config.
WITH_POSITIONS = ("eagle", "eagle3", "dflash", "draft_model")
REFUSES: Beyond = "refuses"
BEYOND = frozenset((name, REFUSES) for kind in WITH_POSITIONS for name in (kind, f"{kind} scaled"))

# As vLLM's, of 0.5.10 to 0.5.23: what models/llama_eagle3.py does not know it leaves out.
NORMS_SINCE = {"norm_before_fc": "0.5.17", "fc_norm": "0.5.12", "norm_output": "0.5.12"}

TRAITS = EngineTraits(
    when_full="more wait in a queue; when the cache is full, the latest is retracted and computed "
    "again",
    drafts=DraftTraits(
        beyond=BEYOND,
        norm_before_residual=False,
        options="speculative-algorithm",
        captures=frozenset({"eagle3"}),
        uncaptured="it has no set_eagle3_layers_to_capture",
    ),
)


def sglang_traits(version: str) -> EngineTraits:
    """Return what holds of every version alike, and what this one reads or builds plain."""
    drafts = replace(TRAITS.drafts, norms=known_since(NORMS_SINCE, version))
    return replace(TRAITS, drafts=drafts, plain_modules=plain_modules("sglang", version))
