"""Pages of `packager plan`: their inputs, and the choices that they show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import click
from click.core import ParameterSource

from packager.cli.wiring.builds import parse_model_reference
from packager.cli.wiring.settings import Settings, state_dir, stated_time
from packager.core.errors import PlanRejected
from packager.core.model import ModelFiles
from packager.core.reports.page import report_html
from packager.core.request import BuildRequest
from packager.core.version import __version__
from packager.estimate.performance.ranking import Ranking
from packager.pipeline.choices import plan_choices, ranking_choices
from packager.pipeline.records import find_quality
from packager.pipeline.report_page import plan_report, refused_report
from packager.pipeline.report_plan import PlanPage
from packager.pipeline.report_ranking import ranking_report
from packager.pipeline.trace import Trace, make_trace, name_of

# Options outside the request that change what a page shows; a build has the last one, too.
_OWN = ("discount", "usd_per_hour", "requests_per_day", "measured_files", "second_opinion")
_SHARED = ("catalog_file",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Writes pages of one command: its request, its other options, and where records are."""

    request: BuildRequest
    settings: Settings
    own: tuple[str, ...]  # options outside the request, as command-line words
    shared: tuple[str, ...]  # those that `packager build` has as well
    discount: float = 0.0

    def plan(self, page: PlanPage, model: ModelFiles) -> str:
        """Return the page of a plan, with the quality that was measured of the same weights.

        The records of this machine tell it, by the key of the step that quantizes.
        """
        keys = {status.key for status in page.forecasts if status.key}
        quality = find_quality(state_dir(self.settings.environment), keys)
        choices = plan_choices(page, self.request, quality, self.shared)
        return report_html(plan_report(page, trace=self._trace(model), choices=choices))

    def ranking(self, ranking: Ranking) -> str:
        """Return the page of a ranking."""
        return report_html(
            ranking_report(
                ranking,
                self.request.served_name or self._name(ranking.model),
                trace=self._trace(ranking.model),
                choices=ranking_choices(ranking, self.request, self.shared),
                discount=self.discount,
            )
        )

    def refused(self, error: PlanRejected) -> str:
        """Return the page of a request that no plan satisfies."""
        trace = self._trace(None)
        return report_html(refused_report(self.request, self._name(None), error, trace))

    def _name(self, model: ModelFiles | None) -> str:
        if model is not None:
            return model.ref.name
        reference = parse_model_reference(self.request.model)
        return name_of(self.request, reference)

    def _trace(self, model: ModelFiles | None) -> Trace:
        stated = stated_time(self.settings.environment)
        return make_trace(
            self.request,
            model,
            made=stated or datetime.now(UTC),
            packager=__version__,
            others=(*self.own, *self.shared),
        )


def pages_for(request: BuildRequest, settings: Settings, discount: float) -> Pages:
    """Return what writes the pages of the command that runs."""
    return Pages(
        request=request,
        settings=settings,
        own=tuple(_given(_OWN)),
        shared=tuple(_given(_SHARED)),
        discount=discount,
    )


def _given(names: tuple[str, ...]) -> Iterator[str]:
    """Yield the options that differ from their defaults, as command-line words."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name not in names:
            continue
        if context.get_parameter_source(option.name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[option.name]
        for one in value if isinstance(value, tuple) else (value,):
            yield option.opts[0]
            if one is not True:
                yield str(one)
