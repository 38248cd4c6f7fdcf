"""Draft models: whole models, smaller than the one they propose for, of the same tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.model import ModelFiles, ModelProfile
from packager.core.techniques import Draft
from packager.core.traits import EngineTraits
from packager.estimate.sizing.memory import served_weight_bytes
from packager.estimate.sizing.precision import check_format
from packager.models.architectures.profile import make_profile, text_config
from packager.models.checkpoints.gate import inspect_quantized
from packager.optimize.drafts.numbers import other_vocabulary

# Files that define the vocabulary; equal bytes are equal tokenizers.
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
OTHER_TOKENIZER = "name a draft of the same model family, or use `--draft ngram`"


def model_draft(draft: Draft, files: ModelFiles) -> Draft:
    """Return the draft with sizes and defaults filled in."""
    own, _ = make_profile(files)
    return replace(
        draft,
        weight_bytes=served_weight_bytes(own),
        kv_bytes_per_token=own.kv_bytes_per_token,
        kv_heads=own.kv_heads,
        attention_heads=own.heads,
        intermediate_size=own.intermediate_size,
        vocab_size=own.vocab_size,
        layout="transformers",
    )


def check_model(
    files: ModelFiles,
    model: ModelFiles,
    profile: ModelProfile,
    instance: Instance,
    traits: EngineTraits,
) -> Iterator[Finding]:
    """Yield findings where a draft model has another vocabulary, is broken or does not pay."""
    own, findings = make_profile(files)
    gate = inspect_quantized(files).findings
    for finding in (*findings, *gate, *check_format(own, instance, traits)):
        yield replace(finding, message=f"draft: {finding.message}")
    if own.vocab_size != profile.vocab_size:
        yield other_vocabulary(own.vocab_size, profile.vocab_size)
    else:
        yield from _check_tokenizers(files, model)
    if own.parameters and profile.parameters and own.parameters >= profile.parameters:
        message = "the draft is not smaller than the model: proposing costs more than it saves"
        yield Finding("warning", "draft-not-smaller", message, "name a smaller model")


def _check_tokenizers(files: ModelFiles, model: ModelFiles) -> Iterator[Finding]:
    """Compare tokenizers of equal size by their special tokens and, if known, their digests."""
    ours, theirs = text_config(files.config), text_config(model.config)
    for key in ("bos_token_id", "eos_token_id"):
        mine, models = _token_ids(ours, key), _token_ids(theirs, key)
        if mine and models and not mine & models:
            message = (
                f"{key} is {sorted(mine)[:4]} in the draft and {sorted(models)[:4]} in the model"
            )
            yield Finding("error", "draft-tokenizer", message, OTHER_TOKENIZER)
            return
    digests, known = _digests(files), _digests(model)
    for name in TOKENIZERS:
        if name in digests and name in known:
            if digests[name] != known[name]:
                message = f"{name!r} of the draft is another file than the model's"
                hint = f"{OTHER_TOKENIZER}, unless you know that the words are the same"
                yield Finding("warning", "draft-tokenizer", message, hint)
            return


def _token_ids(config: Mapping[str, Any], key: str) -> set[int]:
    value = config.get(key)
    return {one for one in (value if isinstance(value, list) else [value]) if type(one) is int}


def _digests(files: ModelFiles) -> Mapping[str, str]:
    return {file.path: file.sha256 for file in files.files if file.sha256}
