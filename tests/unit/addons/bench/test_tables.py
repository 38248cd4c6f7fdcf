"""Tables of a benchmark: the rows of SageMaker's evaluation, and those of trained heads."""

from __future__ import annotations

import pytest

from packager.addons.bench.names import load_name, load_words, short_names
from packager.addons.bench.tables import (
    latency_table,
    numbers,
    percentile,
    price_table,
    speculation_table,
    throughput_table,
)
from packager.core.bench import BenchLoad, Metric
from packager.core.reports.report import Table
from tests.support.bench_reports import REPORTS, drafts, failed, open_loop, quantized, tiny
from tests.support.cases import cases_of, read_tables
from tests.support.known import known

cases = cases_of(__file__)


@cases("names")
def test_names_are_as_short_as_can_be(names: tuple[str, ...], short: tuple[str, ...]) -> None:
    assert short_names(names) == short


def test_long_names_are_cut_and_stay_different() -> None:
    names = (f"{'x' * 60}-one", f"{'x' * 60}-other")

    assert short_names(names) == (f"{'x' * 9}…{'x' * 18}-one", f"{'x' * 9}…{'x' * 16}-other")


def test_a_load_is_named_by_requests_at_once_or_a_second() -> None:
    one, rated = tiny().variants[0].loads[0], open_loop().variants[0].loads[0]

    assert (load_name(one), load_words(one)) == ("1", "1 request at once")
    assert (load_name(rated), load_words(rated)) == ("0.25/s", "0.25 requests a second")


def columns(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns)


def test_the_latency_table_has_the_rows_of_sagemaker() -> None:
    table = latency_table(quantized())

    assert columns(table) == tuple(read_tables(__file__)["latency_columns"])
    assert table.rows[0].cells == (
        *("bf16", "1", "100.8", "192", "29.0", "32.5", "7,317", "8,414", "85.9", "34.2"),
        *("96", "0", "0", "0"),
    )
    assert [row.series for row in table.rows] == [0] * 6 + [1] * 6 + [2] * 6


def test_the_throughput_table_has_figures_of_one_request() -> None:
    table = throughput_table(quantized())

    assert table.rows[0].cells == ("bf16", "1", "6,417", "34.7", "628", "250", "–", "–", "0.14")


def test_the_price_table_has_every_formula() -> None:
    table = known(price_table(quantized()))

    assert columns(table)[2:] == (
        *("$ an hour", "$/1M input", "$/1M output", "$/1M all"),
        *("F1, output", "F2, output", "3:1 blend"),
    )
    assert table.rows[0].cells == (
        *("bf16", "1", "1.41", "4.60", "11.45", "3.28", "11.33", "11.33", "2.86"),
    )


def test_the_table_of_drafts_counts_how_many_times_as_fast() -> None:
    table = known(speculation_table(drafts()))

    cells = {row.cells[:3]: row.cells[3:] for row in table.rows}
    assert cells["plain", "none", "4"][-2:] == ("–", "–")
    assert cells["trained-head", "eagle3", "4"] == (
        *("175", "20.5", "55.0", "0.757", "189.2", "48.7", "2.68", "2.51x"),
    )


def test_what_was_not_measured_is_a_dash_and_what_failed_is_counted() -> None:
    assert latency_table(failed()).rows[0].cells == ("bf16", "1", *["–"] * 8, "32", "32", "0", "0")


@pytest.mark.parametrize(
    ("count", "rank", "found"), [(99, 99, None), (100, 99, 7.0), (9, 10, None), (None, 99, 7.0)]
)
def test_a_percentile_needs_an_answer_beyond_it(
    count: int | None, rank: int, found: float | None
) -> None:
    metric = Metric(unit="ms", avg=7.0, p10=7.0, p99=7.0, count=count)
    load = BenchLoad(requests=9, answered=9, seconds=4.0, metrics={"request_latency": metric})

    assert percentile(load, "request_latency", rank) == found


def test_a_column_is_called_by_what_its_loads_are() -> None:
    assert columns(latency_table(open_loop()))[1] == "rate"
    assert columns(latency_table(tiny()))[1] == "concurrency"


def test_input_tokens_a_second_follow_from_the_mean_where_no_metric_has_them() -> None:
    lengths = {"input_sequence_length": Metric(unit="tokens", avg=100.0)}
    load = BenchLoad(concurrency=1, requests=10, answered=8, seconds=4.0, metrics=lengths)
    one = tiny().variants[0].model_copy(update={"loads": (load,)})

    assert latency_table(tiny().model_copy(update={"variants": (one,)})).rows[0].cells[8] == "200"


def test_numbers_of_a_column_have_the_same_decimals() -> None:
    assert numbers([1234.5, 0.5, None]) == ["1,234.50", "0.50", "–"]
    assert numbers([1234.5, 100.2]) == ["1,234", "100"]
    assert numbers([0.0, 12.34]) == ["0.0", "12.3"]
    assert numbers([0.0123]) == ["0.012"]
    assert numbers([3, 40], whole=True) == ["3", "40"]


@pytest.mark.parametrize("name", REPORTS)
def test_every_row_has_a_cell_a_column(name: str) -> None:
    report = REPORTS[name]()
    of_all = (latency_table, throughput_table, price_table, speculation_table)
    for table in filter(None, (make(report) for make in of_all)):
        assert {len(row.cells) for row in table.rows} <= {len(table.columns)}
