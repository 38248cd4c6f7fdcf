"""`packager plan`."""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from packager import wiring
from packager.adapters.measurements import load_measurements
from packager.build import pipeline
from packager.build.stages import Planned
from packager.cli.cache_options import cache_options, take_cache_options
from packager.cli.options import (
    FiniteRange,
    catalog_option,
    format_option_of,
    make_request,
    request_options,
)
from packager.cli.progress import shown_progress
from packager.cli.terminal import print_json, print_text, warn
from packager.core.instance import Instance
from packager.core.request import BuildRequest
from packager.errors import UsageError
from packager.jobs.opinion import check_installed
from packager.jobs.opinion import second_opinion as ask_second_opinion
from packager.jobs.rank import menu, predict_plan, rank_instances
from packager.planning.opinion import Opinion
from packager.planning.performance import Prediction, Workload, concurrencies_of
from packager.planning.ranking import Ranking
from packager.reports.outlook import make_outlook
from packager.reports.plan import PlanPage, page_document, page_text
from packager.reports.rank import ranking_document, ranking_text


@click.command()
@request_options
@click.option(
    "--discount",
    type=FiniteRange(0, 1, max_open=True),
    default=0.0,
    metavar="SHARE",
    help="Taken off the price of an hour: 0.26 for 26 %.",
)
@click.option(
    "--usd-per-hour",
    type=FiniteRange(min=0, min_open=True, max=1e6),
    metavar="USD",
    help="What an hour of the instance costs you; else the catalog's price, where it has one.",
)
@click.option(
    "--measured",
    "measured_files",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Results of a benchmark of this plan: predictions are fitted to them (repeatable).",
)
@click.option(
    "--second-opinion",
    is_flag=True,
    help="Also show what aiconfigurator estimates (`packager tools install aiconfigurator`).",
)
@catalog_option
@cache_options
@format_option_of(
    "json", "html", help="How the result is printed on stdout; html is one page to keep."
)
def plan(
    output_format: str,
    request_file: Path | None,
    discount: float,
    usd_per_hour: float | None,
    measured_files: tuple[Path, ...],
    second_opinion: bool,
    catalog_file: Path | None,
    cache_dir: Path | None,
    no_cache: bool,
    **given: Any,
) -> None:
    """Decide how a model runs on an instance, without building anything.

    Prints tensor parallelism, memory per device, the shape, predicted speed
    and cost, and every finding.  With --instance all, or a pattern such as
    'ml.g5.*', it ranks the instances that can serve the model instead.
    A machine that is no row of the catalog is named by its devices: 8xH100-80.
    Ends with status 3 when no plan works.

    \b
    packager plan --model examples/tiny-llama --instance ml.g5.xlarge
    packager plan --model examples/tiny-llama --instance all --goal cost
    """
    cache = take_cache_options(given)
    request = make_request(request_file, **given)
    settings = wiring.Settings(
        catalog_file=catalog_file,
        region=request.region,
        usd_per_hour=usd_per_hour,
        headers_only=True,
        cache_dir=cache_dir,
        use_cache=not no_cache,
        cache=cache,
        executor=request.executor or "local",
        address=request.address or "",
        on_warning=warn,
    )
    tools = wiring.services_for(settings)
    measured = tuple(load_measurements(file) for file in measured_files)
    if several := instances_named(request.instance, tools.instances or ()):
        if measured or second_opinion:
            asked = "--measured" if measured else "--second-opinion"
            raise UsageError(
                f"{asked} is of one plan, and several instances are asked for",
                hint="name the instance that was measured" if measured else "name one of them",
            )
        if usd_per_hour is not None:
            raise UsageError(
                "--usd-per-hour is the price of one instance, and several are asked for",
                hint="name the instance, or write their prices into rows of --catalog FILE",
            )
        ranking = rank_instances(request, tools, several, discount=discount)
        _print_ranking(ranking, request, output_format)
        return
    if second_opinion:
        check_installed(wiring.opinion_executor(settings))
    planned = pipeline.plan(request, tools)
    found = planned.plan
    prediction = predict_plan(
        found,
        tools.accelerator_of(found.instance),
        found.workload,
        measured,
        known_as=(request.model,),
    )
    if measured and prediction is None:
        warn("--measured changes nothing: no figures of the device are published")
    opinion = None
    if second_opinion:
        as_json = output_format == "json"
        opinion = _opinion(planned, found.workload, prediction, settings, as_json=as_json)
    page = PlanPage(
        plan=found,
        recipe=planned.recipe,
        forecasts=planned.forecasts,
        outlook=make_outlook(found, prediction, discount=discount) if prediction else None,
        menu=menu(request, tools, found.instance, discount) if prediction else (),
        opinion=opinion,
    )
    _print_plan(page, output_format)


def _opinion(
    planned: Planned,
    workload: Workload,
    prediction: Prediction | None,
    settings: wiring.Settings,
    *,
    as_json: bool,
) -> Opinion:
    """Ask the other predictor about the concurrencies that ours has figures for."""
    points = [point.concurrency for point in prediction.points] if prediction else []
    with shown_progress("auto", as_json=as_json) as on_event:
        told = replace(settings, on_event=on_event)
        return ask_second_opinion(
            planned.plan,
            planned.facts.model,
            workload,
            points or concurrencies_of(planned.plan),
            wiring.opinion_executor(told),
            wiring.opinion_workspace(told),
        )


def _print_ranking(ranking: Ranking, request: BuildRequest, output_format: str) -> None:
    if output_format == "html":
        from packager.reports.html import ranking_html

        # Never the directory that the model lies in.
        print_text(ranking_html(ranking, request.served_name or Path(request.model).name))
    elif output_format == "json":
        print_json(ranking_document(ranking))
    else:
        print_text(ranking_text(ranking))


def _print_plan(page: PlanPage, output_format: str) -> None:
    if output_format == "html":
        from packager.reports.html import plan_html

        print_text(plan_html(page))
    elif output_format == "json":
        print_json(page_document(page))
    else:
        print_text(page_text(page))


def instances_named(pattern: str, catalog: tuple[Instance, ...]) -> tuple[Instance, ...]:
    """Return the catalog's instances for `all` or a pattern; none for a single name.

    `all` stands for what SageMaker hosts on and the user's own rows; a pattern for every cloud's.
    """
    if pattern == "all":
        return tuple(known for known in catalog if known.cloud in ("sagemaker", ""))
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
