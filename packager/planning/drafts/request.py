"""A draft as the user wrote it, and how many tokens it is to propose."""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.findings import Finding
from packager.core.request import BuildRequest
from packager.core.techniques import DraftKind

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRequest:
    """A draft as the user wrote it, taken apart."""

    kind: DraftKind
    reference: str = ""  # where its files are; "" for n-gram
    tokens: int = 0  # written in the draft itself: `ngram:4`


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


def check_absence(request: BuildRequest, *, looked_up: bool) -> tuple[Finding, ...]:
    """Say what a request without a draft asks of one; `looked_up`: the reason was said."""
    if request.speculative_tokens is not None:
        message = f"speculative_tokens {request.speculative_tokens} is asked for without a draft"
        hint = "add a draft, such as `--draft ngram`, or leave speculative_tokens out"
        return (Finding("error", "draft-missing", message, hint),)
    if request.draft == AUTO and not looked_up:
        message = "no draft is known for this model; it is planned without one"
        hint = "name one with --draft, or use `--draft ngram`, which fits every model"
        return (Finding("note", "draft-none-known", message, hint),)
    return ()


def count_tokens(request: BuildRequest, asked: DraftRequest) -> tuple[int, tuple[Finding, ...]]:
    """Give the tokens to propose; 0 for as many as there are heads."""
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
