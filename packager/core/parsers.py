"""Formats of tool calls and reasoning of a model, and the engine's parser for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """A model's chat template, as text that is searched and never run."""

    text: str
    tokens: frozenset[str] | None = None  # added to the vocabulary; None if unread


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenParser:
    """One parser of the engine, by the engine's own name, and why it was chosen."""

    name: str
    reason: str  # `the chat template writes <tool_call>`
    source: str = ""  # of the table's row; "" if the user requested it
