"""A draft as the user wrote it, and how many tokens it is to propose."""

from __future__ import annotations

import difflib

from packager.core.findings import Finding
from packager.core.techniques import DraftKind, DraftRequest

AUTO, NONE = "auto", "none"

# Default number of tokens to propose.  LMI's speculative_length is 5, vLLM's examples use 3 for
# EAGLE; n-gram proposals cost nothing, 4 is ours.
DEFAULT_TOKENS: dict[DraftKind, int] = {
    "draft_model": 5,
    "eagle": 3,
    "eagle3": 3,
    "medusa": 0,  # as many as there are heads
    "peagle": 0,  # as many as the head was trained for
    "dflash": 0,  # a block of the head, without the token that the model gives
    "mtp": 0,  # as many as there are layers
    "ngram": 4,
    "ngram_gpu": 4,
    "suffix": 24,  # at most: vLLM's suffix_decoding_max_tree_depth; each step proposes its own
}
MOST_TOKENS = 32  # beyond this no engine gains; a typing error would cost memory

PREFIXES: dict[str, DraftKind] = {
    "eagle": "eagle",
    "eagle3": "eagle3",
    "peagle": "peagle",
    "dflash": "dflash",
    "medusa": "medusa",
}
COUNTED: dict[str, DraftKind] = {
    "mtp": "mtp",
    "ngram": "ngram",
    "ngram_gpu": "ngram_gpu",
    "suffix": "suffix",
}
WRITTEN = (
    "a model, `mtp`, `ngram`, `ngram_gpu` or `suffix` (each also with `:N`), `mtp:REF`, "
    "`eagle:REF`, `eagle3:REF`, `peagle:REF`, `dflash:REF`, `medusa:REF`, `auto`, or `none`"
)


def parse_draft(text: str | None) -> DraftRequest | Finding | None:
    """Parse `none`, `mtp[:N]`, `ngram[:N]`, `eagle3:REF` and the like, or a model.

    `auto` returns None too: its draft is looked up before planning.
    """
    if text is None or text in (AUTO, NONE):
        return None
    kind, colon, rest = text.partition(":")
    if kind in COUNTED:
        if not colon:
            return DraftRequest(kind=COUNTED[kind])
        is_number = rest.isascii() and rest.isdecimal() and len(rest) < 10
        if is_number and 0 < int(rest) <= MOST_TOKENS:
            return DraftRequest(kind=COUNTED[kind], tokens=int(rest))
        if kind == "mtp" and "/" in rest:
            return DraftRequest(kind="mtp", reference=rest)
        hint = f"write `{kind}` or `{kind}:N` with N from 1 to {MOST_TOKENS}"
        return Finding("error", "draft-unreadable", f"draft {text[:60]!r} is not a number", hint)
    if colon and kind in PREFIXES:
        if rest:
            return DraftRequest(kind=PREFIXES[kind], reference=rest)
        hint = f"write `{kind}:DIR` or `{kind}:org/name`"
        return Finding("error", "draft-unreadable", f"draft {text[:60]!r} names no model", hint)
    if colon and "://" not in text:
        meant = nearest_kind(kind)
        named = meant in PREFIXES or meant in COUNTED
        hint = f"did you mean `{meant}:{rest[:60]}`? " if named else ""
        message = f"draft {text[:60]!r} is of no known kind"
        return Finding("error", "draft-unreadable", message, f"{hint}write {WRITTEN}")
    return DraftRequest(kind="draft_model", reference=text)


def spell_draft(asked: DraftRequest, reference: str) -> str:
    """Write a draft with this reference to its files, as a request would."""
    return reference if asked.kind == "draft_model" else f"{asked.kind}:{reference}"


def spelled_kind(text: str) -> str:
    """Return how a misspelled draft is most likely to be written; "" when it is like none."""
    meant = nearest_kind(text)
    return f"{meant}:REF" if meant in PREFIXES else meant


def nearest_kind(text: str) -> str:
    """Return the nearest kind to a misspelled draft; "" when none is similar."""
    spelled = text.lower().replace("-", "_").removesuffix("s")
    known = (*COUNTED, *PREFIXES, AUTO, NONE)
    found = difflib.get_close_matches(spelled, known, n=1, cutoff=0.66)
    return found[0] if found else ""


def check_absence(tokens: int | None, *, unknown: bool) -> tuple[Finding, ...]:
    """Return findings of a plan without a draft, where `tokens` were requested.

    `unknown`: the catalog was searched for a draft, and has none.
    """
    if tokens is not None:
        message = f"speculative_tokens {tokens} is requested without a draft"
        hint = "add a draft, such as `--draft ngram`, or leave speculative_tokens out"
        return (Finding("error", "draft-missing", message, hint),)
    if unknown:
        message = "no draft is known for this model; it is planned without one"
        hint = "name one with --draft, or use `--draft ngram`, which fits every model"
        return (Finding("note", "draft-none-known", message, hint),)
    return ()


def count_tokens(given: int | None, asked: DraftRequest) -> tuple[int, tuple[Finding, ...]]:
    """Return the number of speculative tokens; 0 means one per head."""
    if given and asked.tokens is not None and given != asked.tokens:
        message = f"the draft says {asked.tokens} tokens, speculative_tokens says {given}"
        return 0, (Finding("error", "draft-contradiction", message, "say it once"),)
    tokens = given or asked.tokens or DEFAULT_TOKENS[asked.kind]
    if tokens > MOST_TOKENS:
        message = f"speculative_tokens {tokens} is more than any draft gets right"
        hint = f"ask for at most {MOST_TOKENS}; 3 to 5 is usual"
        return 0, (Finding("error", "draft-too-long", message, hint),)
    return tokens, ()
