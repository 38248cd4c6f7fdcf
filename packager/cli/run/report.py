"""What `run` and `ps` print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from packager.cli.run.clients import Address, curl_line, python_lines
from packager.cli.run.containers import Run
from packager.core.reports.report import Report, one_section, plain_table
from packager.optimize.cache.report import age


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A run that answers."""

    name: str
    address: Address
    image: str
    container: str
    seconds: float  # from the container's start to the first answer
    detached: bool


def serving_lines(serving: Serving) -> list[str]:
    """Return the address and a line for a shell, which may be broken where a shell allows it."""
    address = serving.address
    model = f"{address.model} " if address.model else ""
    return [f"{model}answers at {address.url}", "", curl_line(address)]


def program_text(serving: Serving) -> str:
    """Return a program for OpenAI's client, to be printed as it is; "" where there is none."""
    return "".join(f"{line}\n" for line in python_lines(serving.address))


def serving_document(serving: Serving) -> dict[str, Any]:
    """Return the same for programs."""
    address = serving.address
    return {
        "name": serving.name,
        "model": address.model,
        "url": address.url,
        "endpoint": address.endpoint,
        "curl": curl_line(address),
        "python": program_text(serving) or None,
        "image": serving.image,
        "container": serving.container,
        "seconds": round(serving.seconds, 1),
        "detached": serving.detached,
    }


def end_lines(serving: Serving) -> list[str]:
    """Return how the run is ended."""
    name = serving.name
    if serving.detached:
        return [f"`packager logs {name}` shows its log, `packager stop {name}` ends it"]
    return ["Ctrl-C ends it, running requests first"]


def runs_report(runs: Sequence[tuple[Run, bool]], now: datetime) -> Report:
    """Return a table of runs, each with whether it answers."""
    rows = [
        (run.name, run.model, state_of(run, answers=answers), run.url or "-", age_of(run, now))
        for run, answers in runs
    ]
    header = ("NAME", "MODEL", "STATE", "ADDRESS", "STARTED")
    return one_section("Models that run here", plain_table(header, rows))


def run_document(run: Run, *, answers: bool) -> dict[str, Any]:
    """Return a run for programs."""
    return {
        "name": run.name,
        "model": run.model,
        "state": state_of(run, answers=answers).partition(" ")[0],
        "exit_code": run.exit_code,
        "url": run.url or None,
        "image": run.image,
        "container": run.container,
        "started": run.started or None,
    }


def state_of(run: Run, *, answers: bool) -> str:
    """Return a run's state: `running` when it answers, `starting` before, or how it ended."""
    if run.exit_code is not None:
        return f"ended ({run.exit_code})"
    if run.status != "running":
        return run.status
    return "running" if answers else "starting"


def age_of(run: Run, now: datetime) -> str:
    """Return how long ago a run was started: `3 min ago`."""
    try:
        # Docker writes nanoseconds, of which Python reads the first six digits.
        began = datetime.fromisoformat(run.started[:19]).replace(tzinfo=UTC)
    except ValueError:
        return "-"
    return age((now - began).total_seconds())
