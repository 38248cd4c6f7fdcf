"""The page of a plan: the decision first, then why, and the commands that build it.

A refused plan has a page, too: why, and what fits instead.
"""

from __future__ import annotations

from typing import Any

from packager.core.engine_rows import engine_name
from packager.core.errors import PlanRejected
from packager.core.findings import FILES_LEFT_OUT, NEEDED_BYTES, Finding
from packager.core.plan import Plan
from packager.core.reports.charts import Chart, Mark, make_chart
from packager.core.reports.page import render_page
from packager.core.request import BuildRequest
from packager.core.units import decimal, gib, usd
from packager.estimate.performance.pricing import LABELS, Formula
from packager.estimate.performance.report_opinion import HEADER as OPINION_HEADER
from packager.estimate.performance.report_opinion import (
    RATIOS,
    opinion_rows,
    opinion_sentence,
    unanswered,
)
from packager.estimate.performance.report_outlook import Outlook, band_sentences, first_token_words
from packager.estimate.performance.report_startup import startup_table
from packager.pipeline.choices import PlanChoice
from packager.pipeline.report_capacity import capacity_sentence, room_words
from packager.pipeline.report_html_parts import (
    SEVERITIES,
    X_LABEL,
    choice_values,
    load_values,
    origin_words,
)
from packager.pipeline.report_plan import (
    PlanPage,
    container_words,
    cost_sentence,
    count_words,
    detail_sentences,
    findings_to_show,
    free_bytes,
    memory_parts,
    price_words,
    rejected_sentence,
    spread_words,
    work_sentences,
)
from packager.pipeline.trace import Trace, changed_command

# The meaning of each formula for a buyer.
MEANINGS: dict[Formula, str] = {
    "F1": "as if prompts took no time; the lowest figure, seen in announcements",
    "F2": "what one client sees, its waiting included; seen in announcements",
    "F3": "what the bill divided by the tokens gives; the one to budget with",
}


def plan_html(
    page: PlanPage, *, trace: Trace | None = None, choices: tuple[PlanChoice, ...] = ()
) -> str:
    """Return the plan as a page: the content of the text, with the bar and the chart drawn."""
    plan, outlook, budget = page.plan, page.outlook, page.plan.budget
    free, usable = free_bytes(plan), max(1, page.plan.budget.usable_bytes)
    findings = sorted(findings_to_show(plan), key=lambda found: SEVERITIES.index(found.severity))
    values = {
        "plan": plan,
        "trace": trace,
        "origin": origin_words(trace, plan.model),
        "decision": _decision(plan),
        "warnings": _warning_words(findings),
        "choices": [choice_values(choice) for choice in choices],
        **load_values(
            outlook.monthly if outlook else None,
            outlook.prediction if outlook else None,
            discount=outlook.discount if outlook else 0.0,
        ),
        "price_source": price_words(plan),
        "parameters": count_words(plan.profile.parameters),
        "weights": decimal(plan.profile.weight_bytes),
        "container": container_words(plan.container),
        "spread": spread_words(plan),
        "device": gib(plan.instance.device_bytes),
        "work": list(work_sentences(plan, page.recipe, page.forecasts)),
        "cost": cost_sentence(plan, outlook),
        "tile_values": _tiles(plan, outlook),
        "memory": [
            {
                "name": part.name,
                "kind": part.name.replace(" ", "-"),
                "size": gib(part.size),
                "share": part.size / usable,
            }
            for part in memory_parts(plan)
        ],
        "details": [(label.capitalize(), words) for label, words in detail_sentences(plan)],
        "holds": capacity_sentence(plan),
        "usable": gib(budget.usable_bytes),
        "free": gib(free),
        "free_share": free / usable,
        "room": room_words(plan),
        "outlook": outlook,
        "priced": outlook is not None and outlook.points[0].prices is not None,
        "rows": _rows(outlook) if outlook else [],
        "formulas": [(name, label, MEANINGS[name]) for name, label in LABELS.items()],
        "bands": band_sentences(outlook.prediction) if outlook else (),
        "chart": _plan_chart(outlook) if outlook else None,
        "opinion": _opinion(page),
        "startup": startup_table(page.startup) if page.startup else None,
        "rejected": [
            {"what": found.what, "code": found.code, "why": rejected_sentence(found)}
            for found in plan.rejected
        ],
        "findings": findings,
    }
    return render_page("plan.html.j2", values)


def refused_html(request: BuildRequest, name: str, error: PlanRejected, trace: Trace) -> str:
    """The page of a request that no plan satisfies: why, and what fits instead."""
    errors = [found for found in error.findings if found.severity == "error"]
    rest = [
        found
        for found in error.findings
        if found.severity != "error" and found.code != FILES_LEFT_OUT  # of an image that is not
    ]
    found = errors[0].message if errors else error.message
    page = {
        "model": name,
        "instance": request.instance,
        "trace": trace,
        "origin": origin_words(trace, None),
        "verdict": "Does not fit" if _is_about_memory(errors) else "Refused",
        "decision": f"{found[:1].upper()}{found[1:]}.",
        "nearest": [_nearest(change, request) for change in error.nearest],
        "findings": [*errors, *rest],
    }
    return render_page("refused.html.j2", page)


def _is_about_memory(errors: list[Finding]) -> bool:
    return any(NEEDED_BYTES in found.data for found in errors)


def _nearest(change: str, request: BuildRequest) -> dict[str, str]:
    """Split a suggestion into its options and the remark behind them; write the whole command."""
    options, _, remark = change.partition("#")
    return {
        "title": options.strip(),
        "remark": remark.strip(),
        "command": changed_command(request, options),
    }


def _decision(plan: Plan) -> str:
    """Describe the deployment in one sentence."""
    instance = plan.instance
    nodes = f"{plan.nodes} machines of " if plan.nodes > 1 else ""
    engine = f"{engine_name(plan.container.engine)} {plan.container.engine_version}".strip()
    many = plan.shape.max_batch * plan.replicas
    requests = f"{many:,} requests" if many > 1 else "1 request"
    return (
        f"Serve it as {plan.precision} with {engine} on {nodes}{instance.devices} x "
        f"{instance.device_name}, up to {requests} at once of {plan.shape.max_total_tokens:,} "
        "tokens each."
    )


def _warning_words(findings: list[Finding]) -> str:
    count = sum(found.severity == "warning" for found in findings)
    if not count:
        return ""
    return f"{count} {'warning' if count == 1 else 'warnings'}: see the findings below."


def _opinion(page: PlanPage) -> dict[str, Any] | None:
    if page.opinion is None:
        return None
    return {
        "sentence": opinion_sentence(page.opinion),
        "header": OPINION_HEADER,
        "rows": opinion_rows(page.opinion, page.prediction),
        "unanswered": unanswered(page.opinion),
        "ratios": RATIOS,
    }


def _tiles(plan: Plan, outlook: Outlook | None) -> list[dict[str, str]]:
    hour = plan.usd_hour
    tiles = [{"value": f"${usd(hour)}", "name": "an hour"}] if hour else []
    if not outlook:
        budget = plan.budget
        tiles.append({"value": f"{plan.shape.max_batch:,}", "name": "requests at once"})
        tiles.append({"value": f"{plan.shape.max_total_tokens:,}", "name": "tokens of a request"})
        used = f"of {gib(budget.usable_bytes)} of each device are taken at least"
        tiles.append({"value": gib(budget.needed_bytes), "name": used})
        return tiles
    first, last = outlook.points[0], outlook.points[-1]
    if month := outlook.monthly:
        load = f"{month.requests_per_day:,} requests a day"
        tiles.insert(0, {"value": f"${month.usd:,.0f}", "name": f"a month, for {load}"})
    if last.prices:
        many = last.point.concurrency
        name = f"per million tokens out, at {many:,} requests at once"
        tiles.append({"value": f"${usd(last.prices.output)}", "name": name})
    tiles += [
        {
            "value": f"{last.point.output_tokens_s:,.0f}/s",
            "name": f"tokens, at {last.point.concurrency:,} requests at once",
        },
        {
            "value": f"{first.point.tpot_s * 1e3:.1f} to {last.point.tpot_s * 1e3:.1f} ms"
            if last is not first
            else f"{first.point.tpot_s * 1e3:.1f} ms",
            "name": "per token, alone to full" if last is not first else "per token, alone",
        },
    ]
    return tiles


def _rows(outlook: Outlook) -> list[dict[str, str]]:
    return [
        {
            "concurrency": f"{priced.point.concurrency:,}",
            "first": first_token_words(outlook.prediction, priced.point).removesuffix(" ms"),
            "tpot": f"{priced.point.tpot_s * 1e3:,.1f}",
            "rate": f"{priced.point.output_tokens_s:,.0f}",
            "user": f"{priced.point.output_tokens_s_user:,.0f}",
            "input": usd(priced.prices.input) if priced.prices else "–",
            "output": usd(priced.prices.output) if priced.prices else "–",
            "total": usd(priced.prices.total) if priced.prices else "–",
            "f1": usd(priced.blended_f1) if priced.prices else "–",
            "f2": usd(priced.blended_f2) if priced.prices else "–",
            "f3": usd(priced.prices.blended) if priced.prices else "–",
        }
        for priced in outlook.points
    ]


def _plan_chart(outlook: Outlook) -> Chart:
    last = outlook.points[-1]
    marks = [
        Mark(
            x=priced.point.output_tokens_s_user,
            y=priced.point.output_tokens_s,
            label=f"{priced.point.concurrency:,}",
            title=f"{priced.point.concurrency:,} requests: "
            f"{priced.point.output_tokens_s:,.0f} tokens/s, "
            f"{priced.point.tpot_s * 1e3:.1f} ms per token"
            + (f", ${usd(priced.prices.output)} per million out" if priced.prices else ""),
            chosen=priced is last,
        )
        for priced in outlook.points
    ]
    return make_chart(marks, x_label=X_LABEL, y_label="tokens per second, all together")
