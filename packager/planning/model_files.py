"""Checks of a model's files: what stays out of the image, and what the engine does not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packager.core.model import ModelFiles
from packager.core.tokenizer_files import TEKKEN, TOKENIZERS
from packager.core.traits import EngineTraits
from packager.core.units import counted
from packager.findings import FILES_LEFT_OUT, Finding


def check_left_out(model: ModelFiles) -> Iterator[Finding]:
    """Report which files stay out of the image, by reason; hidden ones are no part of a model."""
    by_reason: dict[str, list[str]] = {}
    for path, reason in model.left_out.items():
        if reason != "hidden":
            by_reason.setdefault(reason, []).append(path)
    for reason, paths in by_reason.items():
        many = counted(len(paths), "file")
        message = f"{many} of the model left out ({reason}): {', '.join(paths)}"
        yield Finding("note", FILES_LEFT_OUT, message)


def check_tokenizer(
    model: ModelFiles, traits: EngineTraits, options: Mapping[str, str]
) -> Iterator[Finding]:
    """Refuse a tokenizer that the engine does not read, or not as it is asked to."""
    names = {file.path for file in model.files}
    if TEKKEN not in names or any(files <= names - {TEKKEN} for files in TOKENIZERS):
        return
    option, _, value = traits.tekken_option.partition("=")
    if not option:
        who = traits.who or "the engine"
        message = f"{TEKKEN!r} is the model's only tokenizer, and {who} does not read it"
        hint = "save 'tokenizer.json' beside it, or plan for vLLM: --family vllm"
        yield Finding("error", "tokenizer-unread", message, hint)
    elif {name.replace("_", "-"): given for name, given in options.items()}.get(option) != value:
        message = f"{TEKKEN!r} is the model's only tokenizer, which has to be asked for"
        yield Finding("error", "tokenizer-unread", message, f"--engine-option {option}={value}")
