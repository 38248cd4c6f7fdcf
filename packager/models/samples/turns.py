"""Parsing of one turn of a conversation, and of what a request says of its prompt besides.

Calls of tools become objects in their order, as templates want them: OpenAI's field `arguments`
is a JSON text.  Tools are written as engines hand them to templates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from packager.core.documents import NotStrict, parse_json
from packager.core.samples import Message

LONGEST_PAYLOAD = 64 * 1024 * 1024  # as a line of the file it is in

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
# As servers and templates have called it: the first one of a turn counts.
_REASONING = ("reasoning", "reasoning_content", "thinking")
# What the template is applied with in any case, or decides which one it is.
_RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)


class NotASample(ValueError):
    """An unusable row; the text states the reason without quoting the row."""


def read_message(turn: object) -> Message:
    """Return a turn in OpenAI's or ShareGPT's format; raises `NotASample`."""
    if not isinstance(turn, Mapping):
        raise NotASample("a turn is not a JSON object")
    who = turn.get("role", turn.get("from"))
    role = _ROLES.get(who.lower()) if isinstance(who, str) else None
    if role is None:
        raise NotASample("a turn has an unknown role")
    calls = _calls(turn.get("tool_calls")) if role == "assistant" else ""
    said = turn.get("content", turn.get("value"))
    if isinstance(said, Sequence) and not isinstance(said, str):
        said = _joined(said)
    if said is None and calls:
        said = ""
    return Message(
        role=role,
        content=read_text(said, "a turn"),
        reasoning=_reasoning(turn) if role == "assistant" else "",
        tool_calls=calls,
        tool_call_id=_named(turn, "tool_call_id") if role == "tool" else "",
        name=_named(turn, "name"),
    )


def has_words(message: Message) -> bool:
    """Check whether a turn says anything: an answer without is none."""
    return bool(message.content.strip() or message.tool_calls or message.reasoning.strip())


def read_tools(tools: object) -> str:
    """Return a request's tools as vLLM hands them to templates; "" without."""
    if not tools:
        return ""
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise NotASample("its tools are not a list")
    return _json([_tool(one) for one in tools])


def read_template_arguments(request: Mapping[str, Any]) -> str:
    """Return what else a request gives to the template: plain values alone."""
    stated = request.get("chat_template_kwargs")
    found = dict(stated) if isinstance(stated, Mapping) else {}
    if request.get("reasoning_effort") is not None:
        found.setdefault("reasoning_effort", request["reasoning_effort"])
    plain = {
        name: value
        for name, value in found.items()
        if name.isidentifier() and name not in _RESERVED and isinstance(value, str | int | float)
    }
    return _json(dict(sorted(plain.items()))) if plain else ""


def read_text(value: object, what: str) -> str:
    """Return a text that can be written as UTF-8; raises `NotASample`."""
    if not isinstance(value, str):
        raise NotASample(f"{what} is not a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise NotASample(f"{what} holds half of a surrogate pair") from None
    return value


def parse_body(payload: str) -> object:
    """Parse a JSON document as long as a row; raises `NotStrict`."""
    return parse_json(
        payload.encode(errors="surrogatepass"),
        max_bytes=LONGEST_PAYLOAD,
        max_values=LONGEST_PAYLOAD,
        allow_infinity=True,
    )


def _reasoning(turn: Mapping[str, Any]) -> str:
    for name in _REASONING:
        if isinstance(turn.get(name), str) and turn[name].strip():
            return read_text(turn[name], "a turn's reasoning")
    return ""


def _calls(calls: object) -> str:
    if not calls:
        return ""
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise NotASample("a turn's tool calls are not a list")
    return _json([_call(one) for one in calls])


def _call(call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise NotASample("a tool call names no function")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = parse_body(arguments)
        except NotStrict:
            raise NotASample("a tool call's arguments are not JSON") from None
    if not isinstance(arguments, Mapping):
        raise NotASample("a tool call's arguments are not an object")
    name = read_text(function.get("name"), "a tool call's name")
    named = {"id": _named(call, "id")} if call.get("id") else {}
    return {**named, "type": "function", "function": {"name": name, "arguments": arguments}}


def _tool(tool: object) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(tool, Mapping) or not isinstance(function, Mapping):
        raise NotASample("a tool is not a function")
    stated = {name: function.get(name) for name in ("name", "description", "parameters")}
    return {**tool, "type": "function", "function": {**stated, **function}}


def _named(turn: Mapping[str, Any], field: str) -> str:
    value = turn.get(field)
    return read_text(value, f"a turn's {field}") if value is not None else ""


def _joined(parts: Sequence[object]) -> str:
    """Return the text of content in parts; raises where a part is not text."""
    texts = []
    for part in parts:
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise NotASample("a turn holds something else than text")
        texts.append(read_text(part.get("text"), "a turn"))
    return "".join(texts)


def _json(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise NotASample("its tools hold what is no number") from None
    return read_text(text, "what tools are called with")
