"""Figures: `bench` measures servers, `evaluate` quality, `tune` the builds of a model."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any, Unpack

import packager.api.shown
from packager.api.fields import BenchFields, SentFields, TuneFields
from packager.api.requests import (
    PathOrName,
    container_variables,
    events_to,
    log,
    make_api_request,
    outside_loop,
    reference_text,
    refuse_rest,
    take_options,
    texts_of,
)
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings
from packager.core.bench import BenchReport
from packager.core.errors import SmokeFailed, UsageError
from packager.core.events import EventSink
from packager.core.quality import EVALUATION_SAMPLES, Evaluation, QualityReport
from packager.core.samples import DEFAULT
from packager.core.tuning import TuneReport

packager.api.shown.prepare()
_ENGINE_S = 600.0  # until /ping of a measured image must answer
_TUNE_S = 1800.0
_SENT = frozenset(SentFields.__annotations__)


def bench(
    *servers: str,
    tokenizer: str | None = None,
    usd_per_hour: float | None = None,
    discount: float = 0.0,
    env: Mapping[str, str] | None = None,
    timeout_s: float = _ENGINE_S,
    progress: EventSink | None = None,
    **options: Unpack[BenchFields],
) -> BenchReport:
    """Measure servers under load: speed, price of a token, requests that keep the limits.

    A server is an image, which is started in the Docker Engine, or the address of one that runs.
    Raises `SmokeFailed` where one could not be measured to the end, `BenchRejected` where fewer
    requests than `min_goodput` keep the limits; `error.figures` then has the report.
    """
    from packager.addons.bench.commands.bench_work import judge, make_work
    from packager.addons.bench.load.spec import RequestSpec
    from packager.addons.bench.options import BenchOptions, check_asked
    from packager.images.docker_engine import connect_engine

    if not servers:
        raise UsageError("no server is given", hint="name an image, or the address of a server")
    given: dict[str, Any] = dict(options)
    asked, spec = take_options(BenchOptions, given), take_options(RequestSpec, given)
    refuse_rest(given, BenchOptions, RequestSpec)
    check_asked(asked)
    work = make_work(
        asked,
        spec,
        engine=cache(partial(connect_engine, without="or give the address of a server")),
        tokenizer=tokenizer,
        usd_per_hour=usd_per_hour,
        discount=discount,
        deadline_s=timeout_s,
        catalog_file=None,
    )
    targets = work.targets(servers, container_variables(env))
    stop = threading.Event()
    report, results = outside_loop(
        lambda: work.measure(targets, work.sender(stop), events_to(progress)), stop.set
    )
    judge(report, results, asked)
    return report


def evaluate(
    base: PathOrName,
    candidate: PathOrName,
    *,
    data: str = DEFAULT,
    samples: int = EVALUATION_SAMPLES,
    max_tokens: int | None = None,
    seed: int | None = None,
    gpus: int | None = None,
    threads: int | None = None,
    progress: EventSink | None = None,
) -> QualityReport:
    """Compare a quantized checkpoint with its base on the same texts; a result is cached."""
    from packager.cli.wiring.texts import evaluation_texts
    from packager.optimize.evaluate.run import evaluate as run_evaluation

    if samples < 1:
        raise UsageError(f"samples is {samples}", hint="measure on one text or more")
    asked = take_options(Evaluation, {"max_tokens": max_tokens, "seed": seed})
    texts = evaluation_texts(data, samples, asked.seed)
    services = services_for(Settings(on_event=events_to(progress), on_warning=log.warning))
    done = run_evaluation(
        reference_text(base),
        reference_text(candidate),
        texts,
        asked,
        services,
        services.read_quality,
        gpus=gpus,
        threads=threads,
    )
    if texts.complaint:
        log.warning(texts.complaint)
    return done.report


def tune(
    model: PathOrName,
    instance: str,
    *,
    output: str | Sequence[str] | None = None,
    budget_s: float | None = None,
    usd_per_hour: float | None = None,
    vary: Mapping[str, Sequence[str]] | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = _TUNE_S,
    journal: str | Path | None = None,
    progress: EventSink | None = None,
    **options: Unpack[TuneFields],
) -> TuneReport:
    """Find the best build of a model for a `goal`, by measuring candidates in the Docker Engine.

    Killed and called again, it goes on where it was.  The best build goes to `output`, or stays in
    the engine.  Raises `SmokeFailed` where no candidate could be measured.
    """
    from packager.addons.bench.commands.tune_choices import varied_axes
    from packager.addons.bench.commands.tune_run import measure_field
    from packager.addons.bench.commands.tune_work import Loads, make_candidates, make_work
    from packager.addons.bench.load.spec import RequestSpec
    from packager.addons.bench.options import BenchOptions
    from packager.addons.bench.tune.options import TuneOptions

    given: dict[str, Any] = dict(options)
    asked = take_options(TuneOptions, given)
    workload = given.get("workload")
    limits = {"ttft_ms": given.get("ttft_limit_ms"), "tpot_ms": given.get("tpot_limit_ms")}
    sent = {name: given.pop(name) for name in [*given] if name in _SENT}
    load = take_options(BenchOptions, sent | limits)
    spec = take_options(RequestSpec, sent | {"workload": workload, "images": given.get("images")})
    request = make_api_request(model, instance, given, texts_of(output))
    work = make_work(
        request,
        asked,
        Loads(spec=spec, load=load, env=container_variables(env), deadline_s=timeout_s),
        {"on_warning": log.warning},
        budget_s=budget_s,
        usd_per_hour=usd_per_hour,
    )
    axes = varied_axes([f"{key}={one}" for key, some in (vary or {}).items() for one in some])
    field = make_candidates(work, axes, (), only=asked.only)
    report, _ = outside_loop(
        lambda: measure_field(
            work,
            field,
            lambda _: nullcontext(events_to(progress)),
            journal_file=Path(journal) if journal else None,
        )
    )
    if report.best is None:
        raise SmokeFailed("no candidate could be built, started and measured", hint=report.journal)
    return report
