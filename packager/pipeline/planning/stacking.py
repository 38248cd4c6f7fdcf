"""Conflicts between techniques, from the catalog's rules.

The rules are data and passed in; their conditions use `packager.core.catalog.SITUATION_KEYS`. Every
conflict is reported at once, because removing one technique after the other until a build passes is
what users complain about elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packager.core.catalog import Rule, finding_of, matching
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.techniques import cache_option

Situation = dict[str, object]

SEVERITIES = ("error", "warning", "note")

# format of the weights, as instances name it → the scheme that rules name
SCHEMES: Mapping[str, str] = {
    "w4a16": "W4A16",
    "fp8_w8a8": "W8A8-FP8",
    "fp8_w8a16": "W8A16-FP8",
    "int8_w8a8": "W8A8-INT8",
    "nvfp4_w4a4": "NVFP4",
    "nvfp4_w4a16": "NVFP4A16",
    "mxfp4": "MXFP4",
    "mxfp8": "MXFP8",
}

OFF = frozenset({None, "off", "none", "auto"})  # `auto` has not chosen anything


def check_stack(
    plan: Plan, rules: Iterable[Rule], *, compiler: str | None = None, tool: str = ""
) -> tuple[Finding, ...]:
    """Return a finding for every rule that the plan violates, errors first."""
    return check_situation(situation_of(plan, compiler=compiler, tool=tool), rules)


def check_situation(situation: Mapping[str, object], rules: Iterable[Rule]) -> tuple[Finding, ...]:
    """Return a finding for every rule that matches, errors first."""
    found = [finding_of(rule, situation) for rule in matching(rules, situation)]
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def situation_of(plan: Plan, *, compiler: str | None = None, tool: str = "") -> Situation:
    """Describe a plan by the keys of the rules. Unknown values are left out."""
    instance, container = plan.instance, plan.container
    situation: Situation = {
        "target": "image",
        "model": plan.model.name,
        "architecture": plan.profile.architecture,
        "experts": plan.profile.experts,
        "family": container.family,
        "variant": container.variant,
        "engine": container.engine,
        "device": instance.kind,
        "device_name": instance.device_name,
        "instance": instance.name,
        "formats": instance.formats,
        "compile": "" if compiler in OFF else compiler,
        "tool": tool,
        "base": _own_base(plan.base),
        "dtype": plan.dtype,
        "kv_dtype": plan.kv_dtype,
        "kv_option": cache_option(plan.quantization),
        "attention": plan.profile.attention,
        "head_dim": plan.profile.head_dim,
        "tp_degree": plan.tp_degree,
        "pp_degree": plan.pp_degree,
        **_weights(plan),
        **_draft(plan),
    }
    known: Situation = {
        "release": container.release or container.version,
        "engine_version": container.engine_version,
        "instance_family": instance.family,
        "compute_capability": instance.compute_capability,
        "neuron_core": instance.device_name.partition("-")[2] if instance.kind == "neuron" else "",
    }
    if instance.kind == "cpu" and container.traits.processors is not None:
        known["kernels"] = container.traits.processors.formats_on(instance)
    return situation | {key: value for key, value in known.items() if value}


def _own_base(reference: str) -> str:
    """Return the name of a base that is packager's own, "" of any other."""
    kind, _, name = reference.partition(":")
    return name if kind == "embedded" else ""


def _weights(plan: Plan) -> Situation:
    source, chosen = plan.profile.quantization, plan.quantization
    if chosen is None:
        return {
            "quantize": source,
            "quantize_options": frozenset(plan.profile.quantization_options),
            "scheme": SCHEMES.get(plan.profile.weight_format, ""),
            "checkpoint_format": source,
            "existing": bool(source),
            "experts_left_out": False,
            "source_quantization": source,
        }
    return {
        "quantize": chosen.method,
        "quantize_options": frozenset(name for name, _ in chosen.options)
        | ({"kv"} if chosen.scales_cache else frozenset()),
        "scheme": chosen.scheme,
        "checkpoint_format": chosen.checkpoint_format,
        "existing": chosen.existing,
        "experts_left_out": chosen.experts_left_out,
        "source_quantization": source,
    }


def _draft(plan: Plan) -> Situation:
    if plan.draft is None:
        return {"draft": "", "draft_version": ""}
    described: Situation = {
        "draft": plan.draft.kind,
        "draft_version": plan.draft.version,
        "speculative_tokens": plan.draft.speculative_tokens,
    }
    return described | ({"draft_heads": plan.draft.heads} if plan.draft.heads else {})
