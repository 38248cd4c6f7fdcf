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
import json
from collections.abc import Mapping, Sequence
from typing import Any

from packager.core.documents import NotStrict, parse_json
from packager.core.samples import Message, Sample

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


class NotASample(ValueError):
    """An unusable row; the text states the reason without quoting the row."""


def read_row(row: object) -> tuple[str, Sample]:
    """Detect a row's format; return it with the sample, or raise `NotASample`."""
    if not isinstance(row, Mapping):
        raise NotASample("it is not a JSON object")
    if "captureData" in row:
        return "data-capture", _captured(row["captureData"], row.get("eventMetadata"))
    if "conversations" in row:
        return "sharegpt", _chat(row["conversations"])
    if "messages" in row:
        return "chat", _chat(row["messages"], row.get("response"))
    if "prompt" in row:
        return "completions", _completion(row, row.get("response"))
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
        return "chat", _chat(request["messages"], response)
    if "prompt" in request:
        return "completions", _completion(request, response)
    if "inputs" in request:
        return "completions", _completion({"prompt": request["inputs"]}, response)
    raise NotASample("the request has none of messages, prompt and inputs")


def _chat(turns: object, response: object = None) -> Sample:
    if not isinstance(turns, Sequence) or isinstance(turns, str) or not turns:
        raise NotASample("its conversation is not a list of turns")
    messages = [_message(turn) for turn in turns]
    if messages[-1].role == "assistant" and not messages[-1].content.strip():
        messages.pop()  # sets of questions have an empty answer to each
    answer = _answer(response)
    if answer is not None:
        messages.append(Message(role="assistant", content=answer))
    if not any(message.role == "user" for message in messages):
        raise NotASample("its conversation has no user turn")
    return Sample(messages=tuple(messages))


def _message(turn: object) -> Message:
    if not isinstance(turn, Mapping):
        raise NotASample("a turn is not a JSON object")
    who = turn.get("role", turn.get("from"))
    role = _ROLES.get(who.lower()) if isinstance(who, str) else None
    if role is None:
        raise NotASample("a turn has an unknown role")
    said = turn.get("content", turn.get("value"))
    if isinstance(said, Sequence) and not isinstance(said, str):
        said = _joined(said)
    if said is None and turn.get("tool_calls"):
        said = json.dumps(turn["tool_calls"], sort_keys=True, ensure_ascii=False)
    return Message(role=role, content=_text(said, "a turn"))


def _joined(parts: Sequence[object]) -> str:
    """Return the text of content in parts; raises where a part is not text."""
    texts = []
    for part in parts:
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise NotASample("a turn holds something else than text")
        texts.append(_text(part.get("text"), "a turn"))
    return "".join(texts)


def _completion(row: Mapping[str, Any], response: object) -> Sample:
    prompt = _filled(row["prompt"], "the prompt")
    completion = row.get("completion")
    if completion is not None:
        completion = _text(completion, "the completion")
        completion = completion if completion.strip() else None
    else:
        completion = _answer(response)
    return Sample(prompt=prompt, completion=completion)


def _answer(response: object) -> str | None:
    """Return the text of a server's answer from its body; None where it holds no whole one.

    Raises `NotASample` where the server refused the request.
    """
    response = _body(response)
    if isinstance(response, str):
        return _streamed(response)
    if isinstance(response, Sequence) and response:
        response = response[0]
    if not isinstance(response, Mapping):
        return None
    choice = _first_choice(response)
    ending: object = choice
    if choice is not None:
        message = choice.get("message")
        text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    else:
        text = response.get("generated_text")
        ending = response.get("details")
        if text is None and response.get("error"):
            raise NotASample("its request was refused")
    if isinstance(ending, Mapping) and ending.get("finish_reason", "") is None:
        return None  # captured of a stream that broke off
    return text if isinstance(text, str) and text.strip() else None


def _streamed(body: str) -> str | None:
    """Join the pieces of a stream of server-sent events."""
    pieces: list[str] = []
    ended = False
    for line in body.splitlines():
        payload = line.removeprefix("data:").strip()
        if not line.startswith("data:"):
            continue
        if payload == "[DONE]":
            ended = True
            continue
        try:
            event = parse_json(payload.encode(errors="surrogatepass"), allow_infinity=True)
        except NotStrict:
            return None  # cut off: half an answer is none
        pieces.append(_piece(event))
        ended = ended or _is_last(event)
    text = "".join(pieces)
    return text if ended and text.strip() else None


def _piece(event: object) -> str:
    if not isinstance(event, Mapping):
        return ""
    choice = _first_choice(event)
    if choice is not None:
        delta = choice.get("delta")
        text = delta.get("content") if isinstance(delta, Mapping) else choice.get("text")
    else:
        token = event.get("token")
        text = token.get("text") if isinstance(token, Mapping) else None
    return text if isinstance(text, str) else ""


def _is_last(event: object) -> bool:
    """Return whether an event ends its answer; one that broke off has none that does."""
    if not isinstance(event, Mapping):
        return False
    choice = _first_choice(event)
    if choice is not None:
        return choice.get("finish_reason") is not None
    return isinstance(event.get("generated_text"), str)


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
        return parse_json(
            payload.encode(errors="surrogatepass"),
            max_bytes=LONGEST_PAYLOAD,
            max_values=LONGEST_PAYLOAD,
            allow_infinity=True,
        )
    except NotStrict:
        return payload


def _filled(value: object, what: str) -> str:
    text = _text(value, what)
    if not text.strip():
        raise NotASample(f"{what} is empty")
    return text


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise NotASample(f"{what} is not a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise NotASample(f"{what} holds half of a surrogate pair") from None
    return value
