"""Progress on stderr: the display that options select, and where events go.

Work is never held up and never fails because of its display.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from packager.cli.terminal import write_above
from packager.core.events import EventSink, ignore

MODES = ("auto", "rich", "plain", "json", "none")

Command = TypeVar("Command", bound=Callable[..., Any])


def progress_options(command: Command) -> Command:
    """Add `--progress` and `--quiet`."""
    mode = click.option(
        "--progress",
        type=click.Choice(MODES),
        default="auto",
        show_default=True,
        help="How progress is shown on stderr: bars, lines, or JSON for programs. auto: bars on "
        "a terminal, lines elsewhere, nothing with --format json.",
    )
    quiet = click.option("--quiet", "-q", is_flag=True, help="No progress, no summary.")
    return mode(quiet(command))


@contextmanager
def shown_progress(mode: str, *, quiet: bool = False, as_json: bool = False) -> Iterator[EventSink]:
    """Yield a receiver of events that displays them as requested."""
    shown = _shown(mode, quiet=quiet, as_json=as_json)
    if shown == "none":
        yield ignore
        return
    # Imported only for a display: programs mostly disable it.
    from packager.cli.ticker import Ticker, display_of

    ticker = Ticker(display_of(shown))
    stderr = sys.stderr
    try:
        yield ticker.receive
    finally:
        ticker.close()
        # Restore stderr even where the display's thread is blocked by the terminal.
        above, sys.stderr = sys.stderr, stderr
        write_above(None)
        if above is not stderr:
            above.flush()  # an unfinished line


def _shown(mode: str, *, quiet: bool, as_json: bool) -> str:
    if quiet:
        return "none"
    if mode != "auto":
        return mode
    return "none" if as_json else "rich" if _is_terminal() else "plain"


def _is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
