"""Rows of Data Capture: a request and its answer as SageMaker writes them.

Sources: Amazon SageMaker developer guide, "Capture data from real-time endpoint" (the line and its
encodings).  How SageMaker captures a response stream is not public; here the events are put
together to the answer that the server would have given without a stream.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Redact = Callable[[str], str]
_LARGEST_PLAIN = 10**12  # no number below it is that of a card


class UnreadableRow(ValueError):
    """A body to redact that is not text."""


@dataclass(frozen=True)
class Options:
    """What of an exchange is written, and how."""

    has_input: bool = True
    has_output: bool = True
    json_types: frozenset[str] = frozenset()  # media types that are written as they are
    csv_types: frozenset[str] = frozenset()
    share: float = 1.0  # of the conversations, chosen by their first turn


@dataclass(frozen=True)
class CapturedExchange:
    """A request and its answer as a server kept them: references to the bytes that went by."""

    id: str
    at_s: float  # since 1970
    request: bytes
    request_type: str
    answer: tuple[bytes, ...]  # in the pieces that came
    answer_type: str
    is_whole: bool = True  # False: the answer broke off, or its client left
    inference_id: str = ""  # as the client named the request


def make_row(
    exchange: CapturedExchange, options: Options, redact: Redact | None = None
) -> dict[str, Any]:
    """Return the row; raises `UnreadableRow` for a body that cannot be redacted."""
    captured = {}
    is_whole = exchange.is_whole
    if options.has_input:
        data, kind = exchange.request, exchange.request_type
        captured["endpointInput"] = _part(data, kind, "INPUT", options, redact)
    answer, kind = b"".join(exchange.answer), exchange.answer_type
    joined = join_stream(answer) if _is_stream(kind) else None
    if joined is not None:
        answer, kind = json.dumps(joined[0], ensure_ascii=False).encode(), "application/json"
        is_whole = is_whole and joined[1]
    if options.has_output:
        captured["endpointOutput"] = _part(answer, kind, "OUTPUT", options, redact)
    metadata: dict[str, Any] = {
        "eventId": exchange.id,
        "inferenceTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(exchange.at_s)),
    }
    if exchange.inference_id:
        metadata["inferenceId"] = exchange.inference_id
    if not is_whole:
        metadata["answerBrokeOff"] = True  # ours: SageMaker has no word for it
    return {"captureData": captured, "eventMetadata": metadata, "eventVersion": "0"}


def join_stream(data: bytes) -> tuple[dict[str, Any], bool] | None:
    """Return the answer that a stream's events make, and whether it came to its end.

    Read are OpenAI's server-sent events, and those with a `token` of TGI and LMI, which LMI also
    sends as lines of JSON; None of anything else.
    """
    events, ended = [], False
    try:
        for payload in _payloads(data.decode()):
            if payload == "[DONE]":
                ended = True
            else:
                events.append(json.loads(payload))
    except ValueError:
        if not events:
            return None
        ended = False  # the last event was cut
    if not events or not all(isinstance(event, dict) for event in events):
        return None
    if any("choices" in event for event in events):
        return _chat(events, ended)
    if any("token" in event for event in events):
        return _tokens(events)
    return None


def _payloads(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("data:"):
            yield line[5:].strip()
        elif line.startswith("{"):
            yield line


def _chat(events: list[dict[str, Any]], ended: bool) -> tuple[dict[str, Any], bool]:
    """Join OpenAI's chunks of chats and of completions."""
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        for name in ("id", "model", "created", "usage"):
            if event.get(name) is not None:
                answer[name] = event[name]
        for piece in event.get("choices") or ():
            if isinstance(piece, dict):
                _add_piece(choices.setdefault(piece.get("index") or 0, {}), piece)
    for choice in choices.values():
        choice.setdefault("finish_reason", None)
        calls = choice.get("message", {}).get("tool_calls")
        if calls is not None:
            choice["message"]["tool_calls"] = [calls[number] for number in sorted(calls)]
    answer["choices"] = [{"index": number, **choices[number]} for number in sorted(choices)]
    is_chat = any("message" in choice for choice in choices.values())
    answer["object"] = "chat.completion" if is_chat else "text_completion"
    finished = [choice["finish_reason"] for choice in choices.values()]
    return answer, bool(choices) and (ended or all(finished)) and "error" not in events[-1]


def _add_piece(choice: dict[str, Any], piece: dict[str, Any]) -> None:
    if piece.get("finish_reason"):
        choice["finish_reason"] = piece["finish_reason"]
    if isinstance(piece.get("text"), str):
        choice["text"] = choice.get("text", "") + piece["text"]
    delta = piece.get("delta")
    if not isinstance(delta, dict):
        return
    message = choice.setdefault("message", {"role": "assistant", "content": None})
    for name, value in delta.items():
        if name == "tool_calls":
            for call in value or ():
                _add_call(message.setdefault("tool_calls", {}), call)
        elif name == "role":
            message["role"] = value or message["role"]
        elif isinstance(value, str):  # content, reasoning, refusal
            message[name] = (message.get(name) or "") + value


def _add_call(calls: dict[int, dict[str, Any]], piece: dict[str, Any]) -> None:
    number = piece.get("index") or 0
    call = calls.setdefault(number, {"type": "function", "function": {"name": "", "arguments": ""}})
    if piece.get("id"):
        call["id"] = piece["id"]
    for name, value in (piece.get("function") or {}).items():
        if isinstance(value, str):
            call["function"][name] = call["function"].get(name, "") + value


def _tokens(events: list[dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """Join events of one token each; the last one has the whole text, or a reason of its end."""
    last = events[-1]
    details = last.get("details")
    reason = details.get("finish_reason") if isinstance(details, dict) else None
    tokens = [event["token"] for event in events if isinstance(event.get("token"), dict)]
    text = last.get("generated_text")
    if not isinstance(text, str):
        text = "".join(
            token["text"]
            for token in tokens
            if isinstance(token.get("text"), str) and not token.get("special")
        )
        return {"generated_text": text, "details": {"finish_reason": reason}}, bool(reason)
    return {"generated_text": text, **({"details": details} if reason else {})}, True


def _part(
    data: bytes, kind: str, mode: str, options: Options, redact: Redact | None
) -> dict[str, str]:
    if redact is not None:
        data = _redacted(data, redact)
    media = kind.partition(";")[0].strip().lower()
    encoding = (
        "JSON" if media in options.json_types else "CSV" if media in options.csv_types else "BASE64"
    )
    text = None
    if encoding != "BASE64":
        try:
            text = data.decode()
        except UnicodeDecodeError:
            encoding = "BASE64"
    if text is None:
        text = base64.b64encode(data).decode("ascii")
    return {"observedContentType": kind, "mode": mode, "data": text, "encoding": encoding}


def _redacted(data: bytes, redact: Redact) -> bytes:
    """Redact a body: the texts in a JSON document, where escapes hide nothing, else all of it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UnreadableRow("the body is no text") from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return redact(text).encode()
    try:
        changed = _redacted_value(document, redact)
        found = json.dumps(changed, ensure_ascii=False)
        return data if changed == document else found.encode()
    except (RecursionError, UnicodeEncodeError):
        raise UnreadableRow("the document cannot be redacted") from None


def _redacted_value(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): _redacted_value(one, redact) for key, one in value.items()}
    if isinstance(value, list):
        return [_redacted_value(one, redact) for one in value]
    if isinstance(value, int) and value >= _LARGEST_PLAIN:
        text = redact(str(value))
        return value if text == str(value) else text
    return value


def _is_stream(kind: str) -> bool:
    media = kind.partition(";")[0].strip().lower()
    return media in ("text/event-stream", "application/jsonlines", "application/x-ndjson")
