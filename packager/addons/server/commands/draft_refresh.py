"""`packager draft refresh`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import get_args

import click

from packager.addons.deploy.wiring.compose import compose_projects
from packager.addons.server.refresh.journal import RefreshJournal
from packager.addons.server.refresh.report import (
    turn_document,
    turn_report,
    turns_report,
    unit_report,
)
from packager.addons.server.refresh.run import HeadRefresh
from packager.addons.server.refresh.spec import read_refresh_file
from packager.addons.server.refresh.turn import STAGES, HeadTurn, Stage, serving_head
from packager.addons.server.refresh.units import Unit, unit_text
from packager.addons.server.refresh.work import RefreshWork
from packager.cli.run.containers import find_engine
from packager.cli.shared_options import format_option
from packager.cli.terminal import note, print_json, print_lines, print_result
from packager.cli.wiring.settings import state_dir
from packager.core.errors import SmokeFailed, SpeculationRejected, UsageError


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--until", type=click.Choice(STAGES), metavar="STAGE", help=f"Stop after {', '.join(STAGES)}."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--status", is_flag=True, help="List the turns, and what was decided in each.")
@click.option("--back", is_flag=True, help="Let the image before the last roll-out serve again.")
@click.option(
    "--unit",
    type=click.Choice(get_args(Unit)),
    help="Print what starts this each hour: a line for cron, or files for systemd.",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@format_option
def refresh(
    file: Path,
    until: Stage | None,
    dry_run: bool,
    status: bool,
    back: bool,
    unit: Unit | None,
    quiet: bool,
    output_format: str,
) -> None:
    """Train the next head from captured traffic; serve it only if it is better.

    FILE is TOML: name (of a project of `packager deploy compose`), model, traffic
    (the directory of its --capture) and image; also instance, method, head, train,
    build, deploy (more options of those commands) and tables collect, drift, measure,
    gate and watch. A turn that was interrupted or killed goes on.

    \b
    Status: 0 the new head serves, or there is not enough new traffic; 7 the gate
    kept the old head; 4 the new head was worse and was taken back; 6 a command
    failed; 69 another refresh of it runs.

    \b
    packager draft refresh tiny.toml
    packager draft refresh tiny.toml --status
    """
    if sum((dry_run, status, back, until is not None, unit is not None)) > 1:
        raise UsageError(
            "--until, --dry-run, --status, --back and --unit exclude each other",
            hint="give one of them",
        )
    spec = read_refresh_file(file)
    journal = RefreshJournal(state_dir(os.environ) / "refresh" / spec.name)
    if unit is not None:
        log = journal.folder / "refresh.log"
        program = shutil.which(sys.argv[0]) or "packager"
        text = unit_text(unit, spec.name, file.absolute(), program, log)
        print_result(output_format, {"unit": unit, "text": text}, unit_report(text))
        return
    if status:
        turns = journal.turns()
        document = {"name": spec.name, "turns": [turn_document(one) for one in turns]}
        print_result(output_format, document, turns_report(spec.name, turns))
        return

    def say(line: str) -> None:
        if not quiet:
            note(line)

    work = RefreshWork(
        spec=spec,
        directory=file.absolute().parent,
        engine=find_engine(),
        projects=compose_projects(say=say),
        say=say,
    )
    heads = HeadRefresh(journal=journal, work=work)
    if dry_run:
        _show_plan(heads, output_format)
        return
    turn = heads.take_back() if back else heads.run(until)
    print_result(output_format, turn_document(turn), turn_report(turn))
    if not back:
        _demand(turn)


def _show_plan(heads: HeadRefresh, output_format: str) -> None:
    """Print the turn that would go on, the traffic that there is, and the commands."""
    turn, work = heads.turn(), heads.work
    found = work.texts()
    known = heads.journal.turns()
    before = [one for one in known if one.number < turn.number]
    head = serving_head(before, work.spec.head)
    folder = heads.journal.turn_folder(turn.number)
    commands = work.commands(folder, turn.number, head)
    conversations = found.conversations if found else 0
    if output_format == "json":
        print_json(
            {
                "turn": turn.number,
                "next_stage": turn.next_stage,
                "conversations": conversations,
                "needed": work.spec.collect.conversations,
                "head": head or None,
                "commands": commands,
            }
        )
        return
    print_lines(
        [
            f"turn       {turn.number}, next {turn.next_stage}",
            f"traffic    {conversations} of {work.spec.collect.conversations} conversations",
            f"head       {head or 'none yet'}",
            *(f"would run  {command}" for command in commands),
        ]
    )


def _demand(turn: HeadTurn) -> None:
    """Raise for a turn whose head does not serve."""
    if left := turn.results.get("roll-out", {}).get("left"):
        raise SpeculationRejected(
            f"the new head is not served: {left}",
            hint="run it again: the next turn begins with what serves now",
        )
    if turn.outcome == "kept":
        decision = turn.results["gate"]["decision"]
        raise SpeculationRejected(
            f"the new head is not served: the gate says {decision!r}",
            hint="the figures are above; more traffic, or measure.rounds, makes intervals smaller",
        )
    if turn.outcome == "back":
        raise SmokeFailed(
            f"the new head was taken back: {turn.results['watch'].get('reason')}",
            hint="the image before serves; the figures are in --status --format json",
        )
