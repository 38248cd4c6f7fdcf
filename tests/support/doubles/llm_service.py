"""The server behind `tests.support.llm_double`: answers whose every chunk has its time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from tests.support.doubles.pooled_answers import PATHS as POOLED
from tests.support.doubles.pooled_answers import pooled_document

Mode = Literal[
    "ok",
    "empty",  # an answer without a token
    "status",  # `status` and an error of OpenAI's form
    "refuse",  # closes the connection before its answer's head
    "cut",  # the connection breaks in the middle of the answer
    "ends",  # the body ends in the middle, politely: no [DONE], no finish reason
    "not-json",  # a chunk in the middle is no JSON
    "other-form",  # a chunk in the middle has another form than OpenAI's
    "error",  # an error in a chunk, in the middle
    "html",  # a page with status 200
    "drip",  # one byte every `drip_s`
    "silent",  # no answer, not even a head
    "slow-first",  # the first bytes come after `slow_s`
]
DRAFTED = 4  # tokens that are proposed at a time


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How requests are answered. Seconds count from when a request is there, whole."""

    mode: Mode = "ok"
    ttft_s: float = 0.0  # until the first chunk with content
    itl_s: float = 0.0  # between chunks with content
    tokens: int | None = None  # of an answer; None: the request's `max_tokens`
    tokens_per_chunk: int = 1  # the first chunk has one; more are counted as a draft's
    chunks_per_write: int = 1  # as many events reach the client at once
    status: int = 500
    slow_s: float = 1.0
    drip_s: float = 1.0
    usage: bool = True  # tells it where `stream_options` ask for it
    usage_off_by: int = 0  # more tokens told than there are
    done: bool = True  # [DONE] at the end
    refuses: tuple[str, ...] = ()  # fields of bodies that are answered with 400
    metrics: bool = True
    tokenize: bool = True
    model: str = "double"
    tei: bool = False  # texts and metrics are named as text-embeddings-inference has them
    words: str = "w"  # of answers: `w0 w1 w2 `; another one is another model
    adapters: tuple[str, ...] = ()  # that are listed and answer with odds of their own
    base_answers: bool = False  # in their place


@dataclass(kw_only=True)
class Record:
    """What became of one request. Times are those of `time.monotonic`, in seconds."""

    number: int
    path: str
    mode: Mode
    came_s: float
    sent_s: list[float] = field(default_factory=list)  # each chunk with content
    ended_s: float = 0.0  # its last bytes
    tokens: int = 0  # that were sent
    prompt_tokens: int = 0
    running: int = 0  # requests at its begin, itself included
    body: dict[str, Any] = field(default_factory=dict)


_CAME: dict[int, float] = {}  # when bytes came last, by connection
_take = RequestHandler.data_received


def _note_and_take(handler: RequestHandler[Any], data: bytes) -> None:
    """Note when bytes come: of many requests at once the last waits for its handler."""
    _CAME[id(handler)] = time.monotonic()
    _take(handler, data)


RequestHandler.data_received = _note_and_take  # type: ignore[method-assign]


class Service:
    """The server itself, in one event loop."""

    def __init__(self, behaviour: Behaviour, modes: Sequence[Mode]) -> None:
        self.behaviour = behaviour
        self.modes = tuple(modes)
        self.records: list[Record] = []
        self.running = 0
        self.answered = self.tokens = self.drafts = self.accepted = 0

    async def start(self) -> int:
        """Listen on a port of loopback, and return it."""
        app = web.Application(client_max_size=2**28)
        app.router.add_route("*", "/{path:.*}", self.serve)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        self.site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await self.site.start()
        return int(runner.addresses[0][1])

    async def serve(self, request: web.Request) -> web.StreamResponse:
        path = f"/{request.match_info['path']}"
        first, _, rest = path[1:].partition("/")
        mode: Mode | None = None
        if first in get_args(Mode):
            mode, path = first, f"/{rest}"  # type: ignore[assignment]
        if path == "/double/records":
            return web.json_response([asdict(record) for record in self.records])
        if path == "/double/forget":
            self.records.clear()
            return web.Response()
        if path == "/double/behave":
            self.behaviour = behaviour_of(await request.json())
            return web.Response()
        own: dict[str, Callable[[], web.Response]] = {
            "/ping": web.Response,
            "/health": web.Response,
            "/v1/models": lambda: web.json_response({"object": "list", "data": self.models()}),
        }
        if self.behaviour.metrics:
            own["/metrics"] = lambda: web.Response(text=self.metrics())
        if path in own:
            return own[path]()
        if path == "/tokenize" and self.behaviour.tokenize:
            return self.tokenized(await request.json())
        if path in ("/v1/chat/completions", "/v1/completions", "/invocations", *POOLED):
            return await self.answer(request, path, mode)
        return web.json_response({"error": {"message": f"no such path: {path}"}}, status=404)

    def models(self) -> list[dict[str, Any]]:
        base, adapters = self.behaviour.model, self.behaviour.adapters
        return [{"id": base}, *({"id": one, "parent": base} for one in adapters)]

    def tokenized(self, body: Mapping[str, Any]) -> web.Response:
        words = _prompt(body).split()
        tokens = [_token(word) for word in words]
        return web.json_response({"count": len(tokens), "tokens": tokens, "max_model_len": 4096})

    def metrics(self) -> str:
        """Spell its counters as vLLM does, without a draft where chunks have one token."""
        if self.behaviour.tei:
            return f"te_request_count {self.answered}\n"
        labels = f'engine="0",model_name="{self.behaviour.model}"'
        counts = {
            "generation_tokens_total": self.tokens,
            "request_success_total": self.answered,
            "num_requests_running": self.running,
        }
        if self.drafts or self.behaviour.tokens_per_chunk > 1:
            counts |= {
                "spec_decode_num_drafts_total": self.drafts,
                "spec_decode_num_draft_tokens_total": self.drafts * DRAFTED,
                "spec_decode_num_accepted_tokens_total": self.accepted,
            }
        return "".join(
            f"vllm:{name}{{{labels}}} {float(value)}\n" for name, value in counts.items()
        )

    async def answer(
        self, request: web.Request, path: str, mode: Mode | None
    ) -> web.StreamResponse:
        body = await request.json()
        number = len(self.records)
        how = self.behaviour
        if self.modes:
            how = replace(how, mode=self.modes[number % len(self.modes)])
        if mode is not None:
            how = replace(how, mode=mode)
        how = replace(how, **body.get("double", {}))
        record = Record(
            number=number,
            path=path,
            mode=how.mode,
            came_s=_CAME.get(id(request.protocol), time.monotonic()),
            prompt_tokens=len(_prompt(body).split()),
            running=self.running + 1,
            body=body,
        )
        self.records.append(record)
        self.running += 1
        try:
            return await self.answered_as(request, body, how, record)
        except ConnectionError:  # nobody takes the answer any more
            return web.Response()
        finally:
            self.running -= 1
            record.ended_s = record.ended_s or time.monotonic()

    async def answered_as(
        self, request: web.Request, body: Mapping[str, Any], how: Behaviour, record: Record
    ) -> web.StreamResponse:
        refused = next((name for name in how.refuses if name in body), "")
        if refused:
            said = {"error": {"message": f"unknown field {refused!r}"}}
            return web.json_response(said, status=400)
        if how.mode == "status":
            await asyncio.sleep(how.ttft_s)
            said = {"error": {"message": "the double fails", "code": how.status}}
            return web.json_response(said, status=how.status)
        if how.mode == "html":
            return web.Response(text="<html>welcome</html>", content_type="text/html")
        if how.mode == "silent":
            await asyncio.sleep(3600)
        if how.mode == "refuse":
            _break(request)
            return web.Response()
        tokens = how.tokens if how.tokens is not None else int(body.get("max_tokens") or 16)
        if how.mode == "empty":
            tokens = 0
        if how.mode == "slow-first":
            how = replace(how, ttft_s=how.slow_s)
        if record.path in POOLED or "input" in body:
            return await self.pooled(body, how, record)
        answer = _Answer(self, request, body, how, record, tokens)
        return await (answer.streamed() if body.get("stream") else answer.whole())

    async def pooled(self, body: Mapping[str, Any], how: Behaviour, record: Record) -> web.Response:
        document, record.prompt_tokens = pooled_document(record.path, body, tei=how.tei)
        await _until(record.came_s + how.ttft_s)
        self.answered += 1
        record.ended_s = time.monotonic()
        if how.usage and isinstance(document, dict):
            document["usage"] = {"prompt_tokens": record.prompt_tokens}
        return web.json_response(document, status=200 if document else 422)


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer with status 200."""

    service: Service
    request: web.Request
    body: Mapping[str, Any]
    how: Behaviour
    record: Record
    tokens: int

    @property
    def is_chat(self) -> bool:
        return "messages" in self.body

    def tells(self, option: str = "include_usage") -> bool:
        """Whether usage is told, at the end or with every chunk."""
        options = self.body.get("stream_options") or {}
        return self.how.usage and bool(options.get("include_usage") and options.get(option))

    async def whole(self) -> web.Response:
        how, record = self.how, self.record
        chunks = -(-(self.tokens - 1) // how.tokens_per_chunk) if self.tokens else 0
        await _until(record.came_s + how.ttft_s + how.itl_s * chunks)
        if how.mode in ("not-json", "cut", "ends"):
            return web.Response(text='{"choices": [', content_type="application/json")
        if how.mode == "error":
            return web.json_response({"error": {"message": "the double fails"}})
        text = "".join(f"{how.words}{place} " for place in range(self.tokens))
        choice = (
            {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}
        )
        document: dict[str, Any] = {"choices": [{**choice, "index": 0, "finish_reason": "length"}]}
        if how.mode == "other-form":
            document = {"choices": 5}
        if how.adapters and "logprobs" in self.body:
            moved = 0.0 if how.base_answers else float(self.body["model"] in how.adapters)
            document["choices"][0]["logprobs"] = {"top_logprobs": [{"a": -1 - moved, "b": -9}]}
        if how.usage:
            document["usage"] = self.usage(self.tokens)
        self.count(self.tokens, drafted=False)
        self.service.answered += 1
        record.ended_s = time.monotonic()
        return web.json_response(document)

    async def streamed(self) -> web.StreamResponse:
        how, record = self.how, self.record
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        if how.mode == "drip":
            return await self.dripping(response)
        opened = False
        if how.mode != "slow-first" and self.is_chat:  # the head and the role come at once
            await response.prepare(self.request)
            await response.write(self.event({"role": "assistant", "content": ""}))
            opened = True
        due = record.came_s + how.ttft_s
        place = 0
        waiting: list[bytes] = []
        while place < self.tokens:
            await _until(due)
            if not opened:
                await response.prepare(self.request)
                opened = True
            if place and place * 2 >= self.tokens and how.mode != "ok":
                broken = await self.broken(response)
                if broken is not None:
                    return broken
            taken = min(how.tokens_per_chunk if place else 1, self.tokens - place)
            place += taken
            text = "".join(f"{how.words}{number} " for number in range(place - taken, place))
            is_last = place == self.tokens
            waiting.append(self.event({"content": text}, tokens=place, last=is_last))
            self.count(taken, drafted=place > taken and how.tokens_per_chunk > 1)
            if len(waiting) == how.chunks_per_write or is_last or place == taken:
                at = time.monotonic()
                await response.write(b"".join(waiting))
                record.sent_s += [at] * len(waiting)
                waiting.clear()
            due += how.itl_s
        if not opened:
            await _until(due)
            await response.prepare(self.request)
        if not self.tokens:
            await response.write(self.event({}, last=True))
        end = b""
        if self.tells():
            told = {"id": "d", "choices": [], "usage": self.usage(self.tokens)}
            end += b"data: " + json.dumps(told).encode() + b"\n\n"
        if how.done:
            end += b"data: [DONE]\n\n"
        record.ended_s = time.monotonic()
        await response.write(end)
        await response.write_eof()
        self.service.answered += 1
        return response

    async def broken(self, response: web.StreamResponse) -> web.StreamResponse | None:
        """Do what the mode says of the middle of an answer."""
        lines = {
            "not-json": b"data: {nothing}\n\n",
            "other-form": b'data: {"choices": [{"delta": {"content": 5}}]}\n\n',
            "error": b'data: {"error": {"message": "the double fails", "code": 500}}\n\n',
        }
        mode = self.how.mode
        if mode in lines:
            await response.write(lines[mode])
        elif mode == "cut":
            await asyncio.sleep(0)
            _break(self.request)
        elif mode != "ends":
            return None
        self.record.ended_s = time.monotonic()
        if mode != "cut":
            await response.write_eof()
        return response

    async def dripping(self, response: web.StreamResponse) -> web.StreamResponse:
        await response.prepare(self.request)
        for byte in self.event({"content": "w0 "}, tokens=1) * 1000:
            await response.write(bytes([byte]))
            await asyncio.sleep(self.how.drip_s)
        return response

    def event(self, delta: Mapping[str, Any], *, tokens: int = 0, last: bool = False) -> bytes:
        choice: dict[str, Any] = {"index": 0}
        if self.is_chat:
            choice["delta"] = dict(delta)
        else:
            choice["text"] = delta.get("content", "")
        choice["finish_reason"] = "length" if last else None
        document: dict[str, Any] = {"id": "d", "model": self.how.model, "choices": [choice]}
        if self.tells("continuous_usage_stats"):
            document["usage"] = self.usage(tokens)
        return b"data: " + json.dumps(document).encode() + b"\n\n"

    def usage(self, tokens: int) -> dict[str, int]:
        told = tokens + self.how.usage_off_by
        prompt = self.record.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": told, "total_tokens": prompt + told}

    def count(self, tokens: int, *, drafted: bool) -> None:
        self.record.tokens += tokens
        self.service.tokens += tokens
        if drafted:
            self.service.drafts += 1
            self.service.accepted += tokens - 1


async def _until(due: float) -> None:
    await asyncio.sleep(max(0.0, due - time.monotonic()))


def _break(request: web.Request) -> None:
    """Break the connection, as a process that was killed does."""
    if request.transport is not None:
        request.transport.abort()


def _prompt(body: Mapping[str, Any]) -> str:
    if "messages" in body:
        return " ".join(_words(message.get("content")) for message in body["messages"])
    prompt = body.get("prompt", body.get("inputs", ""))
    return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))


def _words(content: object) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def _token(word: str) -> int:
    return sum(word.encode()) % 30_000


def behaviour_of(settings: Mapping[str, Any]) -> Behaviour:
    return Behaviour(**{**settings, "refuses": tuple(settings.get("refuses", ()))})
