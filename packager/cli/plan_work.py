"""What `packager plan` does: plan on one instance or rank several, and print what came of it."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packager.cli.progress import shown_progress
from packager.cli.terminal import print_json, print_report, print_text, warn
from packager.core.errors import PlanRejected, UsageError
from packager.estimate.performance.measured import measured_starts
from packager.estimate.performance.predict import concurrencies_of
from packager.estimate.performance.report_outlook import make_outlook
from packager.estimate.performance.startup import bandwidth_of, image_of_plan, predict_startup
from packager.pipeline import pipeline
from packager.pipeline.planning.requested import target_of
from packager.pipeline.rank import menu, predict_plan, rank_instances
from packager.pipeline.report_page import plan_report
from packager.pipeline.report_plan import PlanPage, page_document

if TYPE_CHECKING:
    from packager.cli.commands.plan_page import Pages
    from packager.cli.wiring.settings import Settings
    from packager.core.instance import Instance
    from packager.core.measurement import MeasuredRun
    from packager.core.request import BuildRequest
    from packager.estimate.performance.opinion import Opinion
    from packager.estimate.performance.predict import Prediction, Workload
    from packager.estimate.performance.report_rank import Menu
    from packager.pipeline.services import BuildServices
    from packager.pipeline.stages import Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of the command line, and the services that a plan needs."""

    request: BuildRequest
    settings: Settings
    services: BuildServices
    discount: float
    requests_per_day: int
    measured: tuple[MeasuredRun, ...]
    second_opinion: bool
    with_goals: bool
    output_format: str

    @property
    def pages(self) -> Pages:
        """Return the writer of HTML pages, imported on first use."""
        from packager.cli.commands.plan_page import pages_for

        return pages_for(self.request, self.settings, self.discount)


def run_plan(
    options: PlanOptions, *, usd_per_hour: float | None, flags: Mapping[str, bool]
) -> None:
    """Plan on the instance, or rank all that are meant; refuse `flags` that are about one plan."""
    request = options.request
    if several := instances_named(request.instance, options.services.instances or ()):
        check_ranking(flags, usd_per_hour)
        print_ranking(options, several)
    else:
        print_plan(options)


def print_ranking(options: PlanOptions, several: tuple[Instance, ...]) -> None:
    """Plan on every instance, and print the ranking."""
    from packager.estimate.performance.report_rank import ranking_document
    from packager.pipeline.report_ranking import ranking_report

    ranking = rank_instances(
        options.request,
        options.services,
        several,
        discount=options.discount,
        requests_per_day=options.requests_per_day,
        measured=tuple(run for run in options.measured if run.has_loads),
    )
    if options.output_format == "html":
        print_text(options.pages.ranking(ranking))
    elif options.output_format == "json":
        print_json(ranking_document(ranking))
    else:
        print_report(ranking_report(ranking, options.request.model))


def print_plan(options: PlanOptions) -> None:
    """Plan on one instance, and print the plan; a refused one has a page, too."""
    if options.second_opinion:
        from packager.cli.wiring.opinions import opinion_executor
        from packager.estimate.performance.ask_opinion import check_installed

        check_installed(opinion_executor(options.settings))
    try:
        planned = pipeline.plan(options.request, options.services)
    except PlanRejected as error:
        if options.output_format == "html":
            print_text(options.pages.refused(error))
        raise
    page = _make_page(options, planned)
    if options.output_format == "html":
        print_text(options.pages.plan(page, planned.facts.model))
    elif options.output_format == "json":
        print_json(page_document(page))
    else:
        print_report(plan_report(page))


def _make_page(options: PlanOptions, planned: Planned) -> PlanPage:
    """Predict a plan, run the other predictor, and search for better plans on the same instance."""
    request, services, found = options.request, options.services, planned.plan
    loads = tuple(run for run in options.measured if run.has_loads)
    prediction = predict_plan(
        found,
        services.accelerator_of(found.instance),
        found.workload,
        loads,
        known_as=(request.model,),
    )
    if loads and prediction is None:
        warn(
            "--measured changes nothing: no figures of the device are published, and requests of "
            "these lengths were not measured (--workload IN:OUT)"
        )
    opinion = None
    if options.second_opinion:
        as_json = options.output_format == "json"
        opinion = _opinion(planned, found.workload, prediction, options.settings, as_json=as_json)
    outlook = None
    to_try: Menu | None = () if options.with_goals else None
    if prediction:
        outlook = make_outlook(
            found,
            prediction,
            discount=options.discount,
            requests_per_day=options.requests_per_day,
            tpot_limit_s=target_of(request, found.workload).tpot_limit_s,
        )
        if options.with_goals:
            to_try = menu(
                request, services, found.instance, options.discount, options.requests_per_day
            )
    elsewhere = None
    if options.with_goals:
        from packager.pipeline.elsewhere import look_elsewhere

        elsewhere = look_elsewhere(
            request,
            services,
            found.instance,
            discount=options.discount,
            requests_per_day=options.requests_per_day,
        )
    startup = predict_startup(
        image_of_plan(found),
        bandwidth_bytes_s=bandwidth_of(found.instance),
        measured=measured_starts(found, options.measured, known_as=(request.model,)),
    )
    return PlanPage(
        plan=found,
        recipe=planned.recipe,
        forecasts=planned.forecasts,
        outlook=outlook,
        menu=to_try,
        opinion=opinion,
        startup=startup,
        elsewhere=elsewhere,
    )


def check_ranking(given: Mapping[str, bool], usd_per_hour: float | None) -> None:
    """Refuse options that are about one instance where several are ranked."""
    if flag := next((flag for flag, is_on in given.items() if is_on), ""):
        raise UsageError(
            f"{flag} applies to one plan, but several instances are requested",
            hint="name one of them",
        )
    if usd_per_hour is not None:
        raise UsageError(
            "--usd-per-hour is the price of one instance, but several are requested",
            hint="name the instance, or write their prices into rows of --catalog FILE",
        )


def _opinion(
    planned: Planned,
    workload: Workload,
    prediction: Prediction | None,
    settings: Settings,
    *,
    as_json: bool,
) -> Opinion:
    """Run the other predictor at the concurrencies that ours has figures for."""
    from packager.cli.wiring.opinions import opinion_executor, opinion_workspace
    from packager.estimate.performance.ask_opinion import second_opinion as ask_second_opinion

    points = [point.concurrency for point in prediction.points] if prediction else []
    with shown_progress("auto", as_json=as_json) as on_event:
        shown = replace(settings, on_event=on_event)
        return ask_second_opinion(
            planned.plan,
            planned.facts.model,
            workload,
            points or concurrencies_of(planned.plan),
            opinion_executor(shown),
            opinion_workspace(shown),
        )


def instances_named(pattern: str, catalog: tuple[Instance, ...]) -> tuple[Instance, ...]:
    """Return the catalog's instances for `all` or a pattern; none for a single name.

    `all` selects SageMaker's instances and the user's own rows; a pattern matches those of every
    cloud.
    """
    if pattern == "all":
        return tuple(known for known in catalog if known.cloud in ("sagemaker", None))
    if not set(pattern) & set("*?["):
        return ()
    found = tuple(
        known
        for known in catalog
        if fnmatch.fnmatchcase(known.name, pattern)
        or fnmatch.fnmatchcase(known.name, f"ml.{pattern}")
    )
    if not found:
        raise UsageError(
            f"no instance type in the catalog is like {pattern!r}",
            hint="`packager list instances` shows them all; try --instance 'ml.g5.*'",
        )
    return found
