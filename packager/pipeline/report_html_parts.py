"""Parts shared by the pages of a plan and of a ranking, as values for their templates."""

from __future__ import annotations

from typing import Any

from packager.core.instance import LOCAL
from packager.core.model import ModelRef
from packager.core.units import usd
from packager.estimate.performance.monthly import MonthlyCost, formula_sentences, load_words
from packager.estimate.performance.predict import Prediction
from packager.pipeline.choices import PlanChoice
from packager.pipeline.report_plan import spread_words
from packager.pipeline.trace import Trace

SEVERITIES = ("error", "warning", "note")
X_LABEL = "tokens per second for one reader"
_SHOWN = 12  # digits of a commit


def origin_words(trace: Trace | None, model: ModelRef | None) -> list[str]:
    """Return the line below the title: which model, where, when and by what."""
    if trace is None:
        return [model.name] if model else []
    name = trace.model
    if model and model.revision:
        name = f"{trace.model.partition('@')[0]}@{model.revision[:_SHOWN]}"
    return [name, trace.instance, trace.made_words, f"packager {trace.packager}"]


def load_values(
    monthly: MonthlyCost | None, prediction: Prediction | None, *, discount: float = 0.0
) -> dict[str, Any]:
    """Return the load that months are for, and how they are computed."""
    if monthly is None or prediction is None:
        return {"load": "", "formula": ()}
    load = f"{monthly.requests_per_day:,} requests a day of {load_words(prediction)}"
    return {"load": load, "formula": formula_sentences(discount=discount)}


def choice_values(choice: PlanChoice) -> dict[str, Any]:
    """Return a choice for the card that shows it."""
    plan, month = choice.plan, choice.monthly
    price, unit = "Not priced", "the catalog has no price of it"
    if plan.instance.name == LOCAL:
        price, unit = "This machine", "no price, and no predicted speed"
    elif month is not None:
        price, unit = f"${month.usd:,.0f}", "a month"
    elif plan.usd_hour:
        price, unit = f"${usd(plan.usd_hour)}", "an hour; its speed is not known"
    devices = f"{plan.instance.devices} x {plan.instance.device_name}"
    return {
        "title": choice.title,
        "what": f"{plan.instance.name} ({devices}), {plan.precision}, {spread_words(plan)}",
        "price": price,
        "price_unit": unit,
        "facts": list(_facts(choice)),
        "quality": choice.quality[:1].upper() + choice.quality[1:],
        "is_quality_known": choice.is_quality_known,
        "command": choice.command,
    }


def _facts(choice: PlanChoice) -> list[tuple[str, str]]:
    facts = []
    if month := choice.monthly:
        several = "instance" if month.most_machines == 1 else "instances"
        count = f"{month.machines:,}"
        if month.most_machines > month.machines:
            count += f" to {month.most_machines:,}"
        facts.append(("Takes", f"{count} {several} at ${month.usd_of_one:,.0f} a month"))
        facts.append(("One holds", f"{month.capacity_per_day:,} requests a day"))
    if point := choice.point:
        many = "request" if point.concurrency == 1 else "requests"
        facts.append(
            (
                "Speed",
                f"{point.tpot_s * 1e3:,.1f} ms per token, {point.output_tokens_s:,.0f} tokens/s "
                f"at {point.concurrency:,} {many} at once",
            )
        )
    if choice.prices:
        facts.append(("Full load", f"${usd(choice.prices.output)} per million tokens out"))
    return facts
