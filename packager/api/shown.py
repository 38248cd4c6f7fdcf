"""How the API's values look in a notebook: the reports of the commands of their names."""

from __future__ import annotations

from packager.core.bench import BenchReport
from packager.core.plan import Plan
from packager.core.quality import QualityReport
from packager.core.record import BuildRecord
from packager.core.reports.notebook import show_with
from packager.core.reports.report import Lines, Pair, Report, Section, one_section
from packager.core.tuning import TuneReport


def prepare() -> None:
    """Register how values are shown; what makes their reports is imported when one is shown."""
    show_with(Plan, _plan_report)
    show_with(BuildRecord, _record_report)
    show_with(QualityReport, _quality_report)
    show_with(BenchReport, _bench_report)
    show_with(TuneReport, _tune_report)


def _plan_report(plan: Plan) -> Report:
    """Return a plan with what is predicted by the shipped figures, as `packager plan` shows it."""
    from packager.catalog.accelerators import accelerator_of
    from packager.estimate.performance.presets import REQUESTS_PER_DAY
    from packager.estimate.performance.report_outlook import make_outlook
    from packager.pipeline.rank import predict_plan
    from packager.pipeline.report_page import plan_report
    from packager.pipeline.report_plan import PlanPage

    found = predict_plan(plan, accelerator_of(plan.instance), plan.workload, ())
    outlook = (
        make_outlook(plan, found, discount=0.0, requests_per_day=REQUESTS_PER_DAY)
        if found
        else None
    )
    return plan_report(PlanPage(plan=plan, outlook=outlook))


def _record_report(record: BuildRecord) -> Report:
    from packager.pipeline.report import summary_lines

    images = tuple(Pair(one.target, one.digest) for one in record.images)
    trees = tuple(Pair(one.target, one.digest) for one in record.trees)
    lines = Lines(tuple(summary_lines(record)), "")
    return Report(
        title=f"{record.served_name}: {record.digest}",
        tiles=(
            *images,
            *trees,
            Pair("for", record.request.instance),
            Pair("engine", _engine(record)),
        ),
        sections=(Section(title="What was built", parts=(lines,)),),
    )


def _engine(record: BuildRecord) -> str:
    return f"{record.engine} {record.engine_version}, TP {record.tp_degree}"


def _quality_report(report: QualityReport) -> Report:
    from packager.optimize.evaluate.report import quality_lines

    return one_section("Quality", Lines(tuple(quality_lines(report)), ""))


def _bench_report(report: BenchReport) -> Report:
    from packager.addons.bench.report import bench_report

    return bench_report(report)


def _tune_report(report: TuneReport) -> Report:
    from packager.addons.bench.tune.report import tune_report

    return tune_report(report)
