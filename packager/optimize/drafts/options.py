"""Drafts that are requested by the engine's own options instead of `--draft`.

The engine gets such options unchanged. An MTP head in them is still checked against the headers,
and its memory counted: otherwise the engine would refuse it after minutes, or accept none of its
proposals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packager.core.facts import ContainerFacts, Facts
from packager.core.findings import Finding
from packager.core.model import ModelProfile
from packager.core.serving import MODEL_DIR, MOUNTED_MODEL_DIR
from packager.core.techniques import Draft
from packager.engines.request_options import speculation_of, spelled
from packager.optimize.drafts.mtp import check_mtp, mtp_draft
from packager.optimize.drafts.mtp_engines import is_mtp_method
from packager.optimize.drafts.request import MOST_TOKENS
from packager.optimize.drafts.suffix import check_suffix

ALGORITHM = "speculative-algorithm"
STEPS, PATH = "speculative-num-steps", "speculative-draft-model-path"
OWN_HEAD = ("NEXTN", "EAGLE")  # SGLang's algorithms that run an MTP head


def check_options(
    facts: Facts, profile: ModelProfile, options: Mapping[str, str] | None, base: str
) -> tuple[Draft | None, tuple[Finding, ...]]:
    """Check draft settings in engine options; the returned draft only counts memory."""
    config = speculation_of(options)
    if config is not None and config.get("method") == "suffix":
        return None, tuple(check_suffix(facts.container, base))
    found = _of_vllm(config) if config is not None else _of_sglang(facts.container, options)
    if found is None:
        return None, ()
    name, tokens = found
    if type(tokens) is not int or not 0 < tokens <= MOST_TOKENS:
        message = f"{name} is {repr(tokens)[:40]}, not a number of tokens from 1 to {MOST_TOKENS}"
        hint = "say how many tokens are proposed at a time, or use `--draft mtp`"
        return None, (Finding("error", "value-refused", message, hint),)
    return _counted(facts, profile, tokens)


def _counted(
    facts: Facts, profile: ModelProfile, tokens: int
) -> tuple[Draft | None, tuple[Finding, ...]]:
    model, container = facts.model, facts.container
    errors = tuple(check_mtp(model, profile, container, tokens))
    draft = Draft(kind="mtp", speculative_tokens=tokens)
    return (None if errors else mtp_draft(draft, model, container, profile)), errors


def _of_vllm(config: Mapping[str, Any]) -> tuple[str, Any] | None:
    method = config.get("method")
    if not isinstance(method, str) or not is_mtp_method(method) or config.get("model") is not None:
        return None
    return "num_speculative_tokens of speculative-config", config.get("num_speculative_tokens")


def _of_sglang(
    container: ContainerFacts, options: Mapping[str, str] | None
) -> tuple[str, Any] | None:
    given = dict(spelled(options))
    own = given.get(PATH, MODEL_DIR) in (MODEL_DIR, MOUNTED_MODEL_DIR)
    is_read = container.traits.drafts.options == ALGORITHM
    if not is_read or given.get(ALGORITHM) not in OWN_HEAD or not own:
        return None
    steps = given.get(STEPS, "1")
    is_number = steps.isascii() and steps.isdecimal() and len(steps) < 10
    return STEPS, int(steps) if is_number else steps
