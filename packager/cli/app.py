"""The command `packager`: a lazy group, and the only place that catches errors.

Commands are imported when they are run.  Results go to stdout, everything
else to stderr.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
from contextlib import suppress
from typing import Any

import click

from packager.cli import interrupts
from packager.cli.completion import VARIABLE
from packager.cli.lazy import LazyGroup
from packager.cli.streams import flush_streams, open_streams
from packager.cli.terminal import columns_of, escape_logs, note, note_json, note_lines, note_log
from packager.cli.unforeseen import explain_unforeseen
from packager.core.errors import (
    EXIT_INTERRUPTED,
    PackagerError,
    PlanRejected,
    QualityRejected,
    SmokeFailed,
    StepFailed,
    ToolUnavailable,
)
from packager.core.findings import errors_in, finding_document
from packager.core.reports.text import page_of
from packager.core.version import __version__

_LAST_WAIT_S = 0.5  # for threads that are about to end

# heading → name → (module:function, summary in `--help`), kept here so that help imports no
# command. `packager.cli.addons` finds the commands of add-ons.
SECTIONS = {
    "Build and serve": {
        "plan": (
            "packager.cli.commands.plan:plan",
            "Plan how MODEL runs on INSTANCE, without building.",
        ),
        "build": (
            "packager.cli.commands.build:build",
            "Plan, render and package a model into an image.",
        ),
        "run": (
            "packager.cli.commands.run:run",
            "Build and start a model here; print how to ask it.",
        ),
        "lock": (
            "packager.cli.commands.lock:lock",
            "Pin what the targets of packager.toml stand for.",
        ),
        "ps": ("packager.cli.commands.ps:ps", "List the models that run here."),
        "logs": ("packager.cli.commands.logs:logs", "Print the log of a model that runs here."),
        "stop": ("packager.cli.commands.stop:stop", "Stop models that run here."),
        "smoke": ("packager.cli.commands.smoke:smoke", "Start an image, send a prompt, stop it."),
    },
    "Look up and check": {
        "list": ("packager.cli.commands.list_:list_", "List instances, containers and plug-ins."),
        "explain": ("packager.cli.commands.explain:explain", "Explain a finding and what to do."),
        "inspect": (
            "packager.cli.commands.inspect:inspect",
            "Show how an image was made, layer by layer.",
        ),
        "diff": ("packager.cli.commands.diff:diff", "Show which layers differ between two images."),
        "sbom": ("packager.cli.commands.sbom:sbom", "Show the parts of an image or a model."),
    },
    "Images and registries": {
        "push": (
            "packager.cli.commands.copy:push",
            "Copy an image from this machine to registries.",
        ),
        "copy": (
            "packager.cli.commands.copy:copy",
            "Copy an image, or a view of it, byte for byte.",
        ),
        "join": (
            "packager.cli.commands.join:join",
            "Write one index of images for several platforms.",
        ),
        "attach": (
            "packager.cli.commands.attach:attach",
            "Attach a scanner's report, or VEX, to an image.",
        ),
        "sign": ("packager.cli.commands.sign:sign", "Sign an image, in both forms of cosign."),
        "verify": ("packager.cli.commands.verify:verify", "Verify who has signed an image."),
        "keys": ("packager.cli.commands.keys:keys", "List, make and explain all keys."),
        "base": ("packager.cli.commands.base:base", "Build and slim base images."),
        "claims": (
            "packager.cli.commands.claims:claims",
            "Manage the key that proves layers of images.",
        ),
    },
    "Quality, drafts and caches": {
        "evaluate": (
            "packager.cli.commands.evaluate:evaluate",
            "Measure what quantizing changed in a model.",
        ),
        "draft": (
            "packager.cli.commands.draft:draft",
            "Train draft heads; measure what a draft gains.",
        ),
        "cache": (
            "packager.cli.commands.cache:cache",
            "List, verify, clean up and copy cached artifacts.",
        ),
    },
    "Jobs": {},
    "This installation": {
        "doctor": (
            "packager.cli.commands.doctor:doctor",
            "Check this machine, with a fix for each problem.",
        ),
        "tools": (
            "packager.cli.commands.tools:tools",
            "Install, list and remove the tools that steps run.",
        ),
        "schema": (
            "packager.cli.commands.schema:schema",
            "Print the JSON schema of request and project files.",
        ),
        "catalog": ("packager.cli.commands.catalog:catalog", "Update the catalog's prices."),
        "completion": (
            "packager.cli.completion.command:completion",
            "Complete commands and values in bash, zsh or fish.",
        ),
        "version": (
            "packager.cli.commands.version:version",
            "Show versions, shipped data and extras.",
        ),
    },
}
# The order of `packager --help`, add-ons included; commands not listed here come last.
ORDER = (
    "api",
    "plan",
    "build",
    "lock",
    "run",
    "ps",
    "logs",
    "stop",
    "smoke",
    "bench",
    "deploy",
    "serve",
    "list",
    "explain",
    "inspect",
    "lineage",
    "sbom",
    "diff",
    "check",
    "migrate",
    "push",
    "copy",
    "join",
    "attach",
    "sign",
    "verify",
    "keys",
    "mount",
    "unmount",
    "node-cache",
    "base",
    "claims",
    "evaluate",
    "report",
    "tune",
    "draft",
    "warm",
    "cache",
    "optimize",
    "jobs",
    "neo",
    "doctor",
    "tools",
    "schema",
    "catalog",
    "completion",
    "version",
)


# What `packager --help` shows; `--help-all` shows all.
FIRST = (
    *("plan", "build", "run", "ps", "logs", "stop", "push", "bench", "tune", "deploy", "check"),
    *("inspect", "list", "explain", "cache", "doctor", "api"),
)


class Commands(LazyGroup):
    """Every command."""

    sections = SECTIONS
    order = ORDER
    first = FIRST
    takes_added = ""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="packager %(version)s")
def app() -> None:
    """Turn (model, target instance) into a deployable serving image.

    \b
    packager run examples/tiny-llama     # build a model, start it here
    packager COMMAND --help              # options, and an example
    """
    escape_logs()
    click.get_current_context().with_resource(page_of(columns_of(sys.stdout)))


def main() -> None:
    """Run the command line and end the process with a documented status."""
    if VARIABLE in os.environ:
        _answer_shell(sys.argv[1:])
        return
    open_streams()
    interrupts.install()
    status = run(sys.argv[1:])
    if (lost := flush_streams()) is not None and status == 0:
        failure = explain_unforeseen(lost)
        _explain(failure, as_json=_wants_json(sys.argv[1:]))
        status = failure.exit_code
    if status:
        _leave_stuck_threads(status)
    gc.freeze()  # looking for garbage in all that a command made took 0.1 s of each process's end
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run one command; explain every failure on stderr; give the exit status."""
    # Headers of a large model are 100 000 small values without cycles: looking through them
    # again and again for garbage took a sixth of the time of planning it.
    gc.set_threshold(500_000)
    as_json = _wants_json(arguments)
    try:
        result = app.main(args=arguments, prog_name="packager", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except PackagerError as error:
        _explain(error, as_json=as_json)
        return error.exit_code
    except click.ClickException as error:
        from packager.cli.usage_errors import explain_usage, requested_help

        if (text := requested_help(error)) is not None:
            note_lines(text.splitlines())
        else:
            _explain(explain_usage(error), as_json=as_json)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        with suppress(OSError, ValueError):
            note("interrupted")
        return EXIT_INTERRUPTED
    except SystemExit:
        return 0  # click's answer to a broken pipe: the reader of our output closed it
    except Exception as error:
        refusal = explain_unforeseen(error)
        if refusal.exit_code == PackagerError.exit_code and os.environ.get("PACKAGER_DEBUG"):
            import traceback

            note_log(traceback.format_exc())
        _explain(refusal, as_json=as_json)
        return refusal.exit_code


def _explain(error: PackagerError, *, as_json: bool) -> None:
    """Print an error on stderr; where that cannot be written, only the exit status reports it."""
    with suppress(OSError, ValueError):
        _write_explained(error, as_json=as_json)


def _write_explained(error: PackagerError, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {
            "error": error.code,
            "message": error.message,
            "hint": error.hint,
            "exit_code": error.exit_code,
        }
        if isinstance(error, PlanRejected):
            document["findings"] = [finding_document(found) for found in error.findings]
            document["nearest"] = list(error.nearest)
        if isinstance(error, SmokeFailed | StepFailed | ToolUnavailable):
            document["log"] = error.log
        if isinstance(error, QualityRejected):
            document["quality"] = error.figures
        note_json(document)
        return
    if isinstance(error, SmokeFailed | StepFailed | ToolUnavailable) and error.log:
        note_log(error.log)
    if isinstance(error, PlanRejected):
        from packager.pipeline.report_plan import rejection_lines

        note_lines(rejection_lines(error))
        if errors := errors_in(error.findings):
            # Each is printed above, with its hint.
            many = "the error" if len(errors) == 1 else f"the {len(errors)} errors"
            note(f"error: the plan is rejected for {many} above")
            note(f"hint: `packager explain {errors[0].code}` says more")
            return
    if isinstance(error, QualityRejected):
        from packager.core.quality import QualityReport
        from packager.optimize.evaluate.report import quality_lines

        note_lines(quality_lines(QualityReport.model_validate(error.figures)))
    note(f"error: {error.message}")
    if error.hint:
        note(f"hint: {error.hint}")


def _answer_shell(arguments: list[str]) -> None:
    """Answer a shell that completes a command line."""
    from packager.cli.completion.answer import answer

    answer(app, arguments)


def _leave_stuck_threads(status: int) -> None:
    """Exit at once when a thread still waits for a peer that may never answer.

    Python would wait for it, for minutes after the error was printed or Ctrl-C pressed.
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
    return not {"--format=json", "--json"}.isdisjoint(arguments) or any(
        pair == ("--format", "json") for pair in itertools.pairwise(arguments)
    )
