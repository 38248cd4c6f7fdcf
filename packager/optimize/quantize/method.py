"""Choice for `--quantize auto`: the method whose plan is predicted to be best for the goal."""

from __future__ import annotations

from collections.abc import Mapping

from packager.core.catalog import Accelerator
from packager.core.findings import Finding
from packager.core.instance import GPUS, Instance
from packager.core.plan import Plan
from packager.estimate.performance.choice import Objective, worth_of
from packager.estimate.performance.predict import Point, concurrencies_of, predict, setup_of
from packager.estimate.performance.presets import QUANTIZERS
from packager.estimate.performance.ranking import choose_point

AUTO, NONE = "auto", "none"


def methods_to_try(instance: Instance, *, quantized: bool) -> tuple[str, ...]:
    """List the methods that a device has kernels for, `none` first.

    `quantized` says that the checkpoint is already quantized, so that it cannot be again.
    """
    if quantized or instance.kind not in GPUS:
        return (NONE,)
    return (NONE, *(name for name, formats in QUANTIZERS.items() if instance.formats & {*formats}))


def choose_method(
    plans: Mapping[str, Plan], target: Objective, accelerator: Accelerator
) -> tuple[str, Finding]:
    """Choose among the working plans, by method, with the reason; equal ones keep their order.

    Without a prediction the first is chosen: unquantized weights, if they fit.
    """
    points = {method: _point(plan, target, accelerator) for method, plan in plans.items()}
    best = max(plans, key=lambda method: worth_of(points[method], target))
    others = ", ".join(_words(method, points[method], target) for method in plans if method != best)
    message = f"--quantize auto is {_words(best, points[best], target)}"
    if others:
        message += f"; against {others}"
    return best, Finding("note", "quantize-chosen", message)


def _point(plan: Plan, target: Objective, accelerator: Accelerator) -> Point | None:
    prediction = predict(setup_of(plan, accelerator), target.workload, concurrencies_of(plan))
    return choose_point(prediction, target) if prediction else None


def _words(method: str, point: Point | None, target: Objective) -> str:
    if point is None:
        return f"{method} (not predicted)"
    if target.goal == "latency":
        return f"{method} ({point.tpot_s * 1e3:,.1f} ms per token)"
    return f"{method} ({point.output_tokens_s:,.0f} tokens/s)"
