"""A plan as a report: the decision first, then why, and the commands that build it.

A refused plan has a page, too: why, and what fits instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.engine_rows import engine_name
from packager.core.errors import PlanRejected
from packager.core.findings import FILES_LEFT_OUT, NEEDED_BYTES, Finding
from packager.core.instance import LOCAL
from packager.core.model import ModelRef
from packager.core.plan import Plan
from packager.core.reports.report import (
    Card,
    Cards,
    Command,
    Details,
    Findings,
    Pair,
    Pairs,
    Part,
    Report,
    Section,
    Words,
)
from packager.core.reports.text import by_severity
from packager.core.request import BuildRequest
from packager.core.units import counted, gib, usd
from packager.estimate.performance.monthly import MonthlyCost, formula_sentences, load_words
from packager.estimate.performance.predict import Prediction
from packager.estimate.performance.report_opinion import opinion_section
from packager.estimate.performance.report_outlook import Outlook, outlook_section
from packager.estimate.performance.report_rank import menu_section
from packager.estimate.performance.report_startup import startup_section
from packager.optimize.steps.report import renewal_sentences
from packager.pipeline.choices import PlanChoice
from packager.pipeline.elsewhere import (
    anywhere_section,
    month_words,
    once_words,
    quantized_section,
)
from packager.pipeline.report_capacity import capacity_sentence, room_words
from packager.pipeline.report_plan import (
    PlanPage,
    cost_sentence,
    decision_pairs,
    detail_sentences,
    findings_to_show,
    memory_bar,
    price_words,
    rejected_sentence,
    spread_words,
    work_sentences,
)
from packager.pipeline.trace import Trace, changed_command

FOOTER = (
    "Predicted figures come from terms fitted to measurements and carry the bands stated beside "
    "them: measure before you rely on them. Prices are those of the catalog, with their basis; "
    "taxes, storage and traffic are not in them."
)
_SEVERAL_MACHINES = "Several machines serve this plan together: packager builds no image for it."
ALIKE_BILLS = 0.95  # of a bill: a smaller difference is within what prices and speeds vary
_SHOWN = 12  # digits of a commit


def plan_report(
    page: PlanPage, *, trace: Trace | None = None, choices: tuple[PlanChoice, ...] = ()
) -> Report:
    """Return a plan with its memory, speed and cost, and alternatives."""
    plan, outlook = page.plan, page.outlook
    findings = by_severity(findings_to_show(plan))
    warnings = sum(found.severity == "warning" for found in findings)
    sections = [
        *choices_sections(
            choices,
            _choices_title(page, choices),
            outlook.monthly if outlook else None,
            page.prediction,
            discount=outlook.discount if outlook else 0.0,
        ),
        *_decided_sections(page),
        Section(key="runs", title="What will run", parts=(Pairs(tuple(_pairs(page))),)),
        Section(
            key="memory",
            title="Why it fits: memory of each device",
            parts=(memory_bar(plan), Words(room_words(plan))),
        ),
    ]
    if outlook:
        sections.append(outlook_section(outlook))
    if page.opinion:
        sections.append(opinion_section(page.opinion, page.prediction))
    if page.startup:
        sections.append(startup_section(page.startup))
    if page.menu:
        sections.append(menu_section(page.menu))
    if plan.rejected:
        sections.append(_passed_over(plan))
    if findings:
        sections.append(findings_section(findings))
    return Report(
        kind="Deployment plan",
        title=f"{plan.served_name} on {plan.instance.name}",
        origin=origin_words(trace, plan.model),
        badge=("Fits", "yes"),
        verdict=_decision(plan) + _cheaper(page),
        tiles=tuple(_tiles(plan, outlook)),
        doubts=(f"{counted(warnings, 'warning')}: see the findings below.",) if warnings else (),
        sections=(*sections, *trace_sections(trace, price_words(plan))),
        footer=FOOTER,
        packager=trace.packager if trace else "",
    )


def refused_report(request: BuildRequest, name: str, error: PlanRejected, trace: Trace) -> Report:
    """Return why no plan satisfies a request, and what fits instead."""
    errors = [found for found in error.findings if found.severity == "error"]
    rest = [
        found
        for found in error.findings
        if found.severity != "error" and found.code != FILES_LEFT_OUT  # of an image that is not
    ]
    found = errors[0].message if errors else error.message
    nearest = tuple(_nearest(change, request) for change in error.nearest)
    instead = Section(
        key="nearest",
        title="What fits instead",
        parts=(Words("each was planned just now"), Cards(nearest)),
    )
    return Report(
        kind="Deployment plan",
        title=f"{name} on {request.instance}: refused",
        origin=origin_words(trace, None),
        badge=("Does not fit" if _is_about_memory(errors) else "Refused", "error"),
        verdict=f"{found[:1].upper()}{found[1:]}.",
        sections=(
            *((instead,) if nearest else ()),
            Section(key="findings", title="Why", parts=(Findings((*errors, *rest)),)),
            *trace_sections(trace),
        ),
        footer=FOOTER,
        packager=trace.packager,
    )


def origin_words(trace: Trace | None, model: ModelRef | None) -> tuple[str, ...]:
    """Return the line below the title: which model, where, when and by what."""
    if trace is None:
        return (model.name,) if model else ()
    name = trace.model
    if model and model.revision:
        name = f"{trace.model.partition('@')[0]}@{model.revision[:_SHOWN]}"
    return name, trace.instance, trace.made_words, f"packager {trace.packager}"


def trace_sections(trace: Trace | None, price: str = "") -> Iterator[Section]:
    """Yield where a page comes from, and how to make it again; nothing without a trace."""
    if trace is None:
        return
    facts = (
        Pair("Model", " ".join(filter(None, (trace.model, trace.identity)))),
        Pair("Instance", trace.instance),
        Pair("Made", f"{trace.made_words}, by packager {trace.packager}"),
        Pair("Price", price),
    )
    yield Section(
        key="trace",
        title="Where this page comes from",
        parts=(Pairs(facts), Words("to repeat it:"), Command(trace.command, "makes this page")),
        medium="page",
    )


def choices_sections(
    choices: tuple[PlanChoice, ...],
    title: str,
    monthly: MonthlyCost | None,
    prediction: Prediction | None,
    *,
    discount: float = 0.0,
    about: str = "",
) -> Iterator[Section]:
    """Yield choices side by side, with the load that months are for; nothing without choices."""
    if not choices:
        return
    parts: list[Part] = []
    if monthly and prediction:
        load = f"{monthly.requests_per_day:,} requests a day of {load_words(prediction)}"
        parts.append(Words(f"each month is for {load}"))
    if about:
        parts.append(Words(about))
    parts.append(Cards(tuple(_card(one, at == 0) for at, one in enumerate(choices))))
    if monthly and prediction:
        formula = tuple(map(Words, formula_sentences(discount=discount)))
        parts.append(Details("How a month is computed", formula, "page"))
    yield Section(key="choices", title=title, parts=tuple(parts), medium="page")


def findings_section(findings: tuple[Finding, ...]) -> Section:
    """Return the findings of a plan."""
    return Section(key="findings", title="Findings", parts=(Findings(findings),))


def _card(choice: PlanChoice, is_first: bool) -> Card:
    plan, month = choice.plan, choice.monthly
    price, unit = "Not priced", "the catalog has no price of it"
    if plan.instance.name == LOCAL:
        price, unit = "This machine", "no price, and no predicted speed"
    elif month is not None:
        price, unit = month_words(month), "a month"
    elif plan.usd_hour:
        price, unit = f"${usd(plan.usd_hour)}", "an hour; its speed is not known"
    devices = f"{plan.instance.devices} x {plan.instance.device_name}"
    quality = choice.quality[:1].upper() + choice.quality[1:]
    does = f"builds it: {choice.title}"
    return Card(
        title=choice.title,
        what=f"{plan.instance.name} ({devices}), {plan.precision}, {spread_words(plan)}",
        price=price,
        price_unit=unit,
        facts=(
            *_facts(choice),
            Pair("Quality", quality, "" if choice.is_quality_known else "warning"),
        ),
        command=Command(choice.command, does) if choice.command else None,
        note=_SEVERAL_MACHINES,
        is_first=is_first,
    )


def _facts(choice: PlanChoice) -> Iterator[Pair]:
    if month := choice.monthly:
        several = "instance" if month.most_machines == 1 else "instances"
        count = f"{month.machines:,}"
        if month.most_machines > month.machines:
            count += f" to {month.most_machines:,}"
        yield Pair("Takes", f"{count} {several} at ${month.usd_of_one:,.0f} a month")
        yield Pair("One holds", f"{month.capacity_per_day:,} requests a day")
    if point := choice.point:
        speed = f"{point.tpot_s * 1e3:,.1f} ms per token, {point.output_tokens_s:,.0f} tokens/s"
        yield Pair("Speed", f"{speed} at {counted(point.concurrency, 'request')} at once")
    if choice.prices:
        yield Pair("Full load", f"${usd(choice.prices.output)} per million tokens out")


def _choices_title(page: PlanPage, choices: tuple[PlanChoice, ...]) -> str:
    if len(choices) < 2:
        return "To build it"
    return "Choices" if page.elsewhere else "Choices on this instance"


def _decided_sections(page: PlanPage) -> Iterator[Section]:
    """Yield what a decision needs before the reasons: machines, weights, what is paid once."""
    if page.elsewhere is None:
        return
    if page.elsewhere.picked:
        yield anywhere_section(page.elsewhere)
    if page.elsewhere.quantized:
        yield quantized_section(page.elsewhere.quantized)
    once = once_words(page.forecasts)
    text = once or "nothing: no step runs before the image is built"
    yield Section(key="once", title="What is paid once", parts=(Words(text),), medium="page")


def _cheaper(page: PlanPage) -> str:
    """Return which machine of the catalog takes the stated load for less; "" for none."""
    month = page.outlook.monthly if page.outlook else None
    other = page.elsewhere.cheapest if page.elsewhere else None
    if month is None:
        return ""
    own = f" {month.requests_per_day:,} requests a day cost {month_words(month)} a month"
    if other is None or other.monthly is None:
        return f"{own}."
    if other.monthly.usd >= month.usd * ALIKE_BILLS:
        return f"{own}; no machine of the catalog does it for much less."
    changed = f" with `{other.candidate.options}`" if other.candidate.options else ""
    name = other.plan.instance.name
    return f"{own}; {name}{changed} does it for {month_words(other.monthly)}."


def _pairs(page: PlanPage) -> Iterator[Pair]:
    plan = page.plan
    yield from decision_pairs(plan)
    yield from (Pair(label, words) for label, words in detail_sentences(plan))
    yield Pair("holds", capacity_sentence(plan))
    yield Pair("will run", "; ".join(work_sentences(plan, page.recipe, page.forecasts)))
    yield Pair("kept", "; ".join(renewal_sentences(page.forecasts)))
    yield Pair("costs", cost_sentence(plan, page.outlook))
    yield Pair("a month", page.monthly_words)


def _passed_over(plan: Plan) -> Section:
    rows = tuple(Pair(found.what, rejected_sentence(found)) for found in plan.rejected)
    return Section(
        key="passed",
        title="What was passed over, and why",
        heading="passed over",
        parts=(Pairs(rows, is_listed=True),),
    )


def _is_about_memory(errors: list[Finding]) -> bool:
    return any(NEEDED_BYTES in found.data for found in errors)


def _nearest(change: str, request: BuildRequest) -> Card:
    """Split a suggestion into its options and the remark behind them; write the whole command."""
    options, _, remark = change.partition("#")
    command = Command(changed_command(request, options), f"plans {options.strip()}")
    return Card(title=options.strip(), what=remark.strip(), command=command)


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


def _tiles(plan: Plan, outlook: Outlook | None) -> Iterator[Pair]:
    if outlook and (month := outlook.monthly):
        load = f"{month.requests_per_day:,} requests a day"
        yield Pair(f"a month, for {load}", month_words(month))
    if hour := plan.usd_hour:
        yield Pair("an hour", f"${usd(hour)}")
    if not outlook:
        budget = plan.budget
        yield Pair("requests at once", f"{plan.shape.max_batch:,}")
        yield Pair("tokens of a request", f"{plan.shape.max_total_tokens:,}")
        used = f"of {gib(budget.usable_bytes)} of each device are taken at least"
        yield Pair(used, gib(budget.needed_bytes))
        return
    first, last = outlook.points[0], outlook.points[-1]
    full = f"at {last.point.concurrency:,} requests at once"
    if last.prices:
        yield Pair(f"per million tokens out, {full}", f"${usd(last.prices.output)}")
    yield Pair(f"tokens, {full}", f"{last.point.output_tokens_s:,.0f}/s")
    alone = f"{first.point.tpot_s * 1e3:.1f}"
    if last is first:
        yield Pair("per token, alone", f"{alone} ms")
    else:
        yield Pair("per token, alone to full", f"{alone} to {last.point.tpot_s * 1e3:.1f} ms")
