"""A plan for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from packager.core.plan import MemoryBudget, Plan
from packager.core.units import decimal, gib
from packager.reports.text import finding_lines

_BAR = 48


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON: the values that the text shows."""
    budget = plan.budget
    return {
        "model": asdict(plan.model),
        "profile": asdict(plan.profile),
        "instance": {
            "name": plan.instance.name,
            "device": plan.instance.device_name,
            "devices": plan.instance.devices,
            "device_bytes": plan.instance.device_bytes,
            "price_usd_hour": plan.instance.price_usd_hour,
            "price_basis": plan.instance.price_basis,
        },
        "container": asdict(plan.container),
        "served_name": plan.served_name,
        "precision": plan.precision,
        "tp_degree": plan.tp_degree,
        "replicas": plan.replicas,
        "shape": asdict(plan.shape),
        "memory_per_device": {
            **asdict(budget),
            "needed_bytes": budget.needed_bytes,
            "kv_tokens_left": budget.kv_tokens_left,
        },
        "findings": [asdict(finding) for finding in plan.findings],
    }


def plan_text(plan: Plan) -> str:
    """The plan as a short page."""
    profile, instance, shape = plan.profile, plan.instance, plan.shape
    price = f", ${instance.price_usd_hour:g}/h" if instance.price_usd_hour else ""
    source = f"{plan.model.name}@{plan.model.revision[:12]}" if plan.model.revision else "local"
    lines = [
        f"model      {profile.architecture}, {_count(profile.parameters)} parameters, "
        f"{plan.precision}, {decimal(profile.weight_bytes)} ({source})",
        f"instance   {instance.name}: {instance.devices} x {instance.device_name}, "
        f"{gib(instance.device_bytes)} each{price}",
        f"container  {plan.container.family} {plan.container.version}".rstrip()
        + f" with {plan.container.engine} {plan.container.engine_version}",
        f"serves     {plan.served_name!r}, tensor parallel {plan.tp_degree}, "
        f"{plan.replicas} {'copy' if plan.replicas == 1 else 'copies'}",
        f"shape      {shape.max_batch} requests, {shape.max_input_tokens} input tokens, "
        f"{shape.max_total_tokens} in all",
        "",
        *_memory_lines(plan.budget),
    ]
    if plan.findings:
        lines += ["", *finding_lines(plan.findings)]
    return "\n".join(lines)


def _memory_lines(budget: MemoryBudget) -> list[str]:
    parts = (
        ("weights", budget.weights_bytes, "W"),
        ("kv cache", budget.kv_bytes, "K"),
        ("activations", budget.activations_bytes, "A"),
        ("overhead", budget.overhead_bytes, "O"),
    )
    usable = max(1, budget.usable_bytes)
    bar = "".join(letter * round(size / usable * _BAR) for _, size, letter in parts)
    lines = [f"memory     {gib(budget.usable_bytes)} usable on each device"]
    lines.append(f"           [{bar[:_BAR].ljust(_BAR, '.')}]")
    lines += [f"  {letter} {name:<12} {gib(size):>10}" for name, size, letter in parts]
    lines.append(f"  . {'free':<12} {gib(max(0, budget.usable_bytes - budget.needed_bytes)):>10}")
    lines.append(f"           room for {budget.kv_tokens_left:,} tokens of KV cache")
    return lines


def _count(number: int) -> str:
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.1f}{name}"
    return str(number)
