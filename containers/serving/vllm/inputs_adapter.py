"""ASGI middleware that lets a vLLM server answer clients of LMI and TGI.

vLLM speaks OpenAI's schema only.  `vllm … --middleware inputs_adapter.InputsAdapter`
adds the older one, `{"inputs": …, "parameters": {…}, "stream": …}`:

    path               as in   reply                    stream
    /invocations       LMI     {"generated_text": …}    when the body says so
    /generate          TGI     {"generated_text": …}    never
    /generate_stream   TGI     –                        always
    /                  TGI     [{"generated_text": …}]  when the body says so

On /invocations TGI replies with a list, too.  LMI's own switch asks for it:
OPTION_TGI_COMPAT=true.  A stream is always server-sent events in TGI's form, which
LMI sends when so switched; its own default, JSON lines, is not offered.

A body's `model` goes into SageMaker's header of adapters where a request has none: vLLM reads
nothing else there, so that a name that is nobody's ends in 404 instead of the base's answer.

`inputs` is a text, or a list of chat messages.  What a parameter or another field of the
body does not translate to is refused, not dropped.  A body with `prompt` or `messages`,
and every other path, passes through untouched.  Errors read
`{"error": message, "code": HTTP status}` and quote little of what was sent.  A body that is
no JSON object is in no schema: on /invocations, which is vLLM's own path, its error reads as
vLLM's do.  vLLM itself answers there what Python says of a list without keys.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

TARGET = "/invocations"  # vLLM's; it takes either of OpenAI's bodies
ADAPTER_HEADER = b"x-amzn-sagemaker-adapter-identifier"
LONGEST_NAME = 256  # of a header's value; a longer one is nobody's name
NO_NAME = re.compile(r"[^!-~]")  # what no name has, and a header may not have or loses
LARGEST_BODY = 64 << 20  # bytes, LMI's default
LARGEST_BODY_VARIABLE = "PACKAGER_MAX_REQUEST_BYTES"
LIST_VARIABLE = "OPTION_TGI_COMPAT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a path differs from the others."""

    max_new_tokens: int  # when the body names none
    greedy: bool  # without any sampling parameter; LMI leaves that to the model's own defaults
    as_list: bool
    stream: bool | None = None  # None: the body says


LMI = Dialect(max_new_tokens=30, greedy=False, as_list=False)
DIALECTS = {
    "/invocations": LMI,
    "/generate": Dialect(max_new_tokens=100, greedy=True, as_list=False, stream=False),
    "/generate_stream": Dialect(max_new_tokens=100, greedy=True, as_list=False, stream=True),
    "/": Dialect(max_new_tokens=100, greedy=True, as_list=True),
}
LMI_AS_TGI = Dialect(max_new_tokens=30, greedy=False, as_list=True)

RENAMED = {
    "max_new_tokens": "max_tokens",
    "truncate": "truncate_prompt_tokens",
    "ignore_eos_token": "ignore_eos",
}
SAME = frozenset(
    (
        "bad_words",
        "frequency_penalty",
        "ignore_eos",
        "include_stop_str_in_output",
        "length_penalty",
        "logit_bias",
        "min_p",
        "min_tokens",
        "presence_penalty",
        "repetition_penalty",
        "response_format",
        "seed",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop_token_ids",
        "temperature",
        "top_k",
        "top_p",
    )
)
SAMPLING = ("temperature", "top_p", "top_k")
# Clients send these with the value that changes nothing.
NEUTRAL = {
    "best_of": 1,
    "decoder_input_details": False,
    "num_beams": 1,
    "n": 1,
    "top_n_tokens": 0,
    "watermark": False,
}
FIELDS = frozenset(("inputs", "parameters", "stream", "model"))
# Of the hosted inference API; clients send them everywhere, and they change no answer.
NEUTRAL_OPTIONS = frozenset(("use_cache", "wait_for_model"))
LONGEST_QUOTE = 80  # characters of a request that an error repeats
LONGEST_ERROR = 4000


class InputsAdapter:
    """Translates requests with `inputs`, and their replies."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.largest_body = int(os.environ.get(LARGEST_BODY_VARIABLE, LARGEST_BODY))
        as_list = os.environ.get(LIST_VARIABLE, "").lower() == "true"
        self.dialects = {**DIALECTS, TARGET: LMI_AS_TGI if as_list else LMI}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        dialect = self.find_dialect(scope)
        if dialect is None:
            await self.app(scope, receive, send)
            return
        try:
            body = await read_body(scope, receive, self.largest_body)
            if body is None:
                return  # the client has gone
            payload = read_object(body) if is_json(scope) else None
            if payload is None or not is_ours(payload):
                headers = with_adapter(scope["headers"], payload or {})
                await self.app({**scope, "headers": headers}, replay(body, receive), send)
                return
            request = translate(payload, dialect)
            translated = written(request.body)
        except NotAnObject as error:
            said = as_vllm(error) if dialect in (LMI, LMI_AS_TGI) else as_tgi(error)
            await send_json(send, error.status, said)
            return
        except BadRequest as error:
            await send_json(send, error.status, as_tgi(error))
            return
        headers = [
            *without(
                with_adapter(scope["headers"], request.body),
                *(b"content-length", b"transfer-encoding"),
            ),
            (b"content-length", str(len(translated)).encode()),
        ]
        root = scope.get("root_path", "")
        target = {
            **scope,
            "path": root + TARGET,
            "raw_path": (root + TARGET).encode(),
            "headers": headers,
        }
        await self.app(target, replay(translated, receive), ReplyTranslator(send, request, dialect))

    def find_dialect(self, scope: MutableMapping[str, Any]) -> Dialect | None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        if header(scope["headers"], b"content-encoding"):
            return None  # vLLM knows what to say about it
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return self.dialects.get(path)


class BadRequest(Exception):
    """A request that cannot be translated."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class NotAnObject(BadRequest):
    """A body that is no JSON object."""


def as_tgi(error: BadRequest) -> dict[str, Any]:
    return {"error": str(error), "code": error.status}


def as_vllm(error: BadRequest) -> dict[str, Any]:
    kind = "BadRequestError"  # as OpenAI's clients expect it
    return {"error": {"message": str(error), "type": kind, "param": None, "code": error.status}}


EXPECTED = "expected an object with 'prompt', 'messages' or 'inputs'"
TOO_DEEP = "the body is nested too deeply"
AS_JSON = "backslashreplace"  # half of a surrogate pair is spelt as JSON spells it: \ud800


async def read_body(
    scope: MutableMapping[str, Any], receive: Receive, largest: int
) -> bytes | None:
    """Read the whole body; None when the client left before its end."""
    too_large = BadRequest(f"the body has more than {largest} bytes", status=413)
    length = header(scope["headers"], b"content-length")
    if length.isdigit() and (len(length) > 18 or int(length) > largest):
        raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > largest:
            raise too_large
        if not message.get("more_body", False):
            return bytes(body)


def replay(body: bytes, receive: Receive) -> Receive:
    """Give out `body` once; then what the server says, which is how a disconnect is noticed."""
    unread = True

    async def next_message() -> Message:
        nonlocal unread
        if unread:
            unread = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return next_message


def is_json(scope: MutableMapping[str, Any]) -> bool:
    """Whether the body is said to be JSON, or nothing is said; vLLM refuses what is not."""
    kind = header(scope["headers"], b"content-type").partition(b";")[0].strip().lower()
    return kind in (b"", b"application/json")


def with_adapter(headers: Any, body: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """The headers, with SageMaker's for the model that the body names and no header does.

    vLLM's /invocations takes the name from the header alone: without one it puts null in the
    place of the body's `model`, and the base answers for every adapter and every unknown name.
    """
    found = list(headers)
    model = body.get("model")
    if not isinstance(model, str) or not model or header(found, ADAPTER_HEADER):
        return found
    name = NO_NAME.sub("?", model[:LONGEST_NAME]).encode("ascii")
    return [*found, (ADAPTER_HEADER, name)]


def read_object(body: bytes) -> dict[str, Any]:
    """The body; a NotAnObject where it is none."""
    if not body.strip():
        raise NotAnObject(f"the body is empty: {EXPECTED}")
    try:
        payload = json.loads(body)
    except RecursionError:
        raise NotAnObject(TOO_DEEP) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise NotAnObject(f"the body is not JSON: {error.msg} at {place}") from None
    except UnicodeDecodeError:
        raise NotAnObject("the body is not JSON: it is not UTF-8") from None
    except ValueError:  # Python limits the digits of a number
        raise NotAnObject("the body has a number of too many digits") from None
    if not isinstance(payload, dict):
        raise NotAnObject(f"the body is {named(payload)}: {EXPECTED}")
    return payload


def is_ours(payload: dict[str, Any]) -> bool:
    """Whether a body is one to translate."""
    return "inputs" in payload and "prompt" not in payload and "messages" not in payload


def written(body: dict[str, Any]) -> bytes:
    """Write a translated request; refuse what is no text, or has too many levels."""
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except RecursionError:
        raise BadRequest(TOO_DEEP) from None
    except UnicodeEncodeError:
        raise BadRequest("a text in the body holds half of a surrogate pair") from None


def quoted(value: object) -> str:
    """Quote what was sent, in ASCII and cut: an error is no echo."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, str):
        value = value[: LONGEST_QUOTE + 1]
    text = ascii(value)
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}..."


def named(value: object) -> str:
    """Name the type of a value in JSON's words."""
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedRequest:
    """A request in OpenAI's schema, and what its reply has to know."""

    body: dict[str, Any]
    details: bool
    prefix: str  # what goes before the generated text: the input, or nothing
    seed: int | None


def translate(payload: dict[str, Any], dialect: Dialect) -> TranslatedRequest:
    inputs, parameters = payload["inputs"], payload.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise BadRequest("'parameters' must be an object")
    refuse_other_fields(payload)
    parameters = {name: value for name, value in parameters.items() if value is not None}
    chat = is_chat(inputs)
    if not chat and not isinstance(inputs, str):
        raise BadRequest("'inputs' must be a text or a list of messages with 'role' and 'content'")

    stream = payload.get("stream", False) if dialect.stream is None else dialect.stream
    details = parameters.pop("details", False)
    full_text = parameters.pop("return_full_text", False)
    for name, value in (("stream", stream), ("details", details), ("return_full_text", full_text)):
        if not isinstance(value, bool):
            raise BadRequest(f"{name!r} must be true or false")
    if full_text and chat:
        raise BadRequest("'return_full_text' needs 'inputs' that are a text")

    body: dict[str, Any] = {"messages" if chat else "prompt": inputs, "stream": stream}
    if "model" in payload:
        body["model"] = payload["model"]
    body |= translate_parameters(parameters, dialect)
    if stream or details:
        body |= {"return_token_ids": True, "logprobs": True if chat else 0}
    return TranslatedRequest(
        body=body, details=details, prefix=inputs if full_text else "", seed=body.get("seed")
    )


def refuse_other_fields(payload: dict[str, Any]) -> None:
    for name, value in payload.items():
        is_neutral = name == "options" and isinstance(value, dict) and set(value) <= NEUTRAL_OPTIONS
        if name not in FIELDS and value is not None and not is_neutral:
            raise BadRequest(f"the field {quoted(name)} is not supported")


def is_chat(inputs: object) -> bool:
    return (
        isinstance(inputs, list)
        and bool(inputs)
        and all(isinstance(item, dict) and "role" in item for item in inputs)
    )


def translate_parameters(parameters: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    translated: dict[str, Any] = {"max_tokens": dialect.max_new_tokens}
    do_sample = parameters.pop("do_sample", None)
    stop = [*texts(parameters, "stop"), *texts(parameters, "stop_sequences")]
    if stop:
        translated["stop"] = stop
    for name, value in parameters.items():
        if name in SAME or name in RENAMED:
            translated[RENAMED.get(name, name)] = value
        elif NEUTRAL.get(name) != value:
            raise BadRequest(
                f"parameter {quoted(name)} is not supported with the value {quoted(value)}"
            )
    sampling = any(name in translated for name in SAMPLING)
    if do_sample is False or (do_sample is None and dialect.greedy and not sampling):
        translated["temperature"] = 0.0
    return translated


def texts(parameters: dict[str, Any], name: str) -> list[str]:
    value = parameters.pop(name, [])
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRequest(f"{name!r} must be a list of texts")
    return value


class ReplyTranslator:
    """A `send` that turns vLLM's reply into the client's; a stream goes on event by event."""

    def __init__(self, send: Send, request: TranslatedRequest, dialect: Dialect) -> None:
        self.send = send
        self.request = request
        self.dialect = dialect
        self.start: Message = {}
        self.body = bytearray()  # of a reply that is not a stream
        self.stream: StreamTranslator | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
            kind = header(message["headers"], b"content-type")
            if message["status"] == 200 and kind.startswith(b"text/event-stream"):
                self.stream = StreamTranslator(self.request)
                headers = list(without(message["headers"], b"content-length"))
                await self.send({**message, "headers": headers})
        elif message["type"] != "http.response.body":
            await self.send(message)
        elif self.stream is not None:
            data = b"".join(self.stream.feed(message.get("body", b"")))
            more = message.get("more_body", False)
            if data or not more:
                await self.send({**message, "body": data})
        else:
            self.body += message.get("body", b"")
            if not message.get("more_body", False):
                await self.send_whole()

    async def send_whole(self) -> None:
        status, body = self.start["status"], bytes(self.body)
        try:
            reply = json.loads(body)
        except ValueError:
            reply = body.decode(errors="replace")
        if status == 200:
            reply = make_reply(reply, self.request, self.dialect)
        else:
            reply = {"error": error_message(reply), "code": status}
        kept = without(self.start["headers"], b"content-length", b"content-type")
        await send_json(self.send, status, reply, kept)


def make_reply(document: dict[str, Any], request: TranslatedRequest, dialect: Dialect) -> object:
    choice = read_choice(document["choices"][0])
    reply: dict[str, Any] = {"generated_text": request.prefix + choice.text}
    if request.details:
        reply["details"] = {
            "finish_reason": choice.finish_reason,
            "generated_tokens": document["usage"]["completion_tokens"],
            "seed": request.seed,
            "prefill": [],
            "tokens": choice.tokens,
        }
    return [reply] if dialect.as_list else reply


class StreamTranslator:
    """Turns vLLM's events into TGI's: one for each token, the last with the whole text."""

    def __init__(self, request: TranslatedRequest) -> None:
        self.request = request
        self.unread = b""  # an event may arrive in pieces
        self.text = ""
        self.count = 0
        self.input_length: int | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                payload = line.removeprefix(b"data:").strip()
                if payload != b"[DONE]":  # TGI's streams just end
                    for event in self.translate(json.loads(payload)):
                        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
                        yield b"data:" + text.encode(errors=AS_JSON) + b"\n\n"

    def translate(self, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if "error" in document:
            code = document["error"].get("code", 500)
            yield {"error": error_message(document), "code": code}
            return
        for raw in document["choices"]:  # none in an event that only counts tokens
            prompt = document.get("prompt_token_ids") or raw.get("prompt_token_ids")
            self.input_length = len(prompt) if prompt else self.input_length
            yield from self.events(read_choice(raw))

    def events(self, choice: Choice) -> Iterator[dict[str, Any]]:
        self.text += choice.text
        self.count += len(choice.tokens)
        tokens = choice.tokens
        if choice.finish_reason and not tokens:
            tokens = [{"id": -1, "text": choice.text, "logprob": None, "special": True}]
        for index, token in enumerate(tokens, start=self.count - len(choice.tokens) + 1):
            yield {"index": index, "token": token, "generated_text": None, "details": None} | (
                self.ending(choice) if choice.finish_reason and token is tokens[-1] else {}
            )

    def ending(self, choice: Choice) -> dict[str, Any]:
        details = {
            "finish_reason": choice.finish_reason,
            "generated_tokens": self.count,
            "seed": self.request.seed,
            "input_length": self.input_length,
        }
        return {
            "generated_text": self.request.prefix + self.text,
            "details": details if self.request.details else None,
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of a completion or of a chat, whole or a piece of a stream."""

    text: str
    finish_reason: str | None  # TGI's word
    tokens: list[dict[str, Any]]  # TGI's form


def read_choice(choice: dict[str, Any]) -> Choice:
    message = choice.get("message") or choice.get("delta") or {}
    text = choice.get("text") or message.get("content") or ""
    reason = choice.get("finish_reason")
    if reason == "stop":
        reason = "eos_token" if choice.get("stop_reason") is None else "stop_sequence"

    logprobs = choice.get("logprobs") or {}
    if "content" in logprobs:
        pieces = [item["token"] for item in logprobs["content"] or ()]
        values = [item["logprob"] for item in logprobs["content"] or ()]
    else:
        pieces, values = logprobs.get("tokens") or [], logprobs.get("token_logprobs") or []
    ids = choice.get("token_ids") or []
    if len(pieces) != len(ids) or "".join(pieces) != text:
        # Tokens that end inside a character, or are hidden, have no text of their own.
        # Clients join what they get, so it has to add up: all of it goes with the last.
        pieces = [""] * (len(ids) - 1) + [text] if ids else []
    values = values if len(values) == len(ids) else [None] * len(ids)
    tokens = [
        {"id": token, "text": piece, "logprob": value, "special": False}
        for token, piece, value in zip(ids, pieces, values, strict=True)
    ]
    if tokens and reason == "eos_token" and not tokens[-1]["text"]:
        tokens[-1]["special"] = True
    return Choice(text, reason, tokens)


def error_message(reply: object) -> str:
    """The message in an error of vLLM, FastAPI or anything else."""
    if isinstance(reply, dict):
        reply = reply.get("error", reply.get("detail", reply))
    if isinstance(reply, dict):
        reply = reply.get("message", reply)
    text = reply if isinstance(reply, str) else json.dumps(reply)
    return text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]}..."


async def send_json(send: Send, status: int, value: object, headers: Any = ()) -> None:
    body = json.dumps(value, ensure_ascii=False).encode(errors=AS_JSON)
    ours = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *ours]})
    await send({"type": "http.response.body", "body": body})


def header(headers: Any, name: bytes) -> bytes:
    return next((bytes(value) for key, value in headers if key.lower() == name), b"")


def without(headers: Any, *names: bytes) -> Iterator[tuple[bytes, bytes]]:
    return ((key, value) for key, value in headers if key.lower() not in names)
