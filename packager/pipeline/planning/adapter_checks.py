"""What an engine's version cannot serve of an adapter, whatever is rewritten."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.adapters import AdaptedModule, Adapter
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.traits import AdapterTraits
from packager.models.adapters.fitting import AdapterFit, head_modules, is_expert, is_head
from packager.models.architectures.profile import architecture_of

MERGE = "merge it into the base with `--merge-adapter`, or choose a family that serves adapters"


def check_adapter(
    adapter: Adapter, fit: AdapterFit, facts: Facts, traits: AdapterTraits, who: str
) -> Iterator[Finding]:
    """Find what this engine's version reads otherwise than PEFT, and cannot be rewritten."""
    named, reasons = f"adapter {adapter.name!r}", dict(traits.refused)
    others = [one for one in adapter.others if one.name not in fit.copies]
    for flag in adapter.flags:
        if flag == "bias" and not others:
            continue  # there were none to train
        if flag in reasons:
            message = f"{named} has {flag!r} set: {reasons[flag]}"
            yield Finding("error", "adapter-field", message, _otherwise(flag))
        else:
            message = f"{named} has a field {flag[:60]!r} that packager does not know"
            hint = "remove it from adapter_config.json where it only served training"
            yield Finding("error", "adapter-field", message, hint)
    if others and not adapter.flags:
        message = f"{named} has tensors that are no half of a pair, such as {others[0].name!r}"
        yield Finding("error", "adapter-field", message, MERGE)
    yield from _check_modules(adapter, facts, traits, who)


def _check_modules(
    adapter: Adapter, facts: Facts, traits: AdapterTraits, who: str
) -> Iterator[Finding]:
    architecture, named = architecture_of(facts.model.config), f"adapter {adapter.name!r}"
    heads = head_modules(adapter)
    if heads and (
        "embeddings" not in traits.honours
        or (traits.heads is not None and architecture not in traits.heads)
    ):
        message = f"{named} adapts {heads[0]}, which {who} leaves as it is in {architecture}"
        yield Finding("error", "adapter-module", message, MERGE)
    elif any(is_head(one) for one in adapter.modules):
        yield from _check_head(adapter, facts, traits, who)
    stacked = [one for one in adapter.modules if one.form == "experts"]
    single = [one for one in adapter.modules if is_expert(one) and one.form != "experts"]
    if (stacked or single) and "experts" not in traits.honours:
        message = f"{named} adapts experts, which {who} does not"
        yield Finding("error", "adapter-module", message, MERGE)
    elif stacked and architecture not in traits.stacked:
        message = (
            f"{named} adapts all experts in one tensor, which {who} does not read of {architecture}"
        )
        yield Finding("error", "adapter-module", message, MERGE)
    elif single and architecture in traits.stacked:
        message = (
            f"{named} adapts experts one by one; {who} reads them of {architecture} in one tensor"
        )
        yield Finding("error", "adapter-module", message, MERGE)
    fused = [one for one in adapter.modules if f"{architecture}.{one.leaf}" in traits.split]
    unknown = [one for one in adapter.modules if _is_unknown(one, traits)]
    if found := (fused or unknown):
        message = f"{named} adapts {found[0].path}, which {who} has no slots for in {architecture}"
        yield Finding("error", "adapter-module", message, MERGE)
    yield from _check_neighbours(adapter, traits.needs, who)


def _is_unknown(module: AdaptedModule, traits: AdapterTraits) -> bool:
    """Return whether an engine that knows modules by their names knows not this one."""
    return bool(traits.modules) and not is_expert(module) and module.leaf not in traits.modules


def _check_head(
    adapter: Adapter, facts: Facts, traits: AdapterTraits, who: str
) -> Iterator[Finding]:
    vocabulary = next(one.outputs for one in adapter.modules if is_head(one))
    if facts.model.config.get("tie_word_embeddings") is True:
        message = f"adapter {adapter.name!r} adapts the head, which is the embedding in this base"
        yield Finding("error", "adapter-module", message, MERGE)
    elif traits.most_vocabulary and vocabulary > traits.most_vocabulary:
        message = (
            f"{who} adapts heads of {traits.most_vocabulary:,} tokens at most, not {vocabulary:,}"
        )
        yield Finding("error", "adapter-module", message, MERGE)


def _check_neighbours(
    adapter: Adapter, needs: tuple[tuple[str, ...], ...], who: str
) -> Iterator[Finding]:
    """Refuse a module whose neighbour the engine needs adapted, too."""
    paths = {module.path for module in adapter.modules}
    for leaf, needed in needs:
        alone = (
            path
            for path in sorted(paths)
            if path.rpartition(".")[2] == leaf and f"{path.removesuffix(leaf)}{needed}" not in paths
        )
        if found := next(alone, ""):
            message = f"adapter {adapter.name!r} adapts {found} without {needed}, which {who} needs"
            hint = "use a family with vLLM, or merge it"
            yield Finding("error", "adapter-module", message, hint)
            return


def _otherwise(flag: str) -> str:
    if flag == "init_lora_weights":
        return "save it again as LoRA: PEFT's `path_initial_model_for_weight_conversion`"
    return MERGE
