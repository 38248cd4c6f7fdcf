"""What is said of a benchmark as a whole."""

from __future__ import annotations

from packager.addons.bench.page_tables import note_sentences
from packager.addons.bench.report_notes import report_notes
from packager.core.bench import BenchVariant, Compared, Metric
from tests.support import bench_reports
from tests.unit.addons.bench.variants import load, variant


def priced(name: str, requests_s: float, usd_hour: float) -> BenchVariant:
    made = load([100.0], usd_hour=usd_hour)
    metrics = {**made.metrics, "request_throughput": Metric(unit="requests/sec", avg=requests_s)}
    return variant(name, made.model_copy(update={"metrics": metrics}))


def test_a_dearer_machine_is_named_with_the_load_it_pays_from() -> None:
    # 1,000 and 6,000 requests an hour; three of the smaller machines cost 21.27 dollars
    notes = report_notes([priced("g5", 1 / 3.6, 7.09), priced("p4d", 6 / 3.6, 25.251)], ())

    assert notes == (
        "above 3,000 requests an hour 1 machine of 'p4d' ($25.25 an hour each) costs less than "
        "4 machines of 'g5' ($7.09)",
    )


def test_without_prices_no_bills_cross() -> None:
    assert report_notes([variant("plain", load([1.0])), priced("awq", 2.0, 7.09)], ()) == ()
    assert report_notes([], ()) == ()


def test_many_comparisons_are_said_to_differ_by_chance() -> None:
    one = Compared(variant="a", metric="request_latency", ratio=1, low=1, high=1, is_noise=True)

    assert report_notes([], [one] * 19) == ()
    assert report_notes([], [one] * 40) == (
        "each of the 40 intervals holds with 95 % alone: were all servers equal, about 2 of the "
        "comparisons would still look like a difference",
    )


def test_a_note_names_its_server_as_it_is_called() -> None:
    slow = bench_reports.load(1, tpot_ms=9.0, ttft_ms=90.0).model_copy(update={"notes": ("late.",)})
    served = bench_reports.variant("tiny-llama:1", levels=()).model_copy(update={"loads": (slow,)})
    report = bench_reports.report((served,), notes=("bills cross",))

    assert note_sentences(report) == ["Bills cross.", "tiny-llama:1, 1 request at once: late."]
