"""Engine options as a request gives them: their plain names, and what one of them holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packager.core.documents import parse_object

SPECULATION = "speculative-config"  # of vLLM


def speculation_of(options: Mapping[str, str] | None) -> Mapping[str, Any] | None:
    """Return vLLM's speculative configuration from the options; None if missing or invalid.

    A value that is not a JSON object is refused by the check of the engine's options.
    """
    text = next((value for name, value in spelled(options) if name == SPECULATION), None)
    if text is None:
        return None
    try:
        return parse_object(text.encode())
    except ValueError:  # `NotStrict`, or text that is no UTF-8
        return None


def spelled(options: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    """Yield options by their names on a command line: with dashes, without prefix."""
    for name, value in (options or {}).items():
        bare = name.removeprefix("--").removeprefix("option.")
        yield bare.lower().replace("_", "-"), value
