"""The table of metrics names every one that is written, with its unit."""

from __future__ import annotations

import tomllib

from packager.addons.bench.export import profile
from packager.addons.bench.metrics import load_figures
from packager.core.bench import BenchReport, BenchVariant, BenchWorkload, Limits, Prices
from tests.support.cases import read_tables
from tests.support.places import ROOT
from tests.support.reference_pages import read_page
from tests.unit.addons.bench.loads import answer, failure, load

TABLE = ROOT / "packager/addons/bench/data/metrics.toml"
METRICS = read_tables(__file__)["counters"]
ALL = {"input_tokens": 9, "own_input_tokens": 9, "output_tokens": 4, "own_output_tokens": 4}


def written() -> dict[str, str]:
    """Return the units of all metrics that there can be."""
    run = load(
        answer(0, at=(0.1, 0.2, 0.3), asked_tokens=4, reasoning_tokens=2, **ALL),
        answer(2, at=(), ended=0.5, is_streamed=False, texts=3, input_tokens=9),
        failure(1, own_input_tokens=9),
        metrics_before=METRICS.format(drafts=1),
        metrics_after=METRICS.format(drafts=9),
    )
    figures = load_figures([run], Limits(ttft_ms=500)).model_copy(
        update={"prices": Prices(usd_hour=1.0, input=1.0, output=1.0)}
    )
    variant = BenchVariant(name="a", loads=(figures,))
    report = BenchReport(
        packager_version="0", measured="", workload=BenchWorkload(name=""), variants=(variant,)
    )
    document = profile(report, variant, figures)
    return {
        tag: value["unit"]
        for tag, value in document.items()
        if isinstance(value, dict) and "unit" in value
    }


def test_the_table_names_every_metric_and_its_unit() -> None:
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["metric"]
    named = {name: row["unit"] for row in rows for name in row["names"]}

    stamps = {"min_request_timestamp", "max_response_timestamp"}
    assert named == {tag: unit for tag, unit in written().items() if tag not in stamps}
    page = read_page(ROOT / "docs/reference/metrics.md")
    assert all(f"`{name}`" in page for name in named)
