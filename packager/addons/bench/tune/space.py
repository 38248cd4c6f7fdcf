"""Requests to try: a request with its open choices filled in, one combination after another.

Fields that the request sets stay.  Quantization, draft and split over devices multiply; a setting
of the engine is tried alone on the request as it is, unless the user varies it: then it multiplies,
too.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from packager.core.errors import UsageError
from packager.core.instance import GPUS, Instance
from packager.core.request import BuildRequest, parse_request
from packager.estimate.performance.presets import QUANTIZERS, Goal

MOST_TRIED = 256  # combinations; each is planned, which takes a tenth of a second
CPU_METHODS = ("awq", "smoothquant")  # that vLLM has fast kernels for on processors

# Fields that say what is tuned, or where: a candidate with another value would answer another
# question.
FIXED = frozenset(
    {"model", "instance", "outputs", "goal", "workload", "ttft_limit_ms", "tpot_limit_ms"}
    | {"weights", "served_name", "region", "executor", "address", "gpus", "threads", "nodes"}
    | {"trust_roots", "base_files"}
)
_QUALITY = ("evaluate", "evaluate_samples", "evaluate_tokens", "evaluate_seed")
_LIMITS = ("max_kld", "min_top1", "max_ppl_increase")
_SMALL_PREFILL, _LARGE_PREFILL = 2048, 16384  # tokens that an engine computes at once

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """Changes of the request that make a candidate of it."""

    changes: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    is_asked: bool = False  # by the user: it is measured, whatever is predicted of it
    is_spelled: bool = False  # by the user, in part: a value that no field can have is an error

    @property
    def name(self) -> str:
        """Return the command-line options that ask for it; `as requested` without changes."""
        return " ".join(_words(self.changes)) or "as requested"


@dataclass(frozen=True, slots=True)
class Axis:
    """One choice: the values of a field. None leaves it as the request has it."""

    field: str
    values: tuple[Any, ...]


def base_of(request: BuildRequest, goal: Goal) -> BuildRequest:
    """Return the request that candidates change: for the goal, without outputs and `auto`."""
    opened = {
        name: None for name in ("quantize", "draft") if getattr(request, name) in ("auto", None)
    }
    return request.model_copy(update={"goal": goal, "outputs": (), **opened})


def variations(
    request: BuildRequest,
    instance: Instance,
    goal: Goal,
    *,
    quantized: bool,
    brings_draft: bool,
    adapters: int = 0,
    varied: Sequence[Axis] = (),
) -> tuple[Variation, ...]:
    """List what is worth planning, the request as it is first.

    `quantized` says that the checkpoint is already quantized, `brings_draft` that it has an MTP
    head of its own, `adapters` how many are served beside it.  Raises `UsageError` for more
    combinations than anybody waits for.
    """
    given = {axis.field for axis in varied}
    own = [
        axis
        for axis in _axes(request, instance, quantized=quantized, brings_draft=brings_draft)
        if axis.field not in given
    ]
    axes = [*own, *varied]
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MOST_TRIED:
        raise UsageError(
            f"{count:,} combinations are too many to plan",
            hint=f"at most {MOST_TRIED} are planned: fix a choice, such as --draft none, or give "
            "fewer values with --vary",
        )
    found = [
        Variation(changes=changes, is_spelled=not given.isdisjoint(changes))
        for changes in _product(axes)
    ]
    if not any(not one.changes for one in found):
        found.insert(0, Variation())
    settings = (*_slots(request, adapters), *_settings(request, instance, goal))
    alone = [axis for axis in settings if axis.field not in given]
    found += [
        Variation(changes=MappingProxyType({axis.field: value}))
        for axis in alone
        for value in axis.values
    ]
    return tuple(found)


def request_with(request: BuildRequest, changes: Mapping[str, Any]) -> BuildRequest:
    """Return the request with changes; quality is demanded where something is quantized.

    Raises `UsageError` for values that the fields cannot have.
    """
    fields = request.model_dump(exclude_none=True)
    for name, value in changes.items():
        if name == "engine_options":
            fields[name] = {**fields.get(name, {}), **value}
        else:
            fields[name] = value
    made = parse_request(fields)
    if made.quantizing in (None, "none"):
        for name in (*_QUALITY, *_LIMITS):
            fields.pop(name, None)
    return parse_request(fields)


def refuse_fixed(names: Sequence[str], where: str) -> None:
    """Raise `UsageError` for fields in which candidates cannot differ."""
    for name in names:
        if name in FIXED:
            raise UsageError(
                f"{where} sets {name}, which is the same for all candidates",
                hint=f"give --{name.replace('_', '-')} to `packager tune` itself",
            )


def merged_axes(pairs: Sequence[tuple[str, Any]]) -> tuple[Axis, ...]:
    """Return the axes of (field, value) pairs, in input order; settings have one axis per key."""
    values: dict[str, list[Any]] = {}
    for name, value in pairs:
        key = f"{name} {next(iter(value))}" if isinstance(value, Mapping) else name
        values.setdefault(key, [])
        if value not in values[key]:
            values[key].append(value)
    return tuple(Axis(key.partition(" ")[0], tuple(found)) for key, found in values.items())


def _axes(
    request: BuildRequest, instance: Instance, *, quantized: bool, brings_draft: bool
) -> Iterator[Axis]:
    if request.quantizing is None and not quantized:
        yield Axis("quantize", (None, *_methods(instance)))
    if request.draft is None:
        yield Axis("draft", (None, "mtp" if brings_draft else "auto", "ngram"))
    splits = (request.tp_degree, request.pp_degree, request.dp_degree, request.nodes)
    if instance.devices > 1 and not any(splits):
        degrees = [2**power for power in range(8) if 2**power <= instance.devices]
        yield Axis("tp_degree", (None, *degrees))


def _methods(instance: Instance) -> Iterator[str]:
    if instance.kind == "cpu":
        yield from CPU_METHODS
    if instance.kind in GPUS:
        for method, formats in QUANTIZERS.items():
            if instance.formats.intersection(formats):
                yield method


def _slots(request: BuildRequest, adapters: int) -> Iterator[Axis]:
    """Yield how many adapters are on the devices at once, where some may wait."""
    if adapters > 1 and request.max_adapters is None:
        fewer = [2**power for power in range(8) if 2**power < adapters]
        yield Axis("max_adapters", (*fewer, adapters))


def _settings(request: BuildRequest, instance: Instance, goal: Goal) -> Iterator[Axis]:
    """Yield settings of the engine that are tried alone."""
    if instance.kind not in GPUS:
        return
    if request.kv_dtype is None and "fp8_w8a8" in instance.formats:
        yield Axis("kv_dtype", ("fp8",))
    if request.max_prefill_tokens is None:
        tokens = _SMALL_PREFILL if goal == "latency" else _LARGE_PREFILL
        yield Axis("max_prefill_tokens", (tokens,))


def _product(axes: Sequence[Axis]) -> Iterator[Mapping[str, Any]]:
    for values in itertools.product(*(axis.values for axis in axes)):
        changes: dict[str, Any] = {}
        for axis, value in zip(axes, values, strict=True):
            if value is None:
                continue
            if isinstance(value, Mapping):  # settings of the engine add up
                changes[axis.field] = {**changes.get(axis.field, {}), **value}
            else:
                changes[axis.field] = value
        yield MappingProxyType(changes)


def _words(changes: Mapping[str, Any]) -> Iterator[str]:
    for name, value in changes.items():
        if name == "engine_options":
            for key, text in value.items():
                yield f"--engine-option {shlex.quote(f'{key}={text}')}"
        elif isinstance(value, bool):
            yield f"--{'' if value else 'no-'}{name.replace('_', '-')}"
        elif isinstance(value, tuple | list):
            yield from (f"--{name.replace('_', '-')} {shlex.quote(str(one))}" for one in value)
        else:
            yield f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
