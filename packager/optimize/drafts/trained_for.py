"""Compares the model named in a head's config.json with the planned one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packager.core.findings import Finding
from packager.core.model import ModelFiles, ModelProfile
from packager.optimize.drafts.numbers import TRAINED_FOR, mapping

NAMED_IN = ("base_model_name_or_path", "base_model", "target_model_name_or_path")


def check_trained_for(
    config: Mapping[str, Any], model: ModelFiles, profile: ModelProfile
) -> Iterator[Finding]:
    """Refuse a head for another architecture; ask about one for another model of the same.

    Quantized copies and fine-tunes have other names and fit, so a name alone is only a warning.
    """
    verifier = mapping(mapping(config.get("speculators_config")).get("verifier"))
    names = verifier.get("architectures")
    stated = [str(name) for name in names] if isinstance(names, list) else []
    if stated and profile.architecture not in stated:
        message = (
            f"the draft was trained for {stated[0][:60]}, and the model is {profile.architecture}"
        )
        yield Finding("error", "draft-architecture", message, TRAINED_FOR)
        return
    named = verifier.get("name_or_path") or next(
        (config[key] for key in NAMED_IN if config.get(key)), ""
    )
    if not isinstance(named, str) or model.ref.source != "hub" or named.count("/") != 1:
        return  # a path or a local directory does not identify a model
    if not _alike(named, model.ref.name):
        message = f"the draft was trained for {named[:80]!r}; the model is {model.ref.name[:80]!r}"
        hint = "expect fewer accepted tokens, unless one is a copy or a fine-tune of the other"
        yield Finding("warning", "draft-other-model", message, hint)


def _alike(one: str, other: str) -> bool:
    """Return whether one base name is a prefix of the other: `X` and `X-AWQ` are alike."""
    first, second = (name.rpartition("/")[2].lower() for name in (one, other))
    return first.startswith(second) or second.startswith(first)
