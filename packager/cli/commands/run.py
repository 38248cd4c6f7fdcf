"""`packager run`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from packager.cli.capture_options import capture_options, take_capture
from packager.cli.commands.cache_options import cache_options, take_cache_settings
from packager.cli.field_options import TimeRange, add_options, options_from
from packager.cli.interrupts import interrupt
from packager.cli.options import (
    choose_target,
    container_environment,
    env_option,
    jumpstart_option,
    make_request,
    request_choices,
    request_file_option,
)
from packager.cli.progress import progress_options, shown_progress
from packager.cli.project import MARK
from packager.cli.run.containers import ContainerSpec, Started, find_engine
from packager.cli.run.names import check_name
from packager.cli.run.report import (
    Serving,
    end_lines,
    program_text,
    serving_document,
    serving_lines,
)
from packager.cli.run.serving import wait_for_end
from packager.cli.run.starting import (
    RunOptions,
    check_runnable,
    container_of_image,
    container_of_model,
    start,
)
from packager.cli.shared_options import (
    catalog_option,
    format_option,
    policy_options,
    registry_options,
)
from packager.cli.terminal import note_lines, print_json, print_lines, print_text, warn
from packager.cli.wiring.settings import Settings, parse_started
from packager.core.command_line import flag_of
from packager.core.errors import UsageError
from packager.core.events import EventSink
from packager.core.instance import LOCAL
from packager.core.request import BuildRequest
from packager.images.target import is_image

_NOT_HERE = ("model", "outputs", "weights")  # of a request: the argument, or for images alone


@click.command()
@click.argument("model", required=False, metavar="MODEL|IMAGE|@TARGET")
@click.option("--model", "model_option", hidden=True, help="The same as the argument.")
@click.option("--name", metavar="NAME", help="Name of the run; the model's own by default.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port on loopback; by default a free one from 8080 on.",
)
@click.option(
    "--detach", "-d", is_flag=True, help="Leave it running; `packager stop NAME` ends it."
)
@env_option
@click.option(
    "--timeout",
    "deadline_s",
    type=TimeRange(1),
    default=1800.0,
    show_default=True,
    metavar="TIME",
    help="Time until the server must be ready.",
)
@add_options(capture_options)
@options_from(BuildRequest, leave_out=_NOT_HERE, **request_choices)
@request_file_option
@jumpstart_option
@registry_options
@policy_options
@catalog_option
@cache_options
@progress_options
@format_option
def run(
    model: str | None,
    model_option: str | None,
    name: str | None,
    port: int | None,
    detach: bool,
    env: tuple[str, ...],
    deadline_s: float,
    request_file: Path | None,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Plan, build and start a model on this machine; print how to ask it.

    MODEL is a directory, a hub id or s3://…; what is built already is not built again.
    IMAGE is docker:NAME:TAG, or NAME:TAG@DIGEST as `packager build` prints it.
    TARGET is one of the project file's, planned for this machine.

    The server listens on loopback. Ctrl-C ends it: running requests get the time
    of the plan to finish, and the container is removed.

    \b
    packager run examples/tiny-llama
    packager run examples/tiny-llama --detach --name tiny --port 9000
    """
    asked = RunOptions(
        name=check_name(name) if name else None,
        port=port,
        env=container_environment(env),
        deadline_s=deadline_s,
        detach=detach,
        capture=take_capture(given),
    )
    as_json = output_format == "json"
    model = _model_or_target(model or model_option, request_file)

    def say(*lines: str) -> None:
        if not (quiet or as_json):
            with suppress(OSError):  # the terminal was closed: the container ends all the same
                note_lines(lines)

    own = {
        **{one: given.pop(one) for one in ("insecure_registries", "ca_file", "catalog_file")},
        **take_cache_settings(given),
        "on_warning": warn,
    }
    request = None
    if model is None or not is_image(model):
        request = _request(model, request_file, given)
    else:
        parse_started(model, "run")
    engine = find_engine()
    with ExitStack() as ending, hangup_interrupts():
        if model is not None and request is None:
            _refuse_options(given, request_file)
            wanted = container_of_image(engine, model, asked, Settings(**own))
            build: Callable[[EventSink], list[str]] | None = None
        else:
            assert request is not None
            wanted, build = container_of_model(engine, request, asked, own, say)
        with shown_progress(progress, quiet=quiet, as_json=as_json) as on_event:
            built = build(on_event) if build is not None else []
            server, serving = start(engine, wanted, asked, ending, on_event)
        say(*built)
        _serve(server, serving, wanted, say, as_json=as_json)


def _model_or_target(word: str | None, request_file: Path | None) -> str | None:
    """Return the model or image that is named; None where a target or a request file has it."""
    if word is not None and word.startswith(MARK):
        choose_target(word.removeprefix(MARK))
        return None
    if word is None and request_file is None:
        raise UsageError(
            "no model is given", hint="name one, such as `packager run examples/tiny-llama`"
        )
    return word


def _request(model: str | None, request_file: Path | None, given: dict[str, Any]) -> BuildRequest:
    if given["instance"] is None and request_file is None:
        given["instance"] = LOCAL
    request = make_request(request_file, model=model, **given)
    check_runnable(request)
    return request


def _refuse_options(given: Mapping[str, Any], request_file: Path | None) -> None:
    """Refuse options that were fixed when the image was built."""
    named = [flag_of(one) for one, value in given.items() if value not in (None, ())]
    named += ["--request"] if request_file is not None else []
    if named:
        raise UsageError(
            f"{named[0]} cannot be combined with an image, which is built already",
            hint="give the model in place of the image, or leave the option out",
        )


def _serve(
    server: Started,
    serving: Serving,
    wanted: ContainerSpec,
    say: Callable[..., None],
    *,
    as_json: bool,
) -> None:
    """Print how to send a request, then return or wait for the end; stop it on an interrupt."""
    try:
        if as_json:
            print_json(serving_document(serving))
        else:
            print_lines(serving_lines(serving))
            if program := program_text(serving):
                print_text(f"\n{program}")  # a line broken for the screen were no Python
        say(*end_lines(serving))
        if serving.detached:
            server.is_left = True
        else:
            say(wait_for_end(server))
    except KeyboardInterrupt:
        _stop(server, wanted, say)


def _stop(server: Started, wanted: ContainerSpec, say: Callable[..., None]) -> None:
    """Stop the server when its requests have ended, or at another interrupt."""
    grace = f"requests that run get {wanted.grace_s} s"
    say(f"stopping {wanted.name!r}: {grace}; Ctrl-C again ends it at once")
    with suppress(KeyboardInterrupt):  # the container is killed after it
        server.stop()
    say("stopped")


@contextmanager
def hangup_interrupts() -> Iterator[None]:
    """End as at Ctrl-C when the terminal is closed, unless that is ignored, as by nohup.

    Of several hangups the first counts: a shell sends one more than the kernel does.
    """
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
    ):
        yield
        return

    def hang_up(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        interrupt(signum, frame)

    signal.signal(signal.SIGHUP, hang_up)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
