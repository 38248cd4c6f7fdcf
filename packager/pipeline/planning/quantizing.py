"""Quantization of a plan: one scheme, or several for parts of a model, and checks of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.model import ModelProfile
from packager.core.plan import Plan
from packager.core.ports import Compiler, Quantizer
from packager.estimate.sizing.left_out import entries_left_out, with_left_out
from packager.estimate.sizing.mixed import choose_mixed
from packager.estimate.sizing.quantizable import TABLE_OF
from packager.estimate.sizing.schemes import QuantizationChoice, choose_quantization


def choose_schemes(
    facts: Facts, profile: ModelProfile, quantizer: Quantizer | None, compiler: Compiler | None
) -> QuantizationChoice:
    """Choose the scheme of the model, and those of the parts that the request names."""
    request = facts.request
    ignore = entries_left_out(facts.model, request.quantize_ignore, facts.container.traits)
    choose = partial(
        choose_quantization,
        profile=profile,
        instance=facts.instance,
        container=facts.container,
        methods=quantizer.methods if quantizer else {},
        model=facts.model if _asks_table(quantizer, compiler) else None,
        ignore=ignore,
        untested=bool(request.try_untested),
    )
    chosen = choose(request.quantize)
    whole = with_left_out(chosen.quantization, facts.model, profile, ignore)
    found = replace(chosen, quantization=whole)
    if not request.quantize_layer:
        return found
    return choose_mixed(
        request.quantize_layer,
        found,
        choose,
        facts.model,
        profile,
        mixable=quantizer.mixable if quantizer else (),
        ignore=ignore,
    )


def check_parts(plan: Plan, check: Callable[[Plan], Iterable[Finding]]) -> tuple[Finding, ...]:
    """Return the findings of a check for the plan, and for each part with its own scheme.

    A rule for a scheme applies to every part that has it; equal findings are reported once.
    """
    parts = plan.quantization.parts if plan.quantization else ()
    plans = [plan, *(replace(plan, quantization=part) for part in parts if len(parts) > 1)]
    return tuple(dict.fromkeys(finding for one in plans for finding in check(one)))


def _asks_table(quantizer: Quantizer | None, compiler: Compiler | None) -> bool:
    """Whether the table of architectures covers the quantizer of this plan."""
    by_compiler = compiler is not None and compiler.quantizer != ""  # its architectures are unknown
    return (quantizer is None or quantizer.name in TABLE_OF) and not by_compiler
