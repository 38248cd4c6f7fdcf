"""Parsing of calibration rows in common formats into samples.

| format | row |
|---|---|
| `text` | `{"text": …}` |
| `chat` | `{"messages": [{"role", "content"}]}`, OpenAI's; requests, responses and batches too |
| `sharegpt` | `{"conversations": [{"from", "value"}]}`; also with `role` and `content` |
| `completions` | `{"prompt", "completion"}`, OpenAI's; requests and responses too |
| `data-capture` | `{"captureData": {"endpointInput", "endpointOutput"}}`, SageMaker's |

A captured request holds whatever the endpoint took: OpenAI's chat or
completions, or `{"inputs"}` as LMI and TGI have it.  Its answer may be JSON or
a stream of server-sent events.

Sources: OpenAI API reference (chat, completions, batch), ShareGPT dumps as
speculators and SpecForge read them, Amazon SageMaker developer guide
"Capture data from real-time endpoint".
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from packager.core.capture.rows import join_stream
from packager.core.documents import NotStrict
from packager.core.samples import Message, Sample
from packager.models.samples.turns import (
    NotASample,
    has_words,
    parse_body,
    read_message,
    read_template_arguments,
    read_text,
    read_tools,
)

__all__ = ["NotASample", "read_row"]
_NOTHING: Mapping[str, Any] = MappingProxyType({})
# What ends an answer that is all there; the others are those of a request that was ended.
_BROKEN_OFF = frozenset({"abort", "aborted", "cancelled", "content_filter", "error"})


def read_row(row: object) -> tuple[str, Sample]:
    """Detect a row's format; return it with the sample, or raise `NotASample`."""
    if not isinstance(row, Mapping):
        raise NotASample("it is not a JSON object")
    if "captureData" in row:
        return "data-capture", _captured(row["captureData"], row.get("eventMetadata"))
    if "conversations" in row:
        return "sharegpt", _chat(row["conversations"])
    if "messages" in row:
        return "chat", _chat(row["messages"], row.get("response"), row)
    if "prompt" in row:
        return "completions", _completion(row, row.get("response"))
    if "reqType" in row or "specversion" in row:
        raise NotASample("it is a record of KServe's logger: request and answer are two of them")
    request = row.get("request", row.get("body"))
    if isinstance(request, Mapping):
        request = request.get("body", request)
        return _exchange(request, _body(row.get("response")))
    if isinstance(row.get("text"), str):
        return "text", Sample(text=_filled(row["text"], "text"))
    raise NotASample(
        "it has none of the fields text, messages, conversations, prompt, request, captureData"
    )


def _exchange(request: object, response: object) -> tuple[str, Sample]:
    """A request to a server, and what it answered if that is known."""
    if not isinstance(request, Mapping):
        raise NotASample("the request is not a JSON object")
    if "messages" in request:
        return "chat", _chat(request["messages"], response, request)
    if "prompt" in request:
        return "completions", _completion(request, response)
    if "inputs" in request:
        return "completions", _completion({"prompt": request["inputs"]}, response)
    if "input" in request:
        raise NotASample("the request is of the Responses API or of embeddings: no chat")
    raise NotASample("the request has none of messages, prompt and inputs")


def _chat(turns: object, response: object = None, request: Mapping[str, Any] = _NOTHING) -> Sample:
    if not isinstance(turns, Sequence) or isinstance(turns, str) or not turns:
        raise NotASample("its conversation is not a list of turns")
    messages = [read_message(turn) for turn in turns]
    if messages[-1].role == "assistant" and not has_words(messages[-1]):
        messages.pop()  # sets of questions have an empty answer to each
    answer = _answer(response)
    if answer is not None and has_words(answer):
        messages.append(answer)
    if not any(message.role == "user" for message in messages):
        raise NotASample("its conversation has no user turn")
    return Sample(
        messages=tuple(messages),
        tools=read_tools(request.get("tools")),
        template=read_template_arguments(request),
    )


def _completion(row: Mapping[str, Any], response: object) -> Sample:
    prompt = row["prompt"]
    if isinstance(prompt, Sequence) and not isinstance(prompt, str):
        raise NotASample("the prompt is a list, of tokens or of several prompts")
    prompt = _filled(prompt, "the prompt")
    completion = row.get("completion")
    if completion is not None:
        completion = read_text(completion, "the completion")
    else:
        answer = _answer(response)
        completion = answer.content if answer is not None else ""
    return Sample(prompt=prompt, completion=completion if completion.strip() else None)


def _answer(response: object) -> Message | None:
    """Return a server's answer from its body; None where it holds no whole one.

    Raises `NotASample` where the server refused the request.
    """
    response = _body(response)
    if isinstance(response, str):
        response = _joined_stream(response)
    if isinstance(response, Sequence) and response:
        response = response[0]
    if not isinstance(response, Mapping):
        return None
    choice = _first_choice(response)
    ending: object = choice
    if choice is not None:
        message = choice.get("message", {"content": choice.get("text")})
    else:
        message = {"content": response.get("generated_text")}
        ending = response.get("details")
        if message["content"] is None and response.get("error"):
            raise NotASample("its request was refused")
    reason = ending.get("finish_reason", "") if isinstance(ending, Mapping) else ""
    if reason is None or reason in _BROKEN_OFF or not isinstance(message, Mapping):
        return None  # captured of a stream that broke off
    try:
        return read_message({"content": "", **_without_gaps(message), "role": "assistant"})
    except NotASample:
        return None  # the model wrote a call that is no JSON, or half of a character


def _without_gaps(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if value is not None}


def _joined_stream(body: str) -> object:
    """Return the answer that a stream's events make; None where it broke off or is none."""
    try:
        joined = join_stream(body.encode(errors="surrogatepass"))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None  # no server sends such events
    if joined is None or not joined[1]:
        return None
    for choice in joined[0].get("choices", ()):
        choice["finish_reason"] = choice["finish_reason"] or "stop"  # its stream came to its end
    return joined[0]


def _first_choice(said: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return OpenAI's choice 0, in whatever order they stand; None where TGI or LMI answers."""
    choices = said.get("choices")
    if not isinstance(choices, Sequence) or not choices or not isinstance(choices[0], Mapping):
        return None
    numbered = (one for one in choices if isinstance(one, Mapping) and one.get("index") == 0)
    return next(numbered, choices[0])


def _body(response: object) -> object:
    """An answer may be wrapped with its status and headers."""
    if isinstance(response, Mapping) and "body" in response:
        return response["body"]
    return response


def _captured(capture: object, metadata: object) -> Sample:
    if not isinstance(capture, Mapping) or not isinstance(capture.get("endpointInput"), Mapping):
        raise NotASample("its captureData holds no endpointInput")
    request = _json_or_text(_payload(capture["endpointInput"]))
    output = capture.get("endpointOutput")
    broke_off = isinstance(metadata, Mapping) and metadata.get("answerBrokeOff")
    answered = None
    if isinstance(output, Mapping) and not broke_off:
        answered = _json_or_text(_payload(output))
    return _exchange(request, answered)[1]


def _payload(part: Mapping[str, Any]) -> str:
    """Return the decoded payload; BASE64 is SageMaker's default encoding."""
    data = part.get("data")
    if not isinstance(data, str):
        raise NotASample("its capture holds no data")
    if part.get("encoding", "BASE64") != "BASE64":
        return data
    try:
        return base64.b64decode(data, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        raise NotASample("its captured data is not BASE64 of a text") from None


def _json_or_text(payload: str) -> object:
    try:
        return parse_body(payload)
    except NotStrict:
        return payload


def _filled(value: object, what: str) -> str:
    text = read_text(value, what)
    if not text.strip():
        raise NotASample(f"{what} is empty")
    return text
