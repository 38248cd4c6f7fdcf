"""Benchmarks side by side: what may be compared, and what is said where it may not."""

from __future__ import annotations

from typing import Any

from packager.addons.bench.decision import decide
from packager.addons.bench.merge import Named, merge, report_of_record
from packager.core.bench import BenchReport, BenchWorkload, Limits
from packager.core.record import RecordedDraft, RecordedLayer
from tests.support.bench_reports import REPORTS, drafts, even, quantized, report, variant
from tests.support.cases import Case, cases, read_tables
from tests.support.refusals import raises_code
from tests.support.report_values import bench_html, quality_report, speculation_report
from tests.unit.addons.bench.test_report_notes import priced
from tests.unit.pipeline.test_records import MANIFEST, record

CREATED = "1970-01-01T00:00:00Z"


def named(*reports: BenchReport) -> list[Named]:
    return [
        Named(name=f"{letter}.json", report=one)
        for letter, one in zip("abcdef", reports, strict=False)
    ]


def with_workload(**changes: Any) -> BenchReport:
    workload = even().workload.model_copy(update=changes)
    return even().model_copy(update={"workload": workload})


def test_one_report_stays_as_it_is() -> None:
    assert merge(named(quantized())) == quantized()


@cases("names")
def test_variants_stand_side_by_side(case: Case) -> None:
    files = [Named(name=name, report=REPORTS[report]()) for name, report in case["files"]]

    assert [one.name for one in merge(files).variants] == case["names"]


def test_nothing_is_called_noise_between_benchmarks() -> None:
    found = merge(named(even(), drafts()))
    known = {one.variant: one.is_noise for one in found.compared}

    assert known == {
        "shop:other": True,
        "shop:plain": None,
        "shop:base-head": None,
        "shop:trained-head": None,
    }
    assert {one.low for one in found.compared if one.variant == "shop:plain"} == {None}
    assert any("not between them" in note for note in found.notes)
    assert decide(found).doubts[0] == "How much of the difference is noise is not known."


@cases("different")
def test_different_requests_are_refused(
    changes: dict[str, Any] | None, without: str | None, what: str
) -> None:
    changed = {**(changes or {}), **({without: None} if without else {})}

    with raises_code("DifferentWorkloads") as raised:
        merge(named(even(), with_workload(**changed)))

    assert raised.value.message == f"'a.json' and 'b.json' sent different requests: {what}"
    assert "--mixed" in raised.value.hint


def test_other_seeds_are_the_same_workload() -> None:
    assert merge(named(even(), with_workload(seed=7))).compared != ()


def test_different_requests_are_shown_and_not_compared_where_that_is_asked_for() -> None:
    found = merge(named(even(), with_workload(name="chat")), mixed=True)

    assert (found.compared, found.pareto) == ((), ())
    assert (
        found.notes[0]
        == "a.json and b.json sent different requests: workload 'questions' and 'chat'"
    )
    assert decide(found).sentence == (
        "4 variants, measured with different requests: their figures do not compare."
    )
    page = bench_html(found)
    assert 'id="choices"' not in page
    assert 'class="halo"' not in page


def test_machines_of_several_benchmarks_are_told_by_their_bills() -> None:
    one, other = (
        with_workload().model_copy(update={"variants": (priced(name, rate, usd),)})
        for name, rate, usd in (("g5", 1 / 3.6, 7.09), ("p4d", 6 / 3.6, 25.251))
    )

    assert any(note.startswith("above 3,000 requests") for note in merge(named(one, other)).notes)


def test_limits_that_differ_are_applied_to_nothing() -> None:
    other = drafts().model_copy(update={"limits": Limits(ttft_ms=100)})
    found = merge(named(even(), other))

    assert found.limits == Limits()
    assert {load.good for one in found.variants for load in one.loads} == {None}
    assert "limits differ between the benchmarks: none is applied" in found.notes


def test_other_machines_and_times_are_told() -> None:
    other = drafts().model_copy(
        update={"machine": "local: 8 CPUs", "measured": "2026-10-01T00:00:00Z"}
    )
    found = merge(named(even(), other))

    assert found.machine == "local: 1 x NVIDIA A10G, 4 CPUs, 16 GiB; local: 8 CPUs"
    assert found.measured == "2026-09-01T12:30:00Z to 2026-10-01T00:00:00Z"
    assert "measured on 2 different machines" in found.notes


def test_what_ended_early_is_told_with_its_file() -> None:
    cut = even().model_copy(update={"incomplete": "interrupted"})

    assert merge(named(cut, drafts())).incomplete == "a.json: interrupted"


def test_a_record_has_its_benchmark_with_the_quality_of_the_build() -> None:
    one = variant("shop:awq", tpot_ms=11.0, ttft_ms=90.0, setup={"digest": MANIFEST})
    other = variant("shop:bf16", tpot_ms=28.0, ttft_ms=90.0)
    built = record(bench=report((one, other)), quality=quality_report(), created=CREATED)
    found = report_of_record(built)

    assert [one.quality for one in found.variants] == [quality_report(), None]
    assert found.notes == ("tiny: built in 1 s, 0 B",)


def test_a_record_with_a_measured_draft_has_both_servers() -> None:
    draft = RecordedDraft(kind="eagle3", speculative_tokens=3)
    found = report_of_record(record(speculation=speculation_report(), draft=draft))

    assert [(one.name, one.setup.draft) for one in found.variants] == [
        ("shop:eagle without its draft", "none"),
        ("shop:eagle", "eagle3"),
    ]
    plain, speculative = (one.loads[0] for one in found.variants)
    assert speculative.metrics["time_to_first_token"].p50 == 50.0
    assert speculative.acceptance is not None and speculative.acceptance.length == 2.345
    assert plain.acceptance is None
    assert found.workload == BenchWorkload(**read_tables(__file__)["draft_workload"])


def test_a_record_without_measurements_is_one_variant_without_loads() -> None:
    layers = (RecordedLayer(role="weights", digest=MANIFEST, size=5_000_000_000),)
    changes = {"layers": layers, "seconds": 412.0, "created": CREATED}
    found = report_of_record(record(quality=quality_report(), **changes))
    (one,) = found.variants

    assert (one.name, one.loads, one.quality) == ("tiny", (), quality_report())
    assert found.notes == ("tiny: built in 412 s, 5.0 GB",)
    assert decide(found).sentence == "Nothing was measured: `packager bench` does it."
    assert 'id="latency"' not in bench_html(found)


def test_a_build_that_was_not_measured_stands_beside_any_workload() -> None:
    found = merge(named(report_of_record(record()), even()))

    assert found.workload == even().workload
    assert len(found.variants) == 3
    assert "requests differ" not in " ".join(found.notes)
