"""What proposes tokens: reading the request, and the numbers of the draft's files.

Checks here are those that would make any engine fail or propose rubbish.
What a family or version can serve is the rules' business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.model import ModelFiles, ModelProfile
from packager.core.request import BuildRequest
from packager.core.techniques import Draft, DraftKind
from packager.planning.memory import served_weight_bytes
from packager.planning.profile import KV_ELEMENT_BYTES, make_profile, text_config

AUTO, NONE = "auto", "none"

# Tokens to propose where the request does not say.  LMI's speculative_length is 5, vLLM's
# examples use 3 for EAGLE; n-gram proposals cost nothing, 4 is ours.
DEFAULT_TOKENS: dict[DraftKind, int] = {
    "draft_model": 5,
    "eagle": 3,
    "eagle3": 3,
    "medusa": 0,  # as many as there are heads
    "ngram": 4,
}
MOST_TOKENS = 32  # beyond this no engine gains; a typing error would cost memory

PREFIXES: dict[str, DraftKind] = {"eagle": "eagle", "eagle3": "eagle3", "medusa": "medusa"}
HEAD = re.compile(r"(?:.*\.)?(\d+)\.(\d+)\.(linear\.)?(weight|bias)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRequest:
    """A draft as the user wrote it, taken apart."""

    kind: DraftKind
    reference: str = ""  # where its files are; "" for n-gram
    tokens: int = 0  # written in the draft itself: `ngram:4`


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """The draft with its numbers, or none, and what is to be said."""

    draft: Draft | None
    findings: tuple[Finding, ...] = ()


def parse_draft(text: str | None) -> DraftRequest | Finding | None:
    """Take apart `none`, `ngram[:N]`, `eagle:REF`, `eagle3:REF`, `medusa:REF` or a model.

    `auto` gives None too: which draft it means is looked up before planning.
    """
    if text is None or text in (AUTO, NONE):
        return None
    kind, colon, rest = text.partition(":")
    if kind == "ngram":
        if not colon:
            return DraftRequest(kind="ngram")
        if rest.isascii() and rest.isdecimal() and 0 < int(rest[:9]) <= MOST_TOKENS:
            return DraftRequest(kind="ngram", tokens=int(rest))
        hint = f"write `ngram` or `ngram:N` with N from 1 to {MOST_TOKENS}"
        return Finding("error", "draft-unreadable", f"draft {text[:60]!r} is not a number", hint)
    if colon and kind in PREFIXES:
        if rest:
            return DraftRequest(kind=PREFIXES[kind], reference=rest)
        hint = f"write `{kind}:DIR` or `{kind}:org/name`"
        return Finding("error", "draft-unreadable", f"draft {text[:60]!r} names no model", hint)
    if colon and "://" not in text:
        hint = "write a model, `eagle:REF`, `eagle3:REF`, `medusa:REF`, `ngram`, or `none`"
        message = f"draft {text[:60]!r} is of no known kind"
        return Finding("error", "draft-unreadable", message, hint)
    return DraftRequest(kind="draft_model", reference=text)


def choose_draft(facts: Facts, profile: ModelProfile) -> DraftChoice:
    """Give the draft that was asked for its numbers, and hold it against the model."""
    request = facts.request
    asked = parse_draft(facts.draft_reference or request.draft)
    if isinstance(asked, Finding):
        return DraftChoice(None, (asked,))
    if asked is None:
        return DraftChoice(None, _without_draft(request))
    tokens, findings = _tokens(request, asked)
    if findings:
        return DraftChoice(None, findings)
    draft = Draft(kind=asked.kind, reference=asked.reference, speculative_tokens=tokens)
    if asked.kind == "ngram":
        return DraftChoice(draft)
    if facts.draft is None:
        message = f"the draft {asked.reference[:60]!r} was not looked up: its size is not known"
        hint = "name a directory or a hub id that can be read, or `--draft none`"
        return DraftChoice(None, (Finding("error", "draft-unknown", message, hint),))
    if asked.kind == "draft_model":
        return _with_model(draft, facts.draft, profile)
    if asked.kind == "medusa":
        return _with_medusa(draft, facts.draft, profile)
    return _with_eagle(draft, facts.draft, profile)


def _without_draft(request: BuildRequest) -> tuple[Finding, ...]:
    if request.speculative_tokens is not None:
        message = f"speculative_tokens {request.speculative_tokens} is asked for without a draft"
        hint = "add a draft, such as `--draft ngram`, or leave speculative_tokens out"
        return (Finding("error", "draft-missing", message, hint),)
    if request.draft == AUTO:
        message = "no draft is known for this model; it is planned without one"
        hint = "name one with --draft, or use `--draft ngram`, which fits every model"
        return (Finding("note", "draft-none-known", message, hint),)
    return ()


def _tokens(request: BuildRequest, asked: DraftRequest) -> tuple[int, tuple[Finding, ...]]:
    given = request.speculative_tokens
    if given and asked.tokens and given != asked.tokens:
        message = f"the draft says {asked.tokens} tokens, speculative_tokens says {given}"
        return 0, (Finding("error", "draft-contradiction", message, "say it once"),)
    tokens = given or asked.tokens or DEFAULT_TOKENS[asked.kind]
    if tokens > MOST_TOKENS:
        message = f"speculative_tokens {tokens} is more than any draft gets right"
        hint = f"ask for at most {MOST_TOKENS}; 3 to 5 is usual"
        return 0, (Finding("error", "draft-too-long", message, hint),)
    return tokens, ()


def _with_model(draft: Draft, files: ModelFiles, profile: ModelProfile) -> DraftChoice:
    own, findings = make_profile(files)
    found = [replace(finding, message=f"draft: {finding.message}") for finding in findings]
    if own.vocab_size != profile.vocab_size:
        found.append(_vocabulary(own.vocab_size, profile.vocab_size))
    if own.parameters and profile.parameters and own.parameters >= profile.parameters:
        message = "the draft is not smaller than the model: proposing costs more than it saves"
        found.append(Finding("warning", "draft-not-smaller", message, "name a smaller model"))
    complete = replace(
        draft,
        weight_bytes=served_weight_bytes(own),
        kv_bytes_per_token=own.kv_bytes_per_token,
        kv_heads=own.kv_heads,
    )
    return DraftChoice(complete, tuple(found))


def _with_eagle(draft: Draft, files: ModelFiles, profile: ModelProfile) -> DraftChoice:
    """Read an EAGLE head: one decoder layer or few, in the format of EAGLE or of speculators."""
    config = _eagle_config(files.config)
    hidden_size, heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    if not hidden_size or not heads:
        message = "the draft's config.json does not state hidden_size and num_attention_heads"
        hint = "use the config.json that was published with the head"
        return DraftChoice(None, (Finding("error", "draft-config", message, hint),))
    findings = []
    # EAGLE-3 keeps a smaller vocabulary of its own beside the model's.
    vocabulary = _number(config, "vocab_size")
    if hidden_size != profile.hidden_size and draft.kind == "eagle":
        findings.append(_wrong_size(hidden_size, profile.hidden_size))
    if vocabulary and vocabulary != profile.vocab_size:
        findings.append(_vocabulary(vocabulary, profile.vocab_size))
    kv_heads = _number(config, "num_key_value_heads") or heads
    head_dim = _number(config, "head_dim") or hidden_size // heads
    layers = _number(config, "num_hidden_layers") or 1
    complete = replace(
        draft,
        weight_bytes=files.weight_bytes,
        kv_bytes_per_token=2 * layers * kv_heads * head_dim * KV_ELEMENT_BYTES,
        kv_heads=kv_heads,
    )
    return DraftChoice(complete, tuple(findings))


def _with_medusa(draft: Draft, files: ModelFiles, profile: ModelProfile) -> DraftChoice:
    """Read Medusa heads. Those of version 1 bring a vocabulary each, whole on every device."""
    heads: dict[int, int] = {}
    findings: list[Finding] = []
    has_vocabulary = False
    layers = 0
    for tensor in files.tensors:
        match = HEAD.fullmatch(tensor.name)
        if match is None:
            continue
        heads[int(match[1][:6])] = heads.get(int(match[1][:6]), 0) + tensor.size
        if match[4] == "bias":
            continue
        if match[3]:
            layers = max(layers, int(match[2][:6]) + 1)
            expected = (profile.hidden_size, profile.hidden_size)
        else:
            has_vocabulary = True
            expected = (profile.vocab_size, profile.hidden_size)
        if tensor.shape != expected and not findings:
            message = (
                f"head {match[1][:6]} has the shape {list(tensor.shape)}; "
                f"the model needs {list(expected)}"
            )
            hint = "name the heads that were trained for this model"
            findings.append(Finding("error", "draft-shape", message, hint))
    if not heads or sorted(heads) != list(range(len(heads))):
        message = "the draft holds no complete Medusa heads: tensors `0.0.linear.weight` and on"
        hint = "name the directory with medusa_lm_head.safetensors"
        return DraftChoice(None, (Finding("error", "draft-heads", message, hint),))
    tokens = draft.speculative_tokens or len(heads)
    if tokens > len(heads):
        message = f"speculative_tokens {tokens} is asked for; the draft has {len(heads)} heads"
        hint = f"ask for at most {len(heads)}"
        findings.append(Finding("error", "draft-heads", message, hint))
    complete = replace(
        draft,
        speculative_tokens=tokens,
        weight_bytes=sum(heads[number] for number in range(min(tokens, len(heads)))),
        replicated=has_vocabulary,
        version="v1" if has_vocabulary else "v2",
        heads=len(heads),
        head_layers=layers,
    )
    return DraftChoice(complete, tuple(findings))


def _eagle_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = config.get("transformer_layer_config")  # speculators
    return nested if isinstance(nested, Mapping) else text_config(config)


def _number(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if type(value) is int and 0 < value < 2**31 else 0


def _vocabulary(own: int, models: int) -> Finding:
    message = f"the draft's vocabulary has {own} tokens, the model's {models}"
    hint = "a draft must share the model's tokenizer: name another, or `--draft ngram`"
    return Finding("error", "draft-vocabulary", message, hint)


def _wrong_size(own: int, models: int) -> Finding:
    message = f"the draft reads hidden states of {own}, the model gives {models}"
    hint = "name the head that was trained for this model"
    return Finding("error", "draft-shape", message, hint)
