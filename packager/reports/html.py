"""Reports as one page of HTML each: no script, nothing fetched, ready to be kept and printed.

Names of models and messages come from strangers: everything is escaped, by
the environment and not by each template.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from packager.core.plan import Plan
from packager.core.text import escape
from packager.core.units import decimal, gib
from packager.planning.presets import PRESETS
from packager.planning.pricing import LABELS
from packager.planning.ranking import Ranking
from packager.reports.capacity import capacity_sentence
from packager.reports.charts import Chart, Mark, make_chart
from packager.reports.opinion import HEADER as OPINION_HEADER
from packager.reports.opinion import RATIOS, opinion_rows, opinion_sentence, unanswered
from packager.reports.outlook import Outlook, band_sentences, first_token_words, usd
from packager.reports.plan import (
    PlanPage,
    container_words,
    cost_sentence,
    count_words,
    detail_sentences,
    findings_to_show,
    free_bytes,
    memory_parts,
    rejected_sentence,
    room_words,
    spread_words,
    work_sentences,
)
from packager.reports.rank import (
    MENU_HEADER,
    closing_sentence,
    limit_words,
    menu_cells,
    option_cells,
    ranking_marks,
    skipped_groups,
)
from packager.share import share_dir

SEVERITIES = ("error", "warning", "note")


def plan_html(page: PlanPage) -> str:
    """The plan as a page: what the text shows, with the bar and the chart drawn."""
    plan, outlook, budget = page.plan, page.outlook, page.plan.budget
    free = free_bytes(plan)
    values = {
        "plan": plan,
        "parameters": count_words(plan.profile.parameters),
        "weights": decimal(plan.profile.weight_bytes),
        "container": container_words(plan.container),
        "spread": spread_words(plan),
        "device": gib(plan.instance.device_bytes),
        "work": list(work_sentences(plan, page.recipe, page.forecasts)),
        "cost": cost_sentence(plan, outlook),
        "tiles": _tiles(plan, outlook),
        "memory": [
            {
                "name": part.name,
                "kind": part.name.replace(" ", "-"),
                "size": gib(part.size),
                "share": part.size / max(1, budget.usable_bytes),
            }
            for part in memory_parts(plan)
        ],
        "details": [(label.capitalize(), words) for label, words in detail_sentences(plan)],
        "holds": capacity_sentence(plan),
        "usable": gib(budget.usable_bytes),
        "free": gib(free),
        "free_share": free / max(1, budget.usable_bytes),
        "room": room_words(plan),
        "outlook": outlook,
        "rows": _rows(outlook) if outlook else [],
        "formulas": LABELS,
        "bands": band_sentences(outlook.prediction) if outlook else (),
        "chart": _plan_chart(outlook) if outlook else None,
        "opinion": _opinion(page),
        "menu_header": MENU_HEADER,
        "menu": [menu_cells(goal, option) for goal, option in page.menu],
        "rejected": [
            {"what": found.what, "code": found.code, "why": rejected_sentence(found)}
            for found in plan.rejected
        ],
        "findings": sorted(
            findings_to_show(plan), key=lambda found: SEVERITIES.index(found.severity)
        ),
    }
    return render_page("plan.html.j2", values)


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


def ranking_html(ranking: Ranking, model: str) -> str:
    """The ranking as a page."""
    page = {
        "model": model,
        "preset": PRESETS[ranking.goal],
        "limit": limit_words(ranking),
        "sentence": closing_sentence(ranking),
        "workload": ranking.options[0].prediction.workload if ranking.options else None,
        "options": [asdict(option_cells(option)) for option in ranking.options],
        "skipped": skipped_groups(ranking.skipped),
        "chart": _ranking_chart(ranking_marks(ranking)),
    }
    return render_page("rank.html.j2", page)


X_LABEL = "tokens per second for one reader"


def render_page(template: str, page: dict[str, Any]) -> str:
    """Print a page; every value is escaped, and one that is missing is an error."""
    environment = Environment(
        loader=FileSystemLoader(share_dir("templates") / "report", encoding="utf-8"),
        undefined=StrictUndefined,
        finalize=_escaped,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(page)


def _tiles(plan: Plan, outlook: Outlook | None) -> list[dict[str, str]]:
    hour = plan.usd_hour
    tiles = [{"value": f"${usd(hour)}" if hour else "–", "name": "per hour"}]
    if not outlook:
        return tiles
    first, last = outlook.points[0], outlook.points[-1]
    tiles += [
        {
            "value": f"{first.point.tpot_s * 1e3:.1f} ms",
            "name": "per token, alone",
        },
        {
            "value": f"{last.point.output_tokens_s:,.0f}/s",
            "name": f"tokens, at {last.point.concurrency} requests",
        },
    ]
    if last.prices:
        tiles.insert(1, {"value": f"${usd(last.prices.output)}", "name": "per million tokens out"})
    return tiles


def _rows(outlook: Outlook) -> list[dict[str, str]]:
    return [
        {
            "concurrency": str(priced.point.concurrency),
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


def _ranking_chart(marks: tuple[Mark, ...]) -> Chart | None:
    y_label = "US dollars per million tokens out"
    if not marks:
        return None
    return make_chart(marks, x_label=X_LABEL, y_label=y_label, labels_below=True, width=960)


def _plan_chart(outlook: Outlook) -> Chart:
    last = outlook.points[-1]
    marks = [
        Mark(
            x=priced.point.output_tokens_s_user,
            y=priced.point.output_tokens_s,
            label=str(priced.point.concurrency),
            title=f"{priced.point.concurrency} requests: "
            f"{priced.point.output_tokens_s:,.0f} tokens/s, "
            f"{priced.point.tpot_s * 1e3:.1f} ms per token"
            + (f", ${usd(priced.prices.output)} per million out" if priced.prices else ""),
            chosen=priced is last,
        )
        for priced in outlook.points
    ]
    return make_chart(marks, x_label=X_LABEL, y_label="tokens per second, all together")


def _escaped(value: object) -> object:
    """Escape what would start a line of the page or reorder it; jinja escapes the markup."""
    return escape(value) if type(value) is str else value
