"""The serving shape: the request, completed by defaults, reduced to fit.

Defaults depend on the model and the kind of device alone.  Only on an instance
from the catalog, whose memory is the same everywhere, may they shrink or grow:
on `local` the image would depend on the building machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from packager.core.findings import Finding
from packager.core.instance import GPUS, DeviceKind, Instance
from packager.core.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedShape:
    """The numbers of a request; None: chosen by the planner."""

    max_batch: int | None = None
    max_input_tokens: int | None = None
    max_total_tokens: int | None = None
    max_prefill_tokens: int | None = None  # of one step


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeDefaults:
    """Default shape for requests that state none."""

    max_batch: int
    most_batch: int  # where growing stops
    max_total_tokens: int
    paged: bool = False  # engines hand out the cache as requests grow: a slot reserves nothing


DEFAULTS: dict[DeviceKind, ShapeDefaults] = {
    # `most_batch` is of `local`; elsewhere `planning.concurrency` limits it.
    "nvidia": ShapeDefaults(max_batch=8, most_batch=64, max_total_tokens=8192, paged=True),
    "amd": ShapeDefaults(max_batch=8, most_batch=64, max_total_tokens=8192, paged=True),
    # As in AWS's own measurements on Inferentia2: sequences of 8192, batch 8.  Static shapes
    # are compiled for a batch, so it is not made larger unasked.
    "neuron": ShapeDefaults(max_batch=8, most_batch=8, max_total_tokens=8192),
    "cpu": ShapeDefaults(max_batch=8, most_batch=8, max_total_tokens=4096),
}

ANSWER_TOKENS = 1024  # kept for the answer where the shape is ours to choose
COMFORTABLE_TOKENS = 4096  # prefer fewer sequences at once to shorter ones than this
LEAST_TOKENS = 512
LENGTH_STEP = 1024  # lengths of a workload are rounded up to multiples


def check_shape(
    requested: RequestedShape, max_positions: int, *, answers: bool = True
) -> tuple[Finding, ...]:
    """Find what contradicts itself, and prompts that fill the model's positions; 0: not known.

    Whether prompt and answer together are too long is the engine's to say: `engines.lengths`.
    """
    findings = []
    total, prompt = requested.max_total_tokens, requested.max_input_tokens
    if not answers:
        return _check_texts(total, prompt)
    if total is not None and total < 2:
        message = f"max_total_tokens {total} has no room for a prompt and an answer"
        findings.append(Finding("error", "shape-too-small", message, "ask for at least 2"))
    elif total is not None and prompt is not None and prompt >= total:
        message = f"max_input_tokens {prompt} leaves nothing of max_total_tokens {total} to answer"
        hint = f"lower max_input_tokens below {total}, or raise max_total_tokens above {prompt}"
        findings.append(Finding("error", "shape-contradiction", message, hint))
    if not max_positions:
        return tuple(findings)
    if prompt is not None and prompt >= max_positions:
        message = f"max_input_tokens {prompt} fills the model's {max_positions} positions"
        hint = f"ask for at most {max_positions - 1}"
        findings.append(Finding("error", "shape-over-positions", message, hint))
    return tuple(findings)


def _check_texts(total: int | None, text: int | None) -> tuple[Finding, ...]:
    """Find two lengths of a text: a model that writes no answer has one."""
    if total is None or text is None or total == text:
        return ()
    message = f"max_input_tokens {text} and max_total_tokens {total} differ: no answer is written"
    hint = "ask for one of them"
    return (Finding("error", "shape-contradiction", message, hint),)


def check_prefill(requested: RequestedShape) -> tuple[Finding, ...]:
    """Find a step too small for its batch: every sequence needs at least one token of it."""
    prefill, batch = requested.max_prefill_tokens, requested.max_batch
    if prefill is None or batch is None or prefill >= batch:
        return ()
    message = f"max_prefill_tokens {prefill} is less than one for each of {batch} requests"
    hint = f"raise max_prefill_tokens to {batch} or more, or leave it out"
    return (Finding("error", "prefill-too-small", message, hint),)


def note_step(requested: RequestedShape, step_tokens: int | None) -> Iterator[Finding]:
    """Note that steps are made smaller than the engine's own for the sake of the cache."""
    if step_tokens != requested.max_prefill_tokens:
        message = (
            f"steps of {step_tokens} tokens are planned: the engine keeps of every request what is "
            "not compressed yet of all tokens in flight, and its own choice would take a third of "
            "the cache and more"
        )
        hint = "state max_prefill_tokens to choose otherwise"
        yield Finding("note", "step-limited", message, hint)


def check_utilization(share: float | None, instance: Instance) -> tuple[Finding, ...]:
    """Find a requested share of GPU memory where no engine has the option."""
    if share is None or instance.kind in GPUS:
        return ()
    message = f"gpu_memory_utilization {share:g} is requested, and {instance.name} has no GPU"
    hint = "leave it out; on a processor the cache is planned in whole GiB"
    return (Finding("error", "no-gpu-memory", message, hint),)


def first_shape(
    requested: RequestedShape,
    max_positions: int,
    kind: DeviceKind,
    longest_tokens: int = 0,
    *,
    answers: bool = True,
) -> Shape:
    """Return the complete shape of a request that passed `check_shape`.

    `longest_tokens` are those of a request of the workload that the server must take.  A model
    without answers takes a text of all its tokens.
    """
    default = DEFAULTS[kind]
    total = requested.max_total_tokens
    if not answers:
        longest = max(default.max_total_tokens, longest_tokens)
        total = total or requested.max_input_tokens or min(max_positions, longest)
        batch = requested.max_batch or default.max_batch
        return Shape(max_batch=batch, max_input_tokens=total, max_total_tokens=total)
    if total is None:
        needed = requested.max_input_tokens + ANSWER_TOKENS if requested.max_input_tokens else 0
        needed = max(needed, -(-longest_tokens // LENGTH_STEP) * LENGTH_STEP)
        total = min(max_positions, max(default.max_total_tokens, needed))
    return Shape(
        max_batch=requested.max_batch or default.max_batch,
        max_input_tokens=requested.max_input_tokens or default_input_tokens(total),
        max_total_tokens=total,
    )


def default_input_tokens(max_total_tokens: int) -> int:
    """Return the input tokens that leave a quarter, at most `ANSWER_TOKENS`, for the answer."""
    return max_total_tokens - max(1, min(ANSWER_TOKENS, max_total_tokens // 4))


def smaller_shapes(requested: RequestedShape, shape: Shape) -> Iterator[Shape]:
    """Yield ever smaller shapes, beginning with `shape`; requested values stay."""
    yield shape
    may_shorten = requested.max_total_tokens is None and requested.max_input_tokens is None
    while may_shorten and shape.max_total_tokens // 2 >= COMFORTABLE_TOKENS:
        shape = _with_total(shape, shape.max_total_tokens // 2)
        yield shape
    while requested.max_batch is None and shape.max_batch > 1:
        shape = replace(shape, max_batch=shape.max_batch // 2)
        yield shape
    while may_shorten and shape.max_total_tokens // 2 >= LEAST_TOKENS:
        shape = _with_total(shape, shape.max_total_tokens // 2)
        yield shape


def shorter_shapes(requested: RequestedShape, shape: Shape) -> Iterator[Shape]:
    """Yield ever shorter shapes, beginning with `shape`; a requested length stays."""
    yield shape
    may_shorten = requested.max_total_tokens is None and requested.max_input_tokens is None
    while may_shorten and shape.max_total_tokens // 2 >= LEAST_TOKENS:
        shape = _with_total(shape, shape.max_total_tokens // 2)
        yield shape


def larger_shapes(requested: RequestedShape, shape: Shape, kind: DeviceKind) -> Iterator[Shape]:
    """Yield ever larger batches than that of `shape`, unless the batch was requested."""
    while requested.max_batch is None and shape.max_batch * 2 <= DEFAULTS[kind].most_batch:
        shape = replace(shape, max_batch=shape.max_batch * 2)
        yield shape


def _with_total(shape: Shape, max_total_tokens: int) -> Shape:
    answers = shape.max_input_tokens < shape.max_total_tokens
    return replace(
        shape,
        max_total_tokens=max_total_tokens,
        max_input_tokens=default_input_tokens(max_total_tokens) if answers else max_total_tokens,
    )
