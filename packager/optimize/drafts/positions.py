"""Compares the longest position that a head supports with the planned length.

A head's rotary embedding is a table of its own, as long as its config.json says.  What engines do
beyond its end is theirs: `DraftTraits.beyond` has it by version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packager.core.engine_rows import engine_name
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.traits import Beyond
from packager.models.architectures.profile import text_config
from packager.optimize.drafts.numbers import head_config, number, rope_of

# Of a config.json that states none: the defaults of transformers' classes.
DEFAULTS = {"llama": 2048, "qwen3": 32768, "qwen2": 32768}
STRETCHED = frozenset({"linear", "dynamic"})  # types whose table is `factor` times as long
YARN = frozenset({"yarn", "deepseek_yarn"})  # `factor` times the original model's length
# Types of which a longer table is the same one, with more rows.
ROWS_ALONE = frozenset({"default", "linear", "llama3", "ntk", "proportional"})
WITHOUT = frozenset({"medusa", "mtp"})  # kinds without positions of their own, or the model's
WORDS: Mapping[Beyond, str] = {
    "reads-past": "reads past the end of the draft's rotary table there, which ends the server or "
    "ruins what is drafted",
    "skips": "drafts nothing beyond them",
    "limits": "limits the server to them",
    "refuses": "refuses to start with such a draft",
}


def check_positions(plan: Plan, files: ModelFiles | None) -> Iterator[Finding]:
    """Find a draft that is made for shorter sequences than the plan has."""
    draft, container = plan.draft, plan.container
    if draft is None or files is None or draft.kind in WITHOUT or container.kind == "neuron":
        return
    config = head_config(files.config)
    kind = str(rope_of(config).get("rope_type", "default"))
    named = draft.kind if kind in ROWS_ALONE else f"{draft.kind} scaled"
    does = dict(container.traits.drafts.beyond).get(named)
    longest = table_length(config, as_stated=does in ("limits", "refuses"))
    total = plan.shape.max_total_tokens
    if does is None or not longest or longest >= total:
        return
    stated = (
        "" if "max_position_embeddings" in text_config(config) else " (config.json states none)"
    )
    message = (
        f"the draft has {longest} positions{stated} and the plan {total} tokens for a request: "
        f"{container.traits.who or container.engine} {WORDS[does]}"
    )
    hint = f"use --max-total-tokens {longest}, or a head that was trained for longer sequences"
    if does == "reads-past" and container.traits.drafts.lengthened_since:
        since = container.traits.drafts.lengthened_since
        hint += (
            f"; {engine_name(container.engine)} from {since} on makes the table longer by itself"
        )
    yield Finding("warning" if does == "skips" else "error", "draft-positions", message, hint)


def table_length(config: Mapping[str, Any], *, as_stated: bool = False) -> int:
    """Return how many rows the rotary table of a draft has; 0 where that is not known.

    `as_stated`: how long its sequences may be by the engines' own rule, which leaves YaRN out.
    """
    numbers, rope = text_config(config), rope_of(config)
    kind, factor = rope.get("rope_type", "default"), rope.get("factor")
    length = number(numbers, "max_position_embeddings")
    length = length or DEFAULTS.get(str(numbers.get("model_type")), 0)
    if not isinstance(factor, int | float) or not 0 < factor < 1e6:
        return length
    if kind in YARN and not as_stated:
        original = number(rope, "original_max_position_embeddings")
        return int(factor * original) if original else length
    return int(factor * length) if kind in STRETCHED else length
