"""What `apply` does after a deployment serves: ask it, measure it, and keep both.

An answer and figures go into the record of the image's build, where `packager inspect` finds
them, and into the lineage of the image.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from packager.addons.bench.commands.bench import bench
from packager.addons.bench.targets import BenchTarget
from packager.addons.deploy.commands.deploy_options import (
    SMOKE_TOKENS,
    applied_document,
    show_applied,
)
from packager.addons.deploy.wiring.deploy import record_place_of
from packager.addons.deploy.wiring.deployments import Whereabouts, other_model, remember_deployment
from packager.cli.serving.opening import MeasuredServer
from packager.cli.serving.routes import Route
from packager.cli.serving.smoke import PROMPT, EndpointAnswer
from packager.cli.shared_options import Command
from packager.cli.terminal import note, print_json, print_line, print_lines, warn
from packager.core.bench_setup import BenchSetup
from packager.core.deployment import Applied, Deployment
from packager.core.engine_rows import engine_row
from packager.core.errors import UsageError
from packager.core.record import RecordedSmoke
from packager.core.text import quoted_lines
from packager.pipeline.records import load_record, put_smoke

_SAID = 200  # characters of an answer that a record keeps

Ask = Callable[[str, int], EndpointAnswer]
"""Ask a deployment a prompt, for so many tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofMeasurement:
    """How the load client sends requests to a deployment."""

    name: str  # in reports; an address, or the name of a route
    route: Route | None = None  # None: use `name`
    endpoint: str = "chat"  # address, as of `packager bench --endpoint`
    replicas: int = 1
    tells_metrics: bool = True  # else unknown whether answers can have the requested length


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Proofs to make of an applied deployment."""

    deployment: Deployment
    where: Whereabouts
    subject: str  # IMAGE|RECORD as it was named
    smoke: bool
    measures: bool
    output_format: str

    def check(self) -> None:
        """Raise `UsageError` for what cannot be printed, before anything is applied."""
        if self.measures and self.output_format != "text":
            raise UsageError(
                "--bench prints a report of its own",
                hint="leave --format out, or use `packager bench`",
            )
        if other := other_model(self.deployment, self.where, os.environ):
            name = self.deployment.name
            warn(
                f"deployment {name!r} was made of model {other!r}, and this is "
                f"{self.deployment.served_name!r}: it is updated; --name makes another one"
            )

    @property
    def waits(self) -> bool:
        """Return whether the deployment has to serve."""
        return self.smoke or self.measures

    def show(self, applied: Applied, ask: Ask, measured: Callable[[], ProofMeasurement]) -> None:
        """Send the requests, measure if requested, print the results and store them.

        `ask` raises where there is no answer; `measured` is called for a measurement alone.
        """
        place = record_place_of(self.subject, self.deployment)
        self._remember(answered=False)  # it is there, whatever it answers
        answer = ask(PROMPT, SMOKE_TOKENS) if self.smoke else None
        if answer is not None:
            self._remember(answered=True)
        if answer is not None and place is not None:
            put_smoke(place, self._recorded(answer))
        self._print(applied, answer)
        if self.waits and place is None:
            note("no record of the image's build is here: what was found is only printed")
        if self.measures:
            self._measure(measured(), place)
            self._remember(answered=answer is not None, bench=_benchmark(place))

    def _print(self, applied: Applied, answer: EndpointAnswer | None) -> None:
        if answer is not None and self.output_format == "json":
            print_json({**applied_document(applied), "smoke": asdict(answer)})
            return
        show_applied(applied, self.output_format)
        if answer is not None:
            print_line(f"answer   {answer.seconds:.2f} s")
            print_lines(quoted_lines(answer.text.strip(), "  "))

    def _remember(self, *, answered: bool, bench: str = "") -> None:
        remember_deployment(self.deployment, self.where, os.environ, answered=answered, bench=bench)

    def _recorded(self, answer: EndpointAnswer) -> RecordedSmoke:
        return RecordedSmoke(
            deployment=f"{self.where.platform} {self.deployment.name}",
            instance=self.deployment.instance.name,
            asked=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            model=answer.model[:_SAID],
            seconds=round(answer.seconds, 3),
            text=answer.text[:_SAID],
        )

    def _measure(self, measured: ProofMeasurement, place: Path | None) -> None:
        """Measure with the defaults of `packager bench`."""
        given: dict[str, Any] = {"endpoint": measured.endpoint}
        if not measured.tells_metrics and engine_row(self.deployment.family).forces_length:
            given["ignore_eos"] = True
        target = self._target(measured, place)
        click.get_current_context().invoke(bench, servers=(), prepared=(target,), **given)

    def _target(self, measured: ProofMeasurement, place: Path | None) -> BenchTarget:
        """Return what is measured, with what is known of it: its price, and what was predicted."""
        made = self.deployment
        record = load_record(place) if place is not None else None
        planned = record is not None and record.request.instance == made.instance.name
        one = measured.replicas == 1  # several have no price of one instance, nor its speed
        setup = BenchSetup(
            model=made.served_name,
            instance=made.instance.name if one else "",
            tp_degree=record.tp_degree if record is not None else None,
            engine=f"{made.engine} {made.engine_version}".strip(),
            digest=record.digest if record is not None else made.digest,
        )
        return BenchTarget(
            name=measured.name,
            server=MeasuredServer(name=measured.name, env={}, route=measured.route),
            setup=setup,
            record_place=place,
            record=record if planned and one else None,
        )


def proof_options(command: Command) -> Command:
    """Add --smoke and --bench."""
    smoke = click.option(
        "--smoke", is_flag=True, help="Wait, then send it a prompt; fail without an answer."
    )
    measures = click.option(
        "--bench",
        "measures",
        is_flag=True,
        help="Wait, then measure it, as `packager bench`; the figures go into the build record.",
    )
    return smoke(measures(command))


def _benchmark(place: Path | None) -> str:
    """Return what lineage calls the benchmark that a record holds now."""
    found = load_record(place) if place is not None else None
    if found is None or found.bench is None:
        return ""
    return f"benchmark:{found.digest}/{found.bench.measured}"
