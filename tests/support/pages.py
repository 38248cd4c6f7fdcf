"""Pages of plans and rankings of every kind of architecture, made from headers alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from packager.cli.wiring.builds import parse_model_reference, services_for
from packager.cli.wiring.settings import Settings
from packager.core.errors import PlanRejected
from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.core.quality import QualityReport
from packager.core.request import BuildRequest
from packager.estimate.performance.report_outlook import make_outlook
from packager.pipeline import pipeline
from packager.pipeline.choices import plan_choices, ranking_choices
from packager.pipeline.elsewhere import look_elsewhere
from packager.pipeline.rank import menu, predict_plan, rank_instances
from packager.pipeline.report_plan import PlanPage
from packager.pipeline.services import BuildServices
from packager.pipeline.trace import make_trace, name_of
from tests.support import zoo
from tests.support.headers import LLAMA_3_8B, LOCAL_CPU, TINY, model_of
from tests.support.layouts import config_of, headers_of
from tests.support.mtp_models import qwen3_next
from tests.support.report_values import plan_html, ranking_html, refused_html

MACHINES = ("ml.g5.xlarge", "ml.g6e.xlarge", "ml.p5.48xlarge", "ml.p5en.48xlarge")
MADE = datetime(2026, 9, 1, 12, 30, tzinfo=UTC)

ARCHITECTURES: Mapping[str, Callable[[], ModelFiles]] = {
    "dense": lambda: model_of(LLAMA_3_8B, name="meta-llama/Meta-Llama-3-8B-Instruct"),
    "fused": lambda: zoo.files(config_of("phi-3-mini"), headers_of("phi-3-mini")),
    "experts": zoo.mixtral,
    "mla": zoo.deepseek_v3,
    "hybrid": qwen3_next,
    "tiny": lambda: model_of(TINY, name="org/tiny"),
}


@functools.cache
def model_like(architecture: str) -> ModelFiles:
    """Make the model of an architecture, once."""
    return ARCHITECTURES[architecture]()


def services_with(model: ModelFiles) -> BuildServices:
    """Return services that find this model, whatever is asked for, on a processor of some kind."""
    found = services_for(Settings(headers_only=True))

    def find_instance(name: str, **others: Any) -> Instance:
        return LOCAL_CPU if name == "local" else found.find_instance(name, **others)

    return replace(
        found, find_model=lambda _: model, peek_model=lambda _: None, find_instance=find_instance
    )


def request_of(model: ModelFiles, instance: str, **asked: Any) -> BuildRequest:
    return BuildRequest(model=model.ref.name, instance=instance, **asked)


def plan_page(
    architecture: str, instance: str, *, quality: QualityReport | None = None, **asked: Any
) -> str:
    """Write the page that `packager plan --format html` does; of a refused plan, too."""
    model = model_like(architecture)
    services, request = services_with(model), request_of(model, instance, **asked)
    try:
        planned = pipeline.plan(request, services)
    except PlanRejected as error:
        trace = make_trace(request, None, made=MADE, packager="1.2.3")
        return refused_html(
            request, name_of(request, parse_model_reference(request.model)), error, trace
        )
    found = planned.plan
    prediction = predict_plan(found, services.accelerator_of(found.instance), found.workload)
    page = PlanPage(
        plan=found,
        recipe=planned.recipe,
        forecasts=planned.forecasts,
        outlook=make_outlook(found, prediction) if prediction else None,
        menu=menu(request, services, found.instance) if prediction else (),
        elsewhere=look_elsewhere(request, _with_few(services), found.instance),
    )
    trace = make_trace(request, model, made=MADE, packager="1.2.3")
    return plan_html(page, trace=trace, choices=plan_choices(page, request, quality))


def _with_few(services: BuildServices) -> BuildServices:
    """Return services whose catalog has four machines: all of them take seconds for each page."""
    few = tuple(one for one in services.instances or () if one.name in MACHINES)
    return replace(services, instances=few)


def ranking_page(architecture: str, instances: Iterable[Instance], **asked: Any) -> str:
    """Write the page of a ranking on instances."""
    model = model_like(architecture)
    request = request_of(model, "*", **asked)
    ranking = rank_instances(request, services_with(model), instances)
    trace = make_trace(request, model, made=MADE, packager="1.2.3")
    choices = ranking_choices(ranking, request)
    return ranking_html(ranking, model.ref.name, trace=trace, choices=choices)
