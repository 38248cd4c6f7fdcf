"""Tokens of a text, counted with a model's own tokenizer.json.

The only module that imports the tokenizers library, which is an extra.  A tokenizer.json is
untrusted: its size is limited, and so is the factor by which it lengthens a text.  The library is
written in Rust; its panics are not `Exception`s, and are caught, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from artifact_cache.distribution import install_command
from packager.core.documents import shorten
from packager.core.errors import ModelRefused, NotFound, UsageError
from packager.core.files.pipes import open_waiting
from packager.core.units import MIB, decimal

TOKENIZER = "tokenizer.json"
MAX_TOKENIZER_BYTES = 128 * MIB  # the largest released ones have some 35 MB
MAX_TEXT = 64 * MIB  # characters of one text
MAX_GROWTH = 1000  # times that a normalizer's replacements may lengthen a text

_Result = TypeVar("_Result")


class TokenizerFailed(Exception):
    """A text that cannot be encoded; the reason does not quote it."""


class TokenCounter(Protocol):
    """Counts the tokens of a text, without those that a server puts around it."""

    def count(self, text: str) -> int:
        """Return how many tokens the text has; raise `TokenizerFailed`."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """Return the numbers of the tokens; raise `TokenizerFailed`."""
        ...


def open_tokenizer(reference: str | Path) -> TokenCounter:
    """Return the tokenizer of a model's directory, or of a tokenizer.json.

    Raise `UsageError` where the tokenizers library is missing, `NotFound` where the file is, and
    `ModelRefused` where it cannot be used.
    """
    path = Path(reference)
    try:
        if path.is_dir():
            path = path / TOKENIZER
        size = path.stat().st_size
        if size > MAX_TOKENIZER_BYTES:
            raise _refused(
                str(path), f"it has {decimal(size)}, over {decimal(MAX_TOKENIZER_BYTES)}"
            )
        with open_waiting(path) as file:
            data = file.read(MAX_TOKENIZER_BYTES + 1)
    except OSError as error:
        raise NotFound(
            f"no tokenizer at {shorten(str(path), 200)}: {error.strerror}",
            hint=f"name a model's directory with its {TOKENIZER}, or leave it out: "
            "servers count tokens themselves",
        ) from error
    return parse_tokenizer(data, str(path))


def parse_tokenizer(data: bytes, source: str) -> TokenCounter:
    """Return the tokenizer of a tokenizer.json's bytes; `source` names them in errors."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise UsageError(
            "counting tokens here needs the tokenizers library",
            hint=f"{install_command('tokenizers', 'bench')}, or let the server count",
        ) from error
    if len(data) > MAX_TOKENIZER_BYTES:
        raise _refused(source, f"it is larger than {decimal(MAX_TOKENIZER_BYTES)}")
    try:
        tokenizer = _called(lambda: Tokenizer.from_buffer(data))
        _called(tokenizer.no_truncation)  # a file may say that every text is cut or filled
        _called(tokenizer.no_padding)
        growth = _growth(tokenizer.normalizer)
    except TokenizerFailed as error:
        raise _refused(source, str(error)) from error
    if growth > MAX_GROWTH:
        raise _refused(source, f"it makes texts up to {min(growth, 10**9):,} times as long")
    return _LibraryCounter(tokenizer)


class _LibraryCounter:
    """A tokenizer of the tokenizers library."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def encode(self, text: str) -> Sequence[int]:
        if len(text) > MAX_TEXT:
            raise TokenizerFailed(f"a text of {len(text):,} characters is too long")
        found = _called(lambda: self._tokenizer.encode(text, add_special_tokens=False))
        ids: Sequence[int] = found.ids
        return ids


def _called(function: Callable[[], _Result]) -> _Result:
    """Call into the library; raise `TokenizerFailed` for every error."""
    try:
        return function()
    except Exception as error:
        raise TokenizerFailed(f"its library says {shorten(str(error), 160)}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerFailed(f"its library gave up with {shorten(str(error), 120)}") from error


def _growth(normalizer: Any) -> int:
    """Return by how much the normalizer's replacements lengthen a text at most."""
    if normalizer is None:
        return 1
    state = json.loads(_called(normalizer.__getstate__))
    growth = 1
    for step in _steps(state):
        if step.get("type") != "Replace":
            continue
        pattern = step.get("pattern")
        literal = pattern.get("String", "") if isinstance(pattern, Mapping) else ""
        content = len(str(step.get("content", "")))
        # An expression may match the empty text, between any two letters.
        growth *= max(1, -(-content // len(literal)) if literal else 1 + content)
    return growth


def _steps(normalizer: Any) -> list[Mapping[str, Any]]:
    if not isinstance(normalizer, Mapping):
        return []
    inner = normalizer.get("normalizers")
    if normalizer.get("type") == "Sequence" and isinstance(inner, list):
        return [step for one in inner for step in _steps(one)]
    return [normalizer]


def _refused(source: str, reason: str) -> ModelRefused:
    return ModelRefused(
        f"the tokenizer {shorten(source, 200)} cannot be used: {reason}",
        hint="name the model's own tokenizer.json, or let the server count",
    )
