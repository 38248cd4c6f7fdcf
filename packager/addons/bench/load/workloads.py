"""Requests of a load, made from the shape of a workload or taken from the user's data.

A made prompt is unique to its load and number: no server answers it from what it kept of an
earlier one, but for what the workload says that all requests share.  Lengths depend on the seed
and the number alone, so that every load and round gets the same ones.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packager.addons.bench.load.draws import draws, normal, shuffled
from packager.addons.bench.load.passages import passages_request
from packager.addons.bench.load.server_counts import ServerCounter
from packager.addons.bench.load.spec import PATHS, Lengths, RequestShape
from packager.addons.bench.load.texts import TextWriter, WrittenText
from packager.addons.bench.load.tokenizer import TokenCounter, TokenizerFailed
from packager.addons.bench.load.tools import TOOLS
from packager.addons.bench.load.values import LoadRequest
from packager.core.errors import ModelRefused, UsageError
from packager.core.pictures import with_pictures
from packager.core.probes import has_prompt, probe_request, prompt_end
from packager.core.samples import Sample
from packager.core.workload import estimate_tokens

# A request for one token, not streamed → its prompt's tokens, as the server counts them.
CountPrompt = Callable[[LoadRequest], int]

QUESTION = "What follows from this?"
_ANSWER_SHARE = 2  # an answer in a conversation's history is so many times as long as a question
_LEAST_TURN = 8  # tokens; below it a conversation has fewer turns
_LEAST_TEXT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSource:
    """What requests are made from.

    `template_tokens` are those that a server adds to the texts of a prompt: for its chat
    template, for descriptions of tools, in front of everything.
    """

    shape: RequestShape
    writer: TextWriter
    counter: TokenCounter | None = None  # the client's own tokenizer
    template_tokens: int = 0
    tools: tuple[Mapping[str, Any], ...] = ()  # that are described in every request
    samples: tuple[Sample, ...] = ()  # the user's; none: prompts are made
    estimates: bool = False  # the tokens of prompts: neither client nor server counts them


def open_source(
    shape: RequestShape,
    *,
    counter: TokenCounter | None = None,
    count_prompt: CountPrompt | None = None,
    samples: Sequence[Sample] = (),
) -> RequestSource:
    """Return the source of requests for one server.

    Tokens are counted by `counter`, the client's own tokenizer; without one by the server, with
    some 60 short requests; and estimated where neither is there.  `count_prompt` also tells what
    the server adds to a prompt.  Raise `ModelRefused` if `counter` cannot encode English, and
    `UsageError` if no sample is usable.
    """
    if samples:
        asked = tuple(sample for sample in samples if has_prompt(sample))
        _check_samples(shape, samples, asked)
        writer, tools = TextWriter(estimate_tokens), TOOLS if shape.tools else ()
        return RequestSource(
            shape=shape, writer=writer, counter=counter, tools=tools, samples=asked
        )
    try:
        writer = _writer(shape, counter, count_prompt)
        tools = tuple(_tools(shape, writer))
        source = RequestSource(
            shape=shape,
            writer=writer,
            counter=counter,
            tools=tools,
            estimates=counter is None and count_prompt is None,
        )
        one = replace(source, shape=replace(shape, texts=1)) if shape.texts else source
        probe, tokens = _made(one, (shape.input_tokens, 1), ("probe",))
    except TokenizerFailed as error:
        raise ModelRefused(
            f"the tokenizer cannot encode English sentences: {error}",
            hint="name the served model's own with --tokenizer, or let the server count",
        ) from error
    if shape.texts:
        added = 0 if count_prompt is None else max(0, count_prompt(_counted(shape, probe)) - tokens)
    elif count_prompt is not None:
        body = {name: value for name, value in probe.body.items() if name != "stream_options"}
        probe = replace(probe, body={**body, "stream": False})
        added = max(0, count_prompt(probe) - tokens)
    else:
        added = sum(writer.cost(json.dumps(tool)) for tool in tools)
    return replace(source, template_tokens=added)


def _counted(shape: RequestShape, probe: LoadRequest) -> LoadRequest:
    """Return the text of a request for vectors or scores, as a prompt that a server counts."""
    body = probe.body
    found = [body[name][0] for name in ("input", "text_2", shape.passages) if name in body]
    asked = [body[name] for name in ("query", "text_1") if name in body]
    return replace(probe, body={"prompt": " ".join((*asked, *found))})


def make_requests(
    source: RequestSource, load: object = "", *, skip: int = 0
) -> Iterator[LoadRequest]:
    """Yield the requests of a load, without end.

    `load` names the load and its round: other ones get other prompts.  The user's own samples
    come in an order that depends on the seed alone, beginning behind the `skip` first: those
    that earlier loads have sent.  When all were sent they are sent again.
    """
    if source.samples:
        yield from _own_requests(source, skip)
        return
    lengths = request_lengths(source.shape)
    for number, tokens in enumerate(lengths):
        yield _made(source, tokens, (load, number))[0]


def request_lengths(shape: RequestShape) -> Iterator[Lengths]:
    """Yield the tokens of prompts and answers, without end, the same ones for the same seed.

    Lengths of a file are drawn without putting them back, so that a load that sends as many
    requests as the file has gets its mean.
    """
    if shape.lengths:
        for turn in itertools.count():
            yield from shuffled(draws("lengths", shape.seed, turn), shape.lengths)
    least = shape.prefix_tokens + _LEAST_TEXT
    for number in itertools.count():
        random = draws("lengths", shape.seed, number)
        prompt = normal(random, shape.input_tokens, shape.input_stddev)
        answer = normal(random, shape.output_tokens, shape.output_stddev)
        yield max(least, round(prompt)), max(1, round(answer))


def _writer(
    shape: RequestShape, counter: TokenCounter | None, count_prompt: CountPrompt | None
) -> TextWriter:
    if counter is not None:
        return TextWriter(counter.count, asks=isinstance(counter, ServerCounter))
    if count_prompt is None:
        return TextWriter(estimate_tokens)

    def count(text: str) -> int:
        turn = _Turn("user", WrittenText(text, 0))
        body = {**_texts_body(shape, [turn]), "max_tokens": 1, "stream": False}
        return count_prompt(LoadRequest(endpoint=PATHS[shape.endpoint], body=body))

    return TextWriter(count, asks=True)


def _made(
    source: RequestSource, lengths: Lengths, key: tuple[object, ...]
) -> tuple[LoadRequest, int]:
    """Return a request of these lengths, and the tokens of its texts."""
    shape, writer = source.shape, source.writer
    prompt, answer = lengths
    if shape.texts:
        counts = source.counter is not None or (shape.passages == "texts" and not source.estimates)
        added = source.template_tokens
        return passages_request(shape, writer, prompt, key, added=added, counts=counts)
    left = max(_LEAST_TEXT, prompt - source.template_tokens)
    turns: list[_Turn] = []
    if shape.prefix_tokens:
        shared = writer.write(shape.prefix_tokens, shape.seed, "shared", tagged=False)
        turns.append(_Turn("system", shared))
        left = max(_LEAST_TEXT, left - shared.tokens)
    parts = _parts(shape, left)
    for number, (role, share) in enumerate(parts):
        is_last = number == len(parts) - 1
        spoken = sum(turn.said.tokens for turn in turns[-number:]) if number else 0
        wanted = max(_LEAST_TEXT, left - spoken if is_last else round(left * share))
        place = (shape.seed, *key, number)
        if shape.documents and number == 0:
            turns.append(_Turn(role, _documents(writer, shape.documents, wanted, place)))
        else:
            turns.append(_Turn(role, writer.write(wanted, *place, tagged=number == 0)))
    tokens = sum(turn.said.tokens for turn in turns)
    failed = any(turn.said.failed for turn in turns)
    own_count = None if source.counter is None or failed else tokens + source.template_tokens
    request = LoadRequest(
        endpoint=PATHS[shape.endpoint],
        body=_seen(shape, _body(source, _texts_body(shape, turns), answer), key),
        shown=prompt_end(turns[-1].said.text),
        template=shape.template,
        input_tokens=own_count,
        tokenizer_failed=failed,
    )
    return request, tokens


@dataclass(frozen=True, slots=True)
class _Turn:
    role: str
    said: WrittenText


def _parts(shape: RequestShape, tokens: int) -> list[tuple[str, float]]:
    """Return who speaks how much of a prompt: one question, or a history and a question."""
    turns = max(1, min(shape.turns, tokens // (_LEAST_TURN * (1 + _ANSWER_SHARE))))
    whole = turns + _ANSWER_SHARE * (turns - 1)
    asked, answered = ("user", 1 / whole), ("assistant", _ANSWER_SHARE / whole)
    return [*((turns - 1) * (asked, answered)), asked]


def _documents(
    writer: TextWriter, documents: int, tokens: int, key: tuple[object, ...]
) -> WrittenText:
    """Return documents with a question about them."""
    heads = [f"Document {number}:" for number in range(1, documents + 1)]
    frame = writer.cost("\n".join((*heads, QUESTION)))
    share = (tokens - frame) // documents
    if share < _LEAST_TURN:
        return writer.write(tokens, *key, ending=QUESTION)
    bodies = [writer.write(share, *key, head, mends=False) for head in heads]
    added = frame + sum(body.tokens for body in bodies)
    found = writer.measured(_about(heads, bodies), added)
    last = max(_LEAST_TURN, share + tokens - found.tokens)
    bodies[-1] = writer.write(last, *key, heads[-1], mends=False)
    return writer.measured(_about(heads, bodies), added - share + bodies[-1].tokens)


def _about(heads: Sequence[str], bodies: Sequence[WrittenText]) -> str:
    texts = [f"{head}\n{body.text}" for head, body in zip(heads, bodies, strict=True)]
    return "\n\n".join((*texts, QUESTION))


def _texts_body(shape: RequestShape, turns: Sequence[_Turn]) -> dict[str, Any]:
    if shape.endpoint == "completions" or shape.texts:
        return {"prompt": "\n\n".join(turn.said.text for turn in turns)}
    return {"messages": [{"role": turn.role, "content": turn.said.text} for turn in turns]}


def _tools(shape: RequestShape, writer: TextWriter) -> Iterator[Mapping[str, Any]]:
    """Yield tools, as many as half of a prompt has room for, and one at least."""
    left = shape.input_tokens // 2
    for number, tool in enumerate(TOOLS if shape.tools else ()):
        left -= writer.cost(json.dumps(tool))
        if left < 0 and number:
            return
        yield tool


def _seen(shape: RequestShape, body: dict[str, Any], key: tuple[object, ...]) -> dict[str, Any]:
    """Return the body with the pictures of the shape, where it has some."""
    if not shape.images or "messages" not in body:
        return body
    return with_pictures(body, shape.images, shape.seed, *key)


def _body(source: RequestSource, texts: Mapping[str, Any], answer: int) -> dict[str, Any]:
    """Return the body of a request: OpenAI's, or what the template prints of its text."""
    shape = source.shape
    if shape.template is None:
        return {**texts, **_settings(source, answer)}
    (text,) = _texts_of(texts)
    forced = {"ignore_eos": True} if shape.exact_output else {}
    printed = shape.template.body(text, max_tokens=answer, stream=shape.stream)
    return {**printed, **forced, **shape.extra}


def _settings(source: RequestSource, answer: int) -> dict[str, Any]:
    """Return the fields of a body that no text is in."""
    shape = source.shape
    found: dict[str, Any] = {
        "max_tokens": answer,
        "temperature": shape.temperature,
        "stream": shape.stream,
    }
    if shape.stream:
        found["stream_options"] = {"include_usage": True}
    if shape.exact_output:
        found |= {"ignore_eos": True, "min_tokens": answer}
    if source.tools:
        # Engines put the tools into the prompt all the same; a call needs a parser, which a
        # server may lack, and would answer with status 400.
        found |= {"tools": list(source.tools), "tool_choice": "none"}
    return {**found, **shape.extra}


def _own_requests(source: RequestSource, skip: int) -> Iterator[LoadRequest]:
    """Yield the user's requests in an order that depends on the seed."""
    order = shuffled(draws("samples", source.shape.seed), source.samples)
    for number in itertools.count(skip):
        yield _own_request(source, order[number % len(order)], number)


def _own_request(source: RequestSource, sample: Sample, number: int) -> LoadRequest:
    shape = source.shape
    answer = sample.messages[-1].content if sample.messages and sample.answered else None
    answer = answer or sample.completion
    answer_tokens = shape.output_tokens
    tokens: int | None = None
    failed = False
    asked = probe_request(sample, 1)
    try:
        if source.counter is not None:
            tokens = sum(map(source.counter.count, _texts_of(asked.body)))
        if answer and not shape.states_output:
            count = estimate_tokens if source.counter is None else source.counter.count
            answer_tokens = max(1, count(answer))
    except TokenizerFailed:
        tokens, failed = None, True
    text = {name: asked.body[name] for name in _PROMPTED if name in asked.body}
    return LoadRequest(
        endpoint=PATHS["invocations"] if shape.endpoint == "invocations" else asked.endpoint,
        body=_seen(shape, _body(source, text, answer_tokens), (number,)),
        shown=asked.shown,
        template=shape.template,
        input_tokens=tokens,
        tokenizer_failed=failed,
    )


# Fields of a request that make its prompt.
_PROMPTED = ("messages", "prompt", "tools", "tool_choice", "chat_template_kwargs")


def _texts_of(body: Mapping[str, Any]) -> list[str]:
    if "prompt" in body:
        return [body["prompt"]]
    return [message["content"] for message in body["messages"]]


def _check_samples(shape: RequestShape, found: Sequence[Sample], asked: Sequence[Sample]) -> None:
    """Refuse data without a question, or without one that the endpoint accepts."""
    if not asked:
        raise UsageError(
            f"none of the {len(found)} samples can be asked",
            hint="conversations need a turn of the user, prompts and texts some words",
        )
    if shape.template is not None:
        several = sum(len(probe_request(one, 1).body.get("messages", "1")) > 1 for one in asked)
        if several:
            raise UsageError(
                f"{several} of {len(asked)} samples have several messages, and a request template "
                "gets one text",
                hint="give prompts, or conversations of one question",
            )
    chats = sum(bool(sample.messages) for sample in asked)
    if shape.endpoint == "completions" and chats:
        raise UsageError(
            f"{chats} of {len(asked)} samples are conversations, and the endpoint completions "
            "takes texts",
            hint="--endpoint chat sends conversations as such, and prompts as completions",
        )
