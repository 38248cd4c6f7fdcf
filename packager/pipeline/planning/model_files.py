"""Checks of a model's files: those left out of the image, and those the engine cannot read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from packager.core.facts import Facts
from packager.core.findings import FILES_LEFT_OUT, Finding
from packager.core.model import ModelFiles
from packager.core.request import BuildRequest
from packager.core.tokenizer_files import TEKKEN, TOKENIZERS
from packager.core.traits import EngineTraits
from packager.core.units import counted
from packager.engines.config_keys import check_config_keys
from packager.engines.effects import engine_named
from packager.engines.request_options import spelled

FORMAT_UNREAD = "format-unread"
_SAME = "get 'config.json' and 'model-*.safetensors' of the same repository"


def check_files(facts: Facts) -> Iterator[Finding]:
    """Check what is left out, and what the engine's version reads of the rest."""
    model, container = facts.model, facts.container
    yield from check_left_out(model)
    yield from check_files_read(model, container.traits, facts.request)
    options = engine_named(container, facts.request.engine_options)
    yield from check_config_keys(container, model, options)


def check_left_out(model: ModelFiles) -> Iterator[Finding]:
    """Report which files stay out of the image, by reason; hidden files are not listed."""
    by_reason: dict[str, list[str]] = {}
    for path, reason in model.left_out.items():
        if reason != "hidden":
            by_reason.setdefault(reason, []).append(path)
    for reason, paths in by_reason.items():
        many = counted(len(paths), "file")
        message = f"{many} of the model left out ({reason}): {', '.join(paths)}"
        yield Finding("note", FILES_LEFT_OUT, message)


def format_options(
    model: ModelFiles, traits: EngineTraits, options: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return the engine options that the model's files need, without those already requested."""
    asked = {name for name, _ in spelled(options)}
    return tuple(one for one in _needed(model, traits) or () if one[0] not in asked)


def check_files_read(
    model: ModelFiles, traits: EngineTraits, request: BuildRequest
) -> Iterator[Finding]:
    """Refuse files that the engine cannot read as requested; note what they need."""
    needed = _needed(model, traits)
    if needed is None:
        return
    who, what = traits.who or "the engine", _what(model)
    if not needed:
        message = f"{what}, which {who} does not read"
        yield Finding("error", FORMAT_UNREAD, message, _instead(model))
        return
    asked = dict(spelled(request.engine_options))
    for name, value in needed:
        if asked.get(name, value) != value:
            message = f"{what}, which {who} reads with {name} {value}, not {asked[name][:60]!r}"
            yield Finding("error", FORMAT_UNREAD, message, "leave the option out")
    if not _is_native(model):
        return
    yield Finding("note", "format-options", f"{what}: {who} is told {_listed(needed)}")
    for option, chosen in (
        ("--quantize", request.quantizing),
        ("--load-format", request.load_format),
    ):
        if chosen not in (None, "none"):
            message = (
                f"{option} {chosen} is for files of transformers, and the model is in Mistral's"
            )
            yield Finding("error", FORMAT_UNREAD, message, f"{_SAME}, or leave {option} out")


def _needed(model: ModelFiles, traits: EngineTraits) -> tuple[tuple[str, str], ...] | None:
    """Return options that the files need; () where the engine reads them not, None without any."""
    if _is_native(model):
        return traits.native_options
    names = {file.path for file in model.files}
    if TEKKEN not in names or any(files <= names - {TEKKEN} for files in TOKENIZERS):
        return None
    return traits.tekken_options


def _is_native(model: ModelFiles) -> bool:
    return model.file_format == "mistral"


def _what(model: ModelFiles) -> str:
    if _is_native(model):
        return "the model is in Mistral's own format ('params.json' with consolidated weights)"
    return f"{TEKKEN!r} is the model's only tokenizer"


def _instead(model: ModelFiles) -> str:
    files = _SAME if _is_native(model) else "save 'tokenizer.json' beside it"
    return f"{files}, or plan for vLLM: --family vllm"


def _listed(options: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options)
