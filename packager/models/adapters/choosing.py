"""Choice of an adapter's files: its configuration, its one file of weights, its licence."""

from __future__ import annotations

from collections.abc import Mapping

from packager.core.adapters import CONFIG, WEIGHTS
from packager.models.model_card import CARD, MAX_CARD_BYTES
from packager.models.refusals import Incomplete, only_pickle, other_kind
from packager.models.rules import LEGAL, MAX_DOCUMENT_BYTES, PICKLE, ListedModelFile, why_left_out

MODEL_CONFIG = "config.json"
SAVED_TWICE = "tokenizer and chat template of an adapter: engines read the base's"
UNREAD = "no engine reads it of an adapter"


def choose_adapter_files(
    listing: Mapping[str, ListedModelFile],
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the paths that are read and, for each other, why not; raise without the two.

    All of them are packaged but the card.
    """
    kept: list[str] = []
    left_out: dict[str, str] = {}
    for path in sorted(listing):
        why = _why_not(path, listing[path].size)
        if why:
            left_out[path] = why
        else:
            kept.append(path)
    _refuse_halves(listing, left_out)
    return tuple(kept), left_out


def _why_not(path: str, size: int) -> str:
    name = path.lower()
    if path in (CONFIG, WEIGHTS):
        return ""
    if "/" not in path and LEGAL.fullmatch(name) and size <= MAX_DOCUMENT_BYTES:
        return ""
    if path == CARD and size <= MAX_CARD_BYTES:
        return ""
    why = why_left_out(path, size, is_read=True)
    if why:
        return why
    if "/" in path:
        return "below the adapter's own directory"
    if name.endswith(".safetensors"):
        return f"weights beside {WEIGHTS!r}"
    is_text = name.startswith(("tokenizer", "chat_template", "special_tokens", "added_tokens"))
    return SAVED_TWICE if is_text else UNREAD


def _refuse_halves(listing: Mapping[str, ListedModelFile], left_out: Mapping[str, str]) -> None:
    """Raise for files that are not one whole adapter, by their names alone."""
    inner = sorted(path.rpartition("/")[0] for path in listing if path.endswith(f"/{CONFIG}"))
    if CONFIG not in listing:
        if inner:
            raise Incomplete(
                f"the adapter has no {CONFIG!r}",
                hint=f"there is one in {inner[0]!r}: give that directory",
            )
        if MODEL_CONFIG in listing:
            raise other_kind("a model, not an adapter", "give the directory that PEFT wrote")
        raise Incomplete(
            f"the adapter has no {CONFIG!r}",
            hint="give the directory or repository that PEFT's `save_pretrained` wrote",
        )
    if WEIGHTS in listing:
        return
    pickles = [path for path in left_out if PICKLE.fullmatch(path.lower())]
    if pickles:
        raise only_pickle(pickles)
    parts = [path for path in left_out if path.startswith("adapter_model-")]
    hint = "save it again with PEFT, `save_pretrained(DIR)`: engines read one file"
    what = f"its weights are in parts, such as {parts[0]!r}" if parts else "finish the download"
    raise Incomplete(f"the adapter has no {WEIGHTS!r}", hint=hint if parts else what)
