"""One answer of a server, put together from its bytes as they come.

OpenAI's chats and completions, streamed or whole; TGI's and LMI's own forms, which
`/invocations` of their containers answer.  Text comes in chunks; with speculation a chunk may
hold several tokens, so tokens are what the server counts, never chunks.

A chunk counts if it has text, reasoning or arguments of a tool's call.  A chunk with only the role
or the usage, or an empty one, does not: it is not the first token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from packager.addons.bench.load.events import DONE, EventReader, InvalidEvent
from packager.addons.bench.load.values import Chunk, Failure
from packager.core.text import quote_answer

LONGEST_ANSWER = 64 * 1024 * 1024  # bytes; more cannot be the answer of some thousand tokens
_MOST_TOKENS = 2**31  # of an answer
_STREAMS = ("text/event-stream", "application/jsonlines", "application/x-ndjson")
_BESIDE_CHOICES = ("error", "usage", "prompt_token_ids")
_BESIDE_TEXT = ("finish_reason", "token_ids", "prompt_token_ids")
_BESIDE_CONTENT = ("reasoning_content", "reasoning", "refusal", "tool_calls")
_OTHER_FORM = "a chunk of its answer has another form than OpenAI's"


class AnswerFailed(Exception):
    """The answer is none, or cannot be used. Says as what it counts."""

    def __init__(self, failure: Failure, reason: str) -> None:
        super().__init__(reason)
        self.failure: Failure = failure
        self.reason = reason


class AnswerReader:
    """Reads one answer with status 200. Times are the caller's clock at each read."""

    def __init__(self, content_type: str) -> None:
        self._kind = content_type.partition(";")[0].strip().lower()
        self._is_whole = self._kind == "application/json"
        self._is_stream = self._kind in _STREAMS
        self._events = EventReader(lines=self._kind in _STREAMS[1:])
        self._whole: list[bytes] = []  # of an answer that is not streamed
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._size = 0
        self.chunks: list[Chunk] = []
        self.texts = 0  # that got a vector or a score
        self.prompt_token_ids: tuple[int, ...] = ()
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.is_complete = False  # its end has come, whatever comes after it

    @property
    def is_streamed(self) -> bool:
        """Whether it came in pieces, even if not requested."""
        return not self._is_whole

    @property
    def text(self) -> str:
        """Return the text so far; half of a surrogate pair becomes a replacement character."""
        text = "".join(self._texts)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Return the answer's tokens; empty if the server does not report them."""
        return tuple(self._ids)

    def feed(self, data: bytes, at_s: float) -> None:
        """Parse the bytes that came in one read. Raises `AnswerFailed`."""
        self._size += len(data)
        if self._size > LONGEST_ANSWER:
            raise AnswerFailed("invalid", "its answer does not end")
        if not (self._is_whole or self._is_stream):
            self._is_whole = data.lstrip()[:1] in (b"{", b"[")
            self._is_stream = not self._is_whole
        if self._is_whole:
            self._whole.append(data)
        elif (event := self._events.only(data)) is None:
            self._take_all(self._events.feed(data), at_s)
        elif not self._is_common(event, at_s):
            self._take_all(iter((event,)), at_s)

    def end(self, at_s: float) -> None:
        """Check the end of the body. Raises `AnswerFailed` for one that came too early."""
        if self._is_whole:
            self._take_whole()
        else:
            self._take_all(self._events.end(), at_s)
        if not self.is_complete and self._kind not in _STREAMS and not self.chunks:
            kind = quote_answer(self._kind, 80) or "nothing"
            raise AnswerFailed("invalid", f"its answer is {kind}")
        if not self.is_complete:
            raise AnswerFailed("cut", "its answer has no end: no [DONE], no finish reason")

    def _is_common(self, event: dict[str, Any], at_s: float) -> bool:
        """Use the event of nearly every read; return False, with nothing used, for all others.

        It is a piece of text of one choice, without its end, usage, numbers of tokens, thoughts.
        """
        choices = event.get("choices")
        if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
            return False
        choice = choices[0]
        if any(map(event.get, _BESIDE_CHOICES)) or any(map(choice.get, _BESIDE_TEXT)):
            return False
        text, said = choice.get("text"), choice.get("delta")
        if type(said) is dict and not text and not any(map(said.get, _BESIDE_CONTENT)):
            text = said.get("content")
        elif said:
            return False
        if type(text) is not str:
            return False
        self._keep(text, at_s, len(self._ids), is_reasoning=False)
        return True

    def _take_all(self, events: Iterator[Any], at_s: float) -> None:
        try:
            for event in events:
                if event is DONE:
                    self.is_complete = True
                else:
                    self._take(event, at_s)
        except InvalidEvent as error:
            raise AnswerFailed("invalid", str(error)) from error
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise AnswerFailed("invalid", _OTHER_FORM) from error

    def _take(self, event: Any, at_s: float) -> None:
        if not isinstance(event, dict):
            raise AnswerFailed("invalid", "a chunk of its answer is not an object")
        if event.get("error"):
            raise AnswerFailed("server", f"it broke off: {_quoted(event['error'])}")
        if event.get("usage"):
            self._count(event["usage"])
        text, is_reasoning = "", False
        if "choices" in event:
            is_reasoning = all(_is_thought(choice) for choice in event["choices"] or ())
            self.prompt_token_ids = self.prompt_token_ids or _ids(event.get("prompt_token_ids"))
            for choice in event["choices"] or ():
                text += self._choice(choice, choice.get("delta"))
        elif "token" in event:
            text = self._token(event)
        count = self.output_tokens if event.get("usage") else len(self._ids)
        self._keep(text, at_s, count, is_reasoning=is_reasoning)

    def _keep(self, text: str, at_s: float, count: int | None, *, is_reasoning: bool) -> None:
        """Keep the text of a chunk, if it has any."""
        if text:
            self._texts.append(text)
            self.chunks.append(Chunk(at_s=at_s, tokens=count or None, is_reasoning=is_reasoning))

    def _take_whole(self) -> None:
        """Parse an answer that came in one piece; it has no chunks."""
        try:
            said = json.loads(b"".join(self._whole).decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise AnswerFailed("invalid", "its answer is not JSON") from error
        try:
            self._document(said)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise AnswerFailed("invalid", "its answer has another form than OpenAI's") from error
        self.is_complete = True

    def _document(self, said: Any) -> None:
        said = said[0] if isinstance(said, list) and said else said
        if said.get("error"):
            raise AnswerFailed("server", f"it broke off: {_quoted(said['error'])}")
        if said.get("usage"):
            self._count(said["usage"])
        if "generated_text" in said:
            self._texts.append(_text(said["generated_text"]))
            self._details(said.get("details"))
            return
        self.prompt_token_ids = _ids(said.get("prompt_token_ids"))
        for choice in said["choices"]:
            self._texts.append(self._choice(choice, choice.get("message")))

    def _choice(self, choice: Mapping[str, Any], said: Mapping[str, Any] | None) -> str:
        """Return the text of one choice; store its other fields."""
        self.prompt_token_ids = self.prompt_token_ids or _ids(choice.get("prompt_token_ids"))
        if choice.get("token_ids"):
            self._ids += map(_number, choice["token_ids"])
        if choice.get("finish_reason"):
            self.is_complete = True
        text = _text(choice.get("text") or "")
        return text + _said(said) if said else text

    def _token(self, event: Mapping[str, Any]) -> str:
        """Return the text of one token of TGI or LMI; the last has the details of all."""
        token = event["token"]
        if event.get("generated_text") is not None or event.get("details"):
            self.is_complete = True
            self._details(event.get("details"))
        return "" if token.get("special") else _text(token.get("text") or "")

    def _details(self, details: Mapping[str, Any] | None) -> None:
        counts = details or {}
        if counts.get("generated_tokens") is not None:
            self.output_tokens = _number(counts["generated_tokens"])
        if counts.get("input_length") is not None:
            self.input_tokens = _number(counts["input_length"])
        elif counts.get("prefill"):
            self.input_tokens = len(counts["prefill"])

    def _count(self, usage: Mapping[str, Any]) -> None:
        self.output_tokens = _number(usage["completion_tokens"])
        if usage.get("prompt_tokens") is not None:
            self.input_tokens = _number(usage["prompt_tokens"])
        reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
        if reasoning is not None:
            self.reasoning_tokens = _number(reasoning)


def _quoted(error: object) -> str:
    return quote_answer(json.dumps(error), 300)


def _said(message: Mapping[str, Any]) -> str:
    """Return the text of a message or a piece of one: words, reasoning, calls of tools."""
    text = _text(message.get("reasoning_content") or message.get("reasoning") or "")
    text += _text(message.get("content") or message.get("refusal") or "")
    for call in message.get("tool_calls") or ():
        called = call.get("function") or {}
        text += _text(called.get("name") or "") + _text(called.get("arguments") or "")
    return text


def _is_thought(choice: Mapping[str, Any]) -> bool:
    """Whether a piece has only reasoning, without text or a tool's call."""
    said = choice.get("delta") or {}
    has_answer = choice.get("text") or any(
        said.get(key) for key in ("content", "refusal", "tool_calls")
    )
    return bool(said.get("reasoning_content") or said.get("reasoning")) and not has_answer


def _ids(value: object) -> tuple[int, ...]:
    """Return the numbers of tokens; none if not reported."""
    return tuple(map(_number, value)) if isinstance(value, list) else ()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text is a string")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST_TOKENS:
        raise ValueError("tokens are counted")
    return value
