"""Descriptions of tools, as an agent's requests have them: some 250 tokens of a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _tool(name: str, description: str, /, **parameters: tuple[str, str]) -> dict[str, Any]:
    """Return OpenAI's description of a function; the first of its parameters is required."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {
                    parameter: {"type": kind, "description": what}
                    for parameter, (kind, what) in parameters.items()
                },
                "required": list(parameters)[:1],
            },
        },
    }


TOOLS: tuple[Mapping[str, Any], ...] = (
    _tool(
        "search_documents",
        "Search the documents of the organization and return the passages that fit best.",
        query=("string", "Words to search for."),
        limit=("integer", "Passages to return at most."),
    ),
    _tool(
        "read_document",
        "Return the text of a document by its name.",
        name=("string", "Name of the document, as a search returned it."),
        first_line=("integer", "Line to begin with, from 1."),
    ),
    _tool(
        "run_query",
        "Run a read-only SQL query on the reporting database and return its rows.",
        statement=("string", "One SELECT statement."),
        timeout_s=("number", "Seconds after which the query is given up."),
    ),
    _tool(
        "send_message",
        "Send a message to a person and return when it was delivered.",
        recipient=("string", "Address of the person."),
        text=("string", "Text of the message."),
    ),
)
