"""Requests of a load: as specified, and as the workload completes them.

A named workload has a shape, not lengths alone: turns, a prompt that all requests share,
tools, a mix of lengths.  What the user states wins over it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from packager.addons.bench.load.adapters import parse_shares
from packager.addons.bench.load.template import RequestTemplate, parse_template
from packager.core.documents import NotStrict, parse_json
from packager.core.errors import UsageError
from packager.core.fields import CommandOption
from packager.core.pictures import parse_images
from packager.core.workload import LONGEST, PASSAGES, QUESTIONS, Workload

EndpointKind = Literal[
    "chat", "completions", "invocations", "embeddings", "rerank", "score", "classify"
]
PATHS: Mapping[EndpointKind, str] = MappingProxyType(
    {
        "chat": "/v1/chat/completions",
        "completions": "/v1/completions",
        "invocations": "/invocations",  # SageMaker's; takes the body of a chat, or of embeddings
        "embeddings": "/v1/embeddings",
        "rerank": "/rerank",
        "score": "/score",
        "classify": "/classify",
    }
)
POOLED = frozenset(("embeddings", "rerank", "score", "classify"))  # texts in, no text out
PAIRED = frozenset(("rerank", "score"))  # of a query and passages
MOST_TURNS = 1000
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
# Fields that packager sets: others would change the counts or the model.
_OURS = frozenset(
    {
        *("messages", "prompt", "model", "stream", "stream_options", "max_tokens"),
        *("input", "query", "documents", "texts", "text_1", "text_2"),
    }
)

Lengths = tuple[int, int]  # tokens of a prompt and of its answer


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """Requests as they are asked for. None, 0 or "": as the workload or the engine has it."""

    workload: Annotated[
        str,
        Field(
            description="requests to send: a name such as `chat`, tokens in and out, or a file of "
            "recorded requests whose lengths are taken"
        ),
        CommandOption(metavar="NAME|IN:OUT|FILE"),
    ] = "questions"
    data: Annotated[
        str,
        Field(
            description="send the requests of this data instead of made ones: a file, a "
            "directory, s3://…, hf://datasets/…"
        ),
        CommandOption(metavar="DATA"),
    ] = ""
    endpoint: Annotated[
        EndpointKind,
        Field(
            description="what is asked: `invocations` is SageMaker's path; the last four are of "
            "vectors and scores, with --workload embed:TOKENSxTEXTS"
        ),
    ] = "chat"
    input_tokens: Annotated[
        int | None,
        Field(ge=1, le=LONGEST, description="tokens of a prompt in the mean, not the workload's"),
    ] = None
    input_stddev: Annotated[
        float, Field(ge=0, le=LONGEST, description="standard deviation of the tokens of prompts")
    ] = 0.0
    output_tokens: Annotated[
        int | None,
        Field(ge=1, le=LONGEST, description="tokens of an answer in the mean, not the workload's"),
    ] = None
    output_stddev: Annotated[
        float, Field(ge=0, le=LONGEST, description="standard deviation of the tokens of answers")
    ] = 0.0
    ignore_eos: Annotated[
        bool | None,
        Field(
            description="make every answer as long as asked for; by default where the engine can "
            "and prompts are made ones"
        ),
    ] = None
    prefix_tokens: Annotated[
        int | None,
        Field(ge=0, le=LONGEST, description="tokens of a system prompt that all requests share"),
    ] = None
    turns: Annotated[
        int | None,
        Field(
            ge=1,
            le=MOST_TURNS,
            description="turns of the user in a conversation, the last one included",
        ),
    ] = None
    tools: Annotated[
        bool | None, Field(description="describe tools to the model in every request")
    ] = None
    images: Annotated[
        str,
        Field(
            description="pictures in each request, made here: how many, and their width and "
            "height, such as `1x1024x1024`"
        ),
        CommandOption(metavar="NxWxH"),
    ] = ""
    adapter_shares: Annotated[
        tuple[str, ...],
        Field(
            description="send requests to this adapter, as many as its share of all: `sql=3`; 1 "
            "without one. The base has a name, too, and '*' are all that the server lists"
        ),
        CommandOption(flag="--adapter", metavar="NAME[=SHARE]"),
    ] = ()
    adapter_zipf: Annotated[
        float | None,
        Field(gt=0, le=10, description="divide the share of the adapter at place k by k^S"),
        CommandOption(metavar="S"),
    ] = None
    stream: Annotated[
        bool | None, Field(description="have answers streamed, which timing of tokens needs")
    ] = None
    temperature: Annotated[float, Field(ge=0, le=2, description="temperature of sampling")] = 0.0
    seed: Annotated[int, Field(ge=0, description="seed of prompts, lengths and arrivals")] = 0
    extra: Annotated[
        tuple[str, ...],
        Field(description="another field of every request's body, such as `top_p=0.9`"),
        CommandOption(metavar="NAME=JSON"),
    ] = ()
    request_template: Annotated[
        str,
        Field(
            description="print the bodies of requests to /invocations with this Jinja2 template: "
            "a file, s3://…, or the template itself"
        ),
        CommandOption(metavar="TEMPLATE"),
    ] = ""
    response_field: Annotated[
        str,
        Field(description="where the text of an answer is, with a template: a JMESPath expression"),
        CommandOption(metavar="EXPRESSION"),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """Requests with everything decided; what a `RequestSpec` and its workload come to."""

    name: str
    endpoint: EndpointKind = "chat"
    input_tokens: int
    input_stddev: float = 0.0
    output_tokens: int
    output_stddev: float = 0.0
    states_output: bool = False  # else the answers that were recorded say how long answers are
    lengths: tuple[Lengths, ...] = ()  # drawn from, instead of means and deviations
    prefix_tokens: int = 0
    turns: int = 1
    documents: int = 0  # texts in the prompt that the question is about
    tools: bool = False
    images: str = ""  # `1x1024x1024`, in the last turn
    texts: int = 0  # that vectors or scores are asked for; 0: the request is answered
    passages: str = "documents"  # what a reranker's body calls them; TEI's `texts`
    stream: bool = True
    exact_output: bool = False  # requests set the engine's `ignore_eos`
    temperature: float = 0.0
    seed: int = 0
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    template: RequestTemplate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """What a named workload has beside its lengths."""

    turns: int = 1
    prefix_share: float = 0.0  # of the prompt's tokens
    documents: int = 0
    tools: bool = False
    stream: bool = True
    mix: tuple[Lengths, ...] = ()  # of a mean that the workload's lengths state


# Means of the mix are the workload's own: 1,024 tokens in, 200 out.
_MIX = 5 * ((512, 150),) + 3 * ((1024, 200),) + 2 * ((2304, 325),)
_FORMS: Mapping[str, _Form] = MappingProxyType(
    {
        "multi_turn_chat": _Form(turns=4),
        "rag_document_qa": _Form(documents=4),
        "agent_tool_calling": _Form(tools=True, stream=False),
        "long_context_scaling": _Form(documents=1),
        "production_traffic_mix": _Form(mix=_MIX),
        "shared_system_prompt": _Form(prefix_share=2 / 3),
        "summarise": _Form(documents=1),
    }
)


def settle(
    spec: RequestSpec,
    workload: Workload = QUESTIONS,
    *,
    lengths: Sequence[Lengths] = (),
    forces_length: bool = False,
) -> RequestShape:
    """Return the shape of the requests; raise `UsageError` where fields contradict each other.

    `workload` is what `spec.workload` stands for, `lengths` those of a file, and `forces_length`
    whether the engine has `ignore_eos`.
    """
    if workload.texts or spec.endpoint in POOLED:
        return _settle_texts(spec, workload, lengths)
    form = _FORMS.get(spec.workload, _Form())
    stated = spec.input_tokens is not None or spec.output_tokens is not None
    drawn = () if stated else tuple(lengths) or form.mix
    if drawn and (spec.input_stddev or spec.output_stddev):
        raise UsageError(
            "lengths are drawn from those of the workload, and have a standard deviation of it",
            hint="state the means, too: --input-tokens N --output-tokens N",
        )
    _check_data(spec)
    if spec.adapter_zipf and not spec.adapter_shares:
        raise UsageError("--adapter-zipf is of adapters, and none is named", hint="add --adapter")
    parse_shares(spec.adapter_shares)
    prompt = spec.input_tokens or workload.input_tokens
    shape = RequestShape(
        name=workload.name,
        endpoint="invocations" if spec.request_template else spec.endpoint,
        input_tokens=prompt,
        input_stddev=spec.input_stddev,
        output_tokens=spec.output_tokens or workload.output_tokens,
        output_stddev=spec.output_stddev,
        states_output=spec.output_tokens is not None,
        lengths=drawn,
        prefix_tokens=round(prompt * form.prefix_share)
        if spec.prefix_tokens is None
        else spec.prefix_tokens,
        turns=form.turns if spec.turns is None else spec.turns,
        documents=form.documents,
        tools=form.tools if spec.tools is None else spec.tools,
        images=spec.images,
        stream=form.stream if spec.stream is None else spec.stream,
        exact_output=forces_length and not (spec.data or spec.request_template)
        if spec.ignore_eos is None
        else spec.ignore_eos,
        temperature=spec.temperature,
        seed=spec.seed,
        extra=MappingProxyType(
            body_fields(spec.extra, reserved=frozenset() if spec.request_template else _OURS)
        ),
        template=parse_template(spec.request_template, spec.response_field)
        if spec.request_template
        else None,
    )
    _check(shape, spec)
    return shape


def _settle_texts(
    spec: RequestSpec, workload: Workload, lengths: Sequence[Lengths]
) -> RequestShape:
    """Return the shape of requests for vectors or scores, which are neither turns nor streams."""
    others = {
        "--data": spec.data,
        "--output-tokens": spec.output_tokens,
        "--output-stddev": spec.output_stddev,
        "--prefix-tokens": spec.prefix_tokens,
        "--turns": spec.turns,
        "--tools": spec.tools,
        "--images": spec.images,
        "--ignore-eos": spec.ignore_eos,
        "--stream": spec.stream,
        "--temperature": spec.temperature,
        "--request-template": spec.request_template,
        "--response-field": spec.response_field,
    }
    stated = [flag for flag, value in others.items() if value]
    if stated or spec.endpoint == "completions":
        flag = stated[0] if stated else "--endpoint completions"
        raise UsageError(
            f"requests for vectors or scores have made texts and no answer: {flag} means nothing",
            hint=f"leave {flag} out, or write --workload IN:OUT for a model that writes text",
        )
    tokens = PASSAGES if workload == QUESTIONS else workload
    return RequestShape(
        name=workload.name if workload.texts else PASSAGES.name,
        endpoint="embeddings" if spec.endpoint == "chat" else spec.endpoint,
        input_tokens=spec.input_tokens or tokens.input_tokens,
        input_stddev=spec.input_stddev,
        output_tokens=0,
        lengths=() if spec.input_tokens else tuple(lengths),
        texts=workload.texts or 1,
        stream=False,
        seed=spec.seed,
        extra=MappingProxyType(body_fields(spec.extra)),
    )


def body_fields(given: Sequence[str], *, reserved: frozenset[str] = _OURS) -> dict[str, Any]:
    """Parse `NAME=JSON` fields of a request's body; what is no JSON is a text."""
    found: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not _FIELD.fullmatch(name):
            raise UsageError(
                f"{one[:100]!r} is not a field of a request", hint="write NAME=JSON: top_p=0.9"
            )
        if name in reserved:
            raise UsageError(
                f"the field {name!r} of a request has an option of its own, or is packager's",
                hint="`packager bench --help` lists what is sent",
            )
        try:
            found[name] = parse_json(text.encode())
        except NotStrict:
            if text[:1] in ("{", "[", '"'):
                raise UsageError(
                    f"the value of the field {name!r} is not JSON",
                    hint="write NAME=JSON: top_p=0.9",
                ) from None
            found[name] = text
    return found


def _check_data(spec: RequestSpec) -> None:
    """Refuse what would change prompts, where they are the user's own."""
    made = {
        "--input-tokens": spec.input_tokens,
        "--input-stddev": spec.input_stddev,
        "--output-stddev": spec.output_stddev,
        "--prefix-tokens": spec.prefix_tokens,
        "--turns": spec.turns,
    }
    stated = [flag for flag, value in made.items() if value]
    if spec.data and stated:
        raise UsageError(
            f"requests of --data are sent as they are, and {stated[0]} is for made ones",
            hint="leave one of the two out; --workload FILE takes the lengths of requests alone",
        )


def _check(shape: RequestShape, spec: RequestSpec) -> None:
    """Refuse what the endpoint or the lengths have no room for."""
    _check_template(shape, spec)
    if shape.images:
        parse_images(shape.images)
    if shape.endpoint == "completions" and (shape.turns > 1 or shape.tools or shape.images):
        what = "turns" if shape.turns > 1 else "tools" if shape.tools else "pictures"
        raise UsageError(
            f"the endpoint completions takes one text, without {what}",
            hint=f"--endpoint chat, or leave the {what} out",
        )
    shortest = min((one[0] for one in shape.lengths), default=shape.input_tokens)
    if shape.prefix_tokens >= shortest and not spec.data:
        raise UsageError(
            f"prompts of {shortest} tokens have no room for {shape.prefix_tokens} tokens that all "
            "requests share",
            hint="a smaller --prefix-tokens, or a larger --input-tokens",
        )


def _check_template(shape: RequestShape, spec: RequestSpec) -> None:
    """Refuse what a request template does not print: it gets one text."""
    if not spec.request_template:
        if spec.response_field:
            raise UsageError(
                "--response-field is for answers to a request template",
                hint="add --request-template TEMPLATE",
            )
        return
    if spec.adapter_shares:
        raise UsageError(
            "a request template names the model itself, and --adapter another",
            hint="leave one of the two out",
        )
    if spec.endpoint == "completions":
        raise UsageError(
            "a request template prints bodies for /invocations, not completions",
            hint="leave --endpoint out",
        )
    parts = {
        "turns": shape.turns > 1,
        "tools": shape.tools,
        "pictures": bool(shape.images),
        "a shared prompt": shape.prefix_tokens,
    }
    for what, has in parts.items():
        if has:
            raise UsageError(
                f"a request template gets one text, without {what}",
                hint=f"leave {what} out, or the template",
            )
