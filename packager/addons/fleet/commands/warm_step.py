"""`packager warm step` and `warm tool`: what a node of a cluster runs for a build elsewhere.

Each line on stdout is a `NodeLine`, the last one the end.  Users do not type these.
"""

from __future__ import annotations

import re
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from packager.addons.fleet.node_services import node_services_for
from packager.cli.terminal import print_json_text
from packager.cli.wiring.settings import Settings
from packager.cli.wiring.techniques import environments_for
from packager.core.documents import shorten
from packager.core.errors import PackagerError, UsageError
from packager.core.events import Event, StepEvent
from packager.core.order import NodeError, NodeLine
from packager.core.tool import Build
from packager.optimize.steps.ray.cluster import facts_document
from packager.optimize.steps.ray.exchange import InputsMissing
from packager.optimize.steps.ray.ordered_step import run_order

LOG_PIECE = 16 * 1024
FOLLOW_S = 0.5

Say = Callable[[NodeLine], None]


@click.command(hidden=True)
@click.option(
    "--order", required=True, metavar="SHA256", help="Digest of the order in the shared cache."
)
@click.option(
    "--no-capacity-check", is_flag=True, help="Start a step that seems too large for the node."
)
@click.option("--restart", is_flag=True, help="Delete the partial results of an interrupted run.")
def step(order: str, no_capacity_check: bool, restart: bool) -> None:
    """Run a step that another machine ordered, and publish its result."""
    with _told() as say, _followed_logs(say) as logs:
        say(NodeLine(node=socket.gethostname()))
        if not re.fullmatch(r"[0-9a-f]{64}", order):
            raise UsageError(
                f"--order is {shorten(order)}, which is no digest", hint="64 digits of SHA-256"
            )
        settings = Settings(
            on_event=lambda event: _progress(event, say),
            on_warning=lambda text: say(NodeLine(notice=text)),
            check_capacity=not no_capacity_check,
            restart=restart,
            locks=False,
            log_dir=logs,
        )
        try:
            say(NodeLine(result=run_order(order, node_services_for(settings))))
        except InputsMissing as missing:
            say(NodeLine(missing=missing.digests))


@click.command(hidden=True)
@click.argument("name")
@click.option("--build", type=click.Choice(("cpu", "cuda")), default="cpu", help="Build of torch.")
@click.option("--install", is_flag=True, help="Install its environment if there is none.")
def tool(name: str, build: Build, install: bool) -> None:
    """Describe a tool as this node has it."""
    with _told() as say, _followed_logs(say) as logs:
        settings = Settings(on_event=lambda event: _progress(event, say), log_dir=logs)
        environments = environments_for(settings)
        if install:
            environments.install(name, build)
        say(NodeLine(facts=facts_document(environments.facts(name, build))))


@contextmanager
def _told() -> Iterator[Say]:
    """Yield the writer of lines; a failure becomes the last of them."""
    lock = threading.Lock()

    def say(line: NodeLine) -> None:
        with lock:
            print_json_text(line.model_dump_json(exclude_defaults=True))

    try:
        yield say
    except PackagerError as error:
        say(
            NodeLine(
                error=NodeError(
                    kind=error.code,
                    message=error.message,
                    hint=error.hint,
                    log=getattr(error, "log", ""),
                    exit_code=error.exit_code,
                )
            )
        )
        raise


@contextmanager
def _followed_logs(say: Say) -> Iterator[Path]:
    """Yield a directory for logs, and forward what is written there."""
    over = threading.Event()
    read: dict[Path, int] = {}

    def pass_on(place: Path) -> None:
        for log in sorted(place.glob("*.log")):
            with log.open("rb") as file:
                file.seek(read.get(log, 0))
                while piece := file.read(LOG_PIECE):
                    read[log] = file.tell()
                    say(NodeLine(log=piece.decode(errors="replace")))

    def follow(place: Path) -> None:
        while not over.wait(FOLLOW_S):
            pass_on(place)

    with tempfile.TemporaryDirectory(prefix="packager-logs-") as own:
        place = Path(own)
        thread = threading.Thread(target=follow, args=(place,), daemon=True)
        thread.start()
        try:
            yield place
        finally:
            over.set()
            thread.join()
            pass_on(place)


def _progress(event: Event, say: Say) -> None:
    if isinstance(event, StepEvent) and event.state == "running" and event.detail:
        share = f", {event.done} of {event.size} bytes" if event.size else ""
        say(NodeLine(progress=f"{event.detail}{share}"[:1000]))
