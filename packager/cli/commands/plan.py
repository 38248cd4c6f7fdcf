"""`packager plan`."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packager.cli.commands.cache_options import cache_options, take_cache_settings
from packager.cli.field_options import FiniteRange
from packager.cli.options import make_request, model_argument, request_options
from packager.cli.progress import shown_progress
from packager.cli.shared_options import (
    catalog_option,
    format_option_of,
    load_measured,
    measured_option,
)
from packager.cli.terminal import print_json, print_report, print_text, warn
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.opinions import opinion_executor, opinion_workspace
from packager.cli.wiring.settings import Settings, settings_for
from packager.core.errors import PlanRejected, UsageError
from packager.core.instance import Instance
from packager.core.measurement import MeasuredRun
from packager.core.request import BuildRequest
from packager.core.values import dataclass
from packager.estimate.performance.ask_opinion import check_installed
from packager.estimate.performance.ask_opinion import second_opinion as ask_second_opinion
from packager.estimate.performance.measured import measured_starts
from packager.estimate.performance.monthly import MOST_REQUESTS_PER_DAY, REQUESTS_PER_DAY
from packager.estimate.performance.opinion import Opinion
from packager.estimate.performance.predict import Prediction, Workload, concurrencies_of
from packager.estimate.performance.report_outlook import make_outlook
from packager.estimate.performance.report_rank import Menu, ranking_document
from packager.estimate.performance.startup import bandwidth_of, image_of_plan, predict_startup
from packager.pipeline import pipeline
from packager.pipeline.planning.requested import target_of
from packager.pipeline.rank import menu, predict_plan, rank_instances
from packager.pipeline.report_page import plan_report
from packager.pipeline.report_plan import PlanPage, page_document
from packager.pipeline.report_ranking import ranking_report
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Planned

if TYPE_CHECKING:
    from packager.cli.commands.plan_page import Pages


@click.command()
@model_argument
@request_options
@click.option(
    "--discount",
    type=FiniteRange(0, 1, max_open=True),
    default=0.0,
    metavar="SHARE",
    help="Discount on the hourly price: 0.26 for 26 %.",
)
@click.option(
    "--usd-per-hour",
    type=FiniteRange(min=0, min_open=True, max=1e6),
    metavar="USD",
    help="Your price of an hour of the instance; by default the catalog's.",
)
@click.option(
    "--requests-per-day",
    type=click.IntRange(1, MOST_REQUESTS_PER_DAY),
    default=REQUESTS_PER_DAY,
    show_default=True,
    metavar="N",
    help="Load that the cost of a month is computed for.",
)
@measured_option
@click.option(
    "--second-opinion",
    is_flag=True,
    help="Also show what aiconfigurator estimates (`packager tools install aiconfigurator`).",
)
@click.option(
    "--goals",
    "with_goals",
    is_flag=True,
    help="Also show the best configuration of the instance for each goal; an HTML page always "
    "does.",
)
@catalog_option
@cache_options
@format_option_of("json", "html", help="Output format on stdout; html is a self-contained page.")
def plan(
    output_format: str,
    request_file: Path | None,
    discount: float,
    usd_per_hour: float | None,
    requests_per_day: int,
    measured_files: tuple[Path, ...],
    second_opinion: bool,
    with_goals: bool,
    **given: Any,
) -> None:
    """Plan how a model runs on an instance, without building anything.

    Prints tensor parallelism, memory per device, the shape, predicted speed
    and cost, and every finding.  With --instance all, or a pattern such as
    'ml.g5.*', it ranks the instances that can serve the model instead.
    A machine that is not in the catalog is named by its devices: 8xH100-80.
    Ends with status 3 when no plan works.

    \b
    packager plan --model examples/tiny-llama --instance ml.g5.xlarge
    packager plan --model examples/tiny-llama --instance all --goal cost
    """
    own = take_cache_settings(given) | {"catalog_file": given.pop("catalog_file")}
    request = make_request(request_file, **given)
    settings = replace(
        settings_for(request),
        **own,
        region=request.region,
        usd_per_hour=usd_per_hour,
        headers_only=True,
        on_warning=warn,
    )
    asked = _PlanOptions(
        request=request,
        settings=settings,
        services=services_for(settings),
        discount=discount,
        requests_per_day=requests_per_day,
        measured=load_measured(measured_files),
        second_opinion=second_opinion,
        with_goals=with_goals or output_format == "html",
        output_format=output_format,
    )
    if several := instances_named(request.instance, asked.services.instances or ()):
        given = {"--second-opinion": second_opinion, "--goals": with_goals}
        _check_ranking(given, usd_per_hour)
        _rank(asked, several)
    else:
        _plan(asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanOptions:
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


def _rank(asked: _PlanOptions, several: tuple[Instance, ...]) -> None:
    """Plan on every instance, and print the ranking."""
    ranking = rank_instances(
        asked.request,
        asked.services,
        several,
        discount=asked.discount,
        requests_per_day=asked.requests_per_day,
        measured=tuple(run for run in asked.measured if run.has_loads),
    )
    if asked.output_format == "html":
        print_text(asked.pages.ranking(ranking))
    elif asked.output_format == "json":
        print_json(ranking_document(ranking))
    else:
        print_report(ranking_report(ranking, asked.request.model))


def _plan(asked: _PlanOptions) -> None:
    """Plan on one instance, and print the plan; a refused one has a page, too."""
    if asked.second_opinion:
        check_installed(opinion_executor(asked.settings))
    try:
        planned = pipeline.plan(asked.request, asked.services)
    except PlanRejected as error:
        if asked.output_format == "html":
            print_text(asked.pages.refused(error))
        raise
    page = _make_page(asked, planned)
    if asked.output_format == "html":
        print_text(asked.pages.plan(page, planned.facts.model))
    elif asked.output_format == "json":
        print_json(page_document(page))
    else:
        print_report(plan_report(page))


def _make_page(asked: _PlanOptions, planned: Planned) -> PlanPage:
    """Predict a plan, run the other predictor, and search for better plans on the same instance."""
    request, services, found = asked.request, asked.services, planned.plan
    loads = tuple(run for run in asked.measured if run.has_loads)
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
    if asked.second_opinion:
        as_json = asked.output_format == "json"
        opinion = _opinion(planned, found.workload, prediction, asked.settings, as_json=as_json)
    outlook = None
    to_try: Menu | None = () if asked.with_goals else None
    if prediction:
        outlook = make_outlook(
            found,
            prediction,
            discount=asked.discount,
            requests_per_day=asked.requests_per_day,
            tpot_limit_s=target_of(request, found.workload).tpot_limit_s,
        )
        if asked.with_goals:
            to_try = menu(request, services, found.instance, asked.discount, asked.requests_per_day)
    startup = predict_startup(
        image_of_plan(found),
        bandwidth_bytes_s=bandwidth_of(found.instance),
        measured=measured_starts(found, asked.measured, known_as=(request.model,)),
    )
    return PlanPage(
        plan=found,
        recipe=planned.recipe,
        forecasts=planned.forecasts,
        outlook=outlook,
        menu=to_try,
        opinion=opinion,
        startup=startup,
    )


def _check_ranking(given: Mapping[str, bool], usd_per_hour: float | None) -> None:
    """Refuse options that are about one instance where several are ranked."""
    if asked := next((flag for flag, is_on in given.items() if is_on), ""):
        raise UsageError(
            f"{asked} applies to one plan, but several instances are requested",
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
    points = [point.concurrency for point in prediction.points] if prediction else []
    with shown_progress("auto", as_json=as_json) as on_event:
        told = replace(settings, on_event=on_event)
        return ask_second_opinion(
            planned.plan,
            planned.facts.model,
            workload,
            points or concurrencies_of(planned.plan),
            opinion_executor(told),
            opinion_workspace(told),
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
