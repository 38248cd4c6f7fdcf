"""A tune with its candidates decided: measured in this machine's engine, by its journal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from packager.addons.bench.commands.tune_work import TuneWork, figures_of, finish, work_in_engine
from packager.addons.bench.tune.candidates import Field
from packager.addons.bench.tune.journal import Retried, TuneJournal, open_journal
from packager.addons.bench.tune.results import make_report
from packager.addons.bench.tune.session import failures_in, tune
from packager.cli.run.containers import find_engine
from packager.core.bench import BenchReport
from packager.core.events import EventSink
from packager.core.tuning import TuneReport


def measure_field(
    work: TuneWork,
    field: Field,
    begin: Callable[[TuneJournal], AbstractContextManager[EventSink]],
    *,
    journal_file: Path | None = None,
    fresh: bool = False,
    retry_failed: bool = False,
    command: str = "",
) -> tuple[TuneReport, BenchReport]:
    """Measure the candidates and write the best one; return the report, and all measurements.

    `begin` is told the journal, and returns where events go while it is measured.
    """
    work.check_here()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    place = journal_file or work.journal_place()
    with open_journal(place, work.asked(), now=now, fresh=fresh) as journal:
        engine = find_engine()
        if retry_failed and failures_in(journal.events):
            journal.append(Retried())
        with begin(journal) as on_event:
            with work_in_engine(work, engine, journal, on_event) as workshop:
                done = tune(field, work.race, journal, workshop, on_event=on_event)
            found = make_report(field, work.race, done, journal, **work.names())
            report = finish(work, engine, found, field, on_event)
        figures = figures_of(work, field, journal, report.best, command)
    return report.model_copy(update={"bench": figures}), figures
