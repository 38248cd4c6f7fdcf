"""`packager plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from packager.cli.commands.cache_options import cache_options, take_cache_settings
from packager.cli.field_options import FiniteRange
from packager.cli.options import make_request, model_argument, request_options
from packager.cli.shared_options import (
    catalog_option,
    format_option_of,
    load_measured,
    measured_option,
)
from packager.cli.terminal import warn
from packager.estimate.performance.presets import MOST_REQUESTS_PER_DAY, REQUESTS_PER_DAY


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
    from packager.cli.plan_work import PlanOptions, run_plan
    from packager.cli.wiring.builds import services_for
    from packager.cli.wiring.settings import settings_for

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
    options = PlanOptions(
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
    flags = {"--second-opinion": second_opinion, "--goals": with_goals}
    run_plan(options, usd_per_hour=usd_per_hour, flags=flags)
