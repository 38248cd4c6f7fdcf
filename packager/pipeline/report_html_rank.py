"""The page of a ranking: choices side by side, price against speed, and every instance."""

from __future__ import annotations

from typing import Any

from packager.core.instance import Instance
from packager.core.reports.charts import Chart, make_chart
from packager.core.reports.page import render_page
from packager.core.units import usd
from packager.estimate.performance.presets import PRESETS
from packager.estimate.performance.ranking import RankedInstance, Ranking, SkippedInstance, pareto
from packager.estimate.performance.report_rank import (
    closing_sentence,
    limit_words,
    option_cells,
    ranking_marks,
)
from packager.pipeline.choices import PlanChoice
from packager.pipeline.report_html_parts import X_LABEL, choice_values, load_values, origin_words
from packager.pipeline.trace import Trace

CLOUDS = {
    "sagemaker": "SageMaker",
    "ec2": "Amazon EC2",
    "gcp": "Google Cloud",
    "azure": "Azure",
    "bare": "own machine",
}


def ranking_html(
    ranking: Ranking,
    model: str,
    *,
    trace: Trace | None = None,
    choices: tuple[PlanChoice, ...] = (),
    discount: float = 0.0,
) -> str:
    """The ranking as a page, with those that were left out."""
    best = ranking.options[0] if ranking.options else None
    chart = _chart(ranking)
    rows = [_row(option) for option in ranking.options]
    left_out = [_left_out(skipped) for skipped in ranking.skipped]
    several = {row["provider"] for row in (*rows, *left_out) if row["provider"]}
    months = [option for option in ranking.options if option.monthly]
    page = {
        "model": model,
        "trace": trace,
        "origin": origin_words(trace, ranking.model.ref if ranking.model else None),
        "preset": PRESETS[ranking.goal],
        "limit": limit_words(ranking),
        "sentence": closing_sentence(ranking),
        "workload": best.prediction.workload if best else None,
        "choices": [choice_values(choice) for choice in choices],
        **load_values(
            months[0].monthly if months else None,
            best.prediction if best else None,
            discount=discount,
        ),
        "rows": rows,
        "left_out": left_out,
        "providers": len(several) > 1,
        "counted": f"{len(rows)} of {len(rows) + len(left_out)} instances can serve it",
        "chart": chart,
        "unlabelled": _unlabelled(chart),
        "front": [
            {
                "name": option.plan.instance.name,
                "price": usd(option.prices.output),
                "speed": f"{option.point.output_tokens_s_user:,.0f}",
            }
            for option in reversed(pareto(ranking.options))
            if option.prices
        ],
    }
    return render_page("rank.html.j2", page)


def _row(option: RankedInstance) -> dict[str, Any]:
    cells, month = option_cells(option), option.monthly
    return {
        "instance": cells.instance,
        **_machine(option.plan.instance),
        "numbers": (
            usd(option.plan.usd_hour) if option.plan.usd_hour else "–",
            f"{month.usd:,.0f}" if month else "–",
            f"{month.machines:,}" if month else "–",
            cells.output,
            cells.rate,
            cells.tpot.replace(" ms", ""),
            cells.requests,
            f"±{cells.band}",
        ),
        "precision": cells.precision,
        "tp": cells.tp,
        "options": cells.options,
    }


def _left_out(skipped: SkippedInstance) -> dict[str, Any]:
    price = skipped.machine.price_usd_hour if skipped.machine else None
    return {
        "instance": skipped.instance,
        **_machine(skipped.machine),
        "hour": usd(price) if price else "–",
        "reason": skipped.reason.replace(skipped.instance, "it"),
        "fits": skipped.fits,
    }


def _machine(machine: Instance | None) -> dict[str, str]:
    if machine is None:
        return {"devices": "", "provider": ""}
    return {
        "devices": f"{machine.devices} x {machine.device_name}",
        "provider": CLOUDS.get(machine.cloud or "", "own row"),
    }


def _chart(ranking: Ranking) -> Chart | None:
    marks = ranking_marks(ranking)
    if not marks:
        return None
    return make_chart(marks, x_label=X_LABEL, y_label="US dollars per million tokens out")


def _unlabelled(chart: Chart | None) -> str:
    if chart is None or not chart.unlabelled:
        return ""
    return f"Names without room: {chart.unlabelled}; the table has all of them."
