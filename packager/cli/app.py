"""The command `packager`: a lazy group, and the only place that catches errors.

Commands are imported when they are run.  Results go to stdout, everything
else to stderr.
"""

from __future__ import annotations

import errno
import gc
import itertools
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any

import click

from packager import __version__
from packager.cli.lazy import LazyGroup
from packager.cli.terminal import escape_logs, note, note_json, note_lines, note_log
from packager.core.documents import shorten
from packager.errors import (
    EXIT_INTERRUPTED,
    OutputFailed,
    PackagerError,
    PlanRejected,
    QualityRejected,
    SmokeFailed,
    StepFailed,
    ToolUnavailable,
    UsageError,
)

_LAST_WAIT_S = 0.5  # for threads that are about to end

# name → (module:function, what `--help` says); the line is here so that help imports nothing
COMMANDS = {
    "plan": ("packager.cli.plan:plan", "Decide how MODEL runs on INSTANCE, without building."),
    "build": ("packager.cli.build:build", "Plan, render and package a model into an image."),
    "inspect": ("packager.cli.inspect:inspect", "Say what an image is, layer by layer."),
    "diff": ("packager.cli.diff:diff", "Say what a node with one image pulls for another."),
    "copy": ("packager.cli.copy:copy", "Copy an image, or a view of it, byte for byte."),
    "push": ("packager.cli.copy:push", "Copy an image from this machine to registries."),
    "evaluate": ("packager.cli.evaluate:evaluate", "Say what quantizing did to a model."),
    "draft": ("packager.cli.draft:draft", "Train draft heads; measure what a draft gains."),
    "smoke": ("packager.cli.smoke:smoke", "Start an image, ask it something, stop it."),
    "doctor": ("packager.cli.doctor:doctor", "Say what this machine can do, and how to fix it."),
    "list": ("packager.cli.list_:list_", "List instances, containers and plug-ins."),
    "catalog": ("packager.cli.catalog:catalog", "Keep prices up to date."),
    "check": ("packager.cli.check:check", "Find what an engine refuses or drops of a file."),
    "migrate": ("packager.cli.migrate:migrate", "Turn an old LMI configuration into today's."),
    "explain": ("packager.cli.explain:explain", "Say what a finding means and what to do."),
    "claims": ("packager.cli.claims:claims", "Keep the key that proves what layers hold."),
    "cache": ("packager.cli.cache:cache", "Look into the artifact cache, tidy it, hand it on."),
    "tools": ("packager.cli.tools:tools", "Install, list and remove the tools that steps run."),
    "warm": ("packager.cli.warm:warm", "Fill caches ahead of time: plan, run, render jobs."),
    "base": ("packager.cli.base:base", "Build the serving bases that packager brings along."),
}


class Commands(LazyGroup):
    """Every command."""

    table = COMMANDS


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="packager %(version)s")
def app() -> None:
    """Turn (model, target instance) into a deployable serving image."""
    escape_logs()


def main() -> None:
    """Run the command line and end the process with a documented status."""
    signal.signal(signal.SIGTERM, _interrupt)
    status = run(sys.argv[1:])
    if status:
        _leave_stuck_threads(status)
    gc.freeze()  # looking for garbage in all that a command made took 0.1 s of each process's end
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run one command; explain every failure on stderr; give the exit status."""
    # Headers of a large model are 100 000 small values without cycles: looking through them
    # again and again for garbage took a sixth of the time of planning it.
    gc.set_threshold(200_000)
    as_json = _wants_json(arguments)
    try:
        result = app.main(args=arguments, prog_name="packager", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except PackagerError as error:
        _explain(error, as_json=as_json)
        return error.exit_code
    except click.ClickException as error:
        if as_json:
            _explain(UsageError(error.format_message()), as_json=True)
        else:
            note_lines(_click_lines(error))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        note("interrupted")
        return EXIT_INTERRUPTED
    except SystemExit:
        return 0  # click's answer to a broken pipe: the reader of our output went away
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            full = OutputFailed(
                "no space is left to write to",
                hint="free some space, on the output's disk or stdout's",
            )
            _explain(full, as_json=as_json)
            return full.exit_code
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            long = UsageError(
                f"a path is too long for this machine: {shorten(str(error.filename), 200)}",
                hint="give a shorter one",
            )
            _explain(long, as_json=as_json)
            return long.exit_code
        if os.environ.get("PACKAGER_DEBUG"):
            note_log(traceback.format_exc())
        bug = PackagerError(
            f"unexpected {type(error).__name__}: {error}",
            hint="this is a bug; run again with PACKAGER_DEBUG=1 and report it",
        )
        _explain(bug, as_json=as_json)
        return bug.exit_code


def _click_lines(error: click.ClickException) -> list[str]:
    """Say what is wrong with the command line, as click does, but escaped."""
    lines = []
    context = getattr(error, "ctx", None)
    if isinstance(error, click.UsageError) and context is not None:
        lines += context.get_usage().splitlines()
        if context.command.get_help_option(context) is not None:
            option = context.help_option_names[0]
            lines += [f"Try '{context.command_path} {option}' for help.", ""]
    message = error.format_message()
    # click itself lists the choices of an option that is missing, one a line
    told = message.splitlines() if isinstance(error, click.MissingParameter) else [message]
    return [*lines, f"Error: {told[0]}", *told[1:]]


def _explain(error: PackagerError, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {
            "error": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
            "exit_code": error.exit_code,
        }
        if isinstance(error, PlanRejected):
            document["findings"] = [
                {"severity": found.severity, "code": found.code}
                | {"message": found.message, "hint": found.hint}
                for found in error.findings
            ]
            document["nearest"] = list(error.nearest)
        if isinstance(error, SmokeFailed | StepFailed | ToolUnavailable):
            document["log"] = error.log
        if isinstance(error, QualityRejected):
            document["quality"] = error.quality.model_dump()
        note_json(document)
        return
    if isinstance(error, SmokeFailed | StepFailed | ToolUnavailable) and error.log:
        note_log(error.log)
    if isinstance(error, PlanRejected):
        from packager.reports.plan import rejection_lines

        note_lines(rejection_lines(error))
    if isinstance(error, QualityRejected):
        from packager.reports.quality import quality_lines

        note_lines(quality_lines(error.quality))
    note(f"error: {error.message}")
    if error.hint:
        note(f"hint: {error.hint}")


def _leave_stuck_threads(status: int) -> None:
    """End the process at once when a thread still waits for somebody who may never answer.

    Python would wait for it, for minutes after the error was told or Ctrl-C pressed.
    """
    others = [one for one in threading.enumerate() if one is not threading.main_thread()]
    waited_for = [one for one in others if not one.daemon]
    for thread in waited_for:
        thread.join(_LAST_WAIT_S)
    if any(thread.is_alive() for thread in waited_for):
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _wants_json(arguments: list[str]) -> bool:
    return "--format=json" in arguments or any(
        pair == ("--format", "json") for pair in itertools.pairwise(arguments)
    )


def _interrupt(signum: int, frame: object) -> None:  # noqa: ARG001
    """Treat a termination request like Ctrl-C, so that everything is cleaned up."""
    raise KeyboardInterrupt
