"""Rankings for people and programs."""

from __future__ import annotations

from dataclasses import replace

from packager.core.reports.charts import text_chart
from packager.core.reports.report import Dot, Series
from packager.estimate.performance.ranking import SkippedInstance, pareto, rank
from packager.estimate.performance.report_rank import (
    closing_sentence,
    ranking_document,
    skipped_groups,
)
from tests.support.cases import as_type, read_tables
from tests.support.known import known
from tests.support.report_values import option_on, ranking_text

CHEAP = option_on("ml.g5.xlarge", "cost")
# One copy on one of eight H100: faster than an A10G, and dear.
FAST = option_on("ml.p5.48xlarge", "cost", tp_degree=1, dp_degree=1, max_batch=32)
RANKING = rank(
    [FAST, CHEAP], [SkippedInstance("ml.g4dn.xlarge", "ml.g4dn.xlarge is too small")], "cost"
)


def test_the_cheapest_comes_first_and_the_last_line_says_so() -> None:
    text = ranking_text(RANKING)

    assert text.splitlines()[-1].startswith("Best price-performance is ml.g5.xlarge: ")
    assert "below the next, ml.p5.48xlarge." in text.splitlines()[-1]
    assert text.index("ml.g5.xlarge") < text.index("ml.p5.48xlarge")
    assert "left out   ml.g4dn.xlarge\n           it is too small" in text


def test_the_lowest_bill_of_a_month_is_told_for_a_stated_load() -> None:
    text = ranking_text(RANKING)

    assert "a month    the lowest bill is on ml.g5.xlarge: $1,028 a month for 100,000" in text
    assert ranking_document(RANKING)["options"][0]["monthly"]["machines"] == 1
    unpriced = rank([option_on("ml.g5.xlarge", "cost", usd_hour=0)], [], "cost")
    assert "a month" not in ranking_text(unpriced)


def test_the_fastest_comes_first_for_latency() -> None:
    names = ("ml.g5.xlarge", "ml.p5.48xlarge")
    ranking = rank([option_on(name, "latency") for name in names], [], "latency")

    assert tuple(option.plan.instance.name for option in ranking.options) == names[::-1]
    assert ranking.options[0].point.concurrency == 1
    assert closing_sentence(ranking).startswith("Fastest for one reader is ml.p5.48xlarge")


def test_most_tokens_come_first_for_throughput() -> None:
    assert rank([CHEAP, FAST], [], "throughput").options[0].plan.instance.name == "ml.p5.48xlarge"


def test_an_option_that_breaks_the_latency_limit_comes_last_for_throughput() -> None:
    slow = replace(FAST, in_time=False)
    assert FAST.point.output_tokens_s > CHEAP.point.output_tokens_s

    assert rank([slow, CHEAP], [], "throughput").options == (CHEAP, slow)


def test_an_instance_keeps_its_best_option_only() -> None:
    slow = option_on("ml.g5.xlarge", "cost", max_batch=1)

    assert rank([slow, CHEAP], [], "cost").options == (CHEAP,)


def test_an_instance_without_a_price_comes_last() -> None:
    unpriced = option_on("ml.g5.12xlarge", "cost", usd_hour=0.0)

    ranking = rank([unpriced, FAST, CHEAP], [], "cost")
    assert ranking.options[-1] == unpriced
    assert ranking_document(ranking)["options"][-1]["usd_per_million"] is None
    assert "–" in ranking_text(ranking)


def test_nothing_beats_what_is_on_the_front() -> None:
    dear = option_on("ml.g5.xlarge", "cost", usd_hour=1000.0)

    assert pareto([dear, FAST, CHEAP]) == (FAST, CHEAP)


def test_an_option_that_is_slower_and_a_little_dearer_is_not_on_the_front() -> None:
    prices = known(FAST.prices)
    point = replace(FAST.point, tpot_s=FAST.point.tpot_s * 1.01)
    beaten = replace(FAST, point=point, prices=replace(prices, output=prices.output * 1.01))

    assert pareto([beaten, FAST, CHEAP]) == (FAST, CHEAP)


def test_without_options_the_sentence_says_so() -> None:
    ranking = rank([], [SkippedInstance("a", "b"), SkippedInstance("c", "b")], "cost")

    assert ranking_text(ranking).splitlines()[-1] == (
        "None of 2 instances can serve the model as requested."
    )


def test_instances_with_the_same_reason_stand_together() -> None:
    skipped = as_type(read_tables(__file__)["skipped"], tuple[SkippedInstance, ...])

    assert skipped_groups(skipped) == [("it has no room", ["ml.a", "ml.b"]), ("other", ["ml.c"])]


def series(*dots: tuple[float, float], ringed: bool = False, faint: bool = False) -> Series:
    made = tuple(Dot(x=x, y=y, title="", ringed=ringed) for x, y in dots)
    return Series(number=0, name="", dots=made, is_faint=faint)


def test_a_terminal_chart_shows_the_ringed_one_above_others() -> None:
    told = (
        series((10, 1), ringed=True),
        series((100, 10)),
        series((10, 1), (20, 10), faint=True),
    )

    lines = text_chart(told, x_label="speed", y_label="price", width=40, height=6)

    assert sum(line.count("*") for line in lines) == 1
    assert sum(line.count("o") for line in lines) == 1
    assert sum(line.count(".") for line in lines) == 1
    assert lines[0] == "  price"
    assert lines[-1].strip() == "speed"
    assert any("50" in line for line in lines)


def test_a_chart_of_one_point_can_be_drawn() -> None:
    told = (series((10, 1), ringed=True),)

    assert any("*" in line for line in text_chart(told, x_label="x", y_label="y"))


def test_a_limit_on_the_first_token_is_named() -> None:
    ranking = rank([CHEAP, FAST], [], "cost", 0.05, 2.0)

    assert "each token within 50 ms, the first within 2,000 ms" in ranking_text(ranking)
    assert ranking_document(ranking)["ttft_limit_s"] == 2.0
