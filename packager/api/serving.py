"""Models that run on this machine: `run`, and what answers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from html import escape
from types import TracebackType
from typing import Any, Self, Unpack

from packager.api.fields import RequestFields
from packager.api.requests import (
    PathOrName,
    container_variables,
    events_to,
    log,
    make_api_request,
    reference_text,
)
from packager.cli.run.containers import Started, find_engine
from packager.cli.run.names import check_name
from packager.cli.run.report import Serving
from packager.cli.run.starting import (
    RunOptions,
    check_runnable,
    container_of_image,
    container_of_model,
    start,
)
from packager.cli.wiring.settings import PolicyChoice, Settings
from packager.core.errors import UsageError
from packager.core.events import EventSink, ignore
from packager.images.target import is_image


class RunningModel:
    """A model that answers on this machine until `stop`, or to the end of a `with` block.

    It goes on when the program ends without either: `packager stop NAME` ends it then.
    """

    def __init__(self, server: Started, serving: Serving) -> None:
        self._server = server
        self.name = serving.name  # of the run, as `packager ps` lists it
        self.url = serving.address.url  # such as http://127.0.0.1:8080
        self.model = serving.address.model  # the name that clients send
        self.image = serving.image
        self.seconds = serving.seconds  # from the container's start to the first answer
        server.is_left = True

    def ask(self, prompt: str, *, max_tokens: int = 128) -> str:
        """Return the model's answer to one message, the likeliest tokens."""
        from packager.cli.serving.smoke import ask_endpoint

        return ask_endpoint(self.url, prompt=prompt, max_tokens=max_tokens).text

    def stop(self) -> None:
        """End it when its running requests have ended, and remove its container."""
        self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<RunningModel {self.name!r} at {self.url}>"

    def _repr_html_(self) -> str:
        name, url = escape(self.model or self.name), escape(self.url)
        return f"<p><b>{name}</b> answers at <code>{url}</code>; <code>stop()</code> ends it.</p>"


def run(
    model: PathOrName,
    *,
    instance: str = "local",
    name: str | None = None,
    port: int | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 1800.0,
    progress: EventSink | None = None,
    **fields: Unpack[RequestFields],
) -> RunningModel:
    """Plan, build what is missing, start the model in the Docker Engine, and wait for an answer.

    `model` may be an image, `docker:NAME:TAG` or `NAME:TAG@DIGEST`; then no field of a request is
    taken.  The server listens on loopback, at a free port unless one is given.
    """
    asked = RunOptions(
        name=check_name(name) if name else None,
        port=port,
        env=container_variables(env),
        deadline_s=timeout_s,
        detach=True,
    )
    own: dict[str, Any] = {
        "on_warning": log.warning,
        "policy": PolicyChoice(is_enforced=True),
    }
    text, on_event = reference_text(model), events_to(progress)
    given = [one for one, value in fields.items() if value is not None]
    if is_image(text) and given:
        raise UsageError(
            f"{given[0]} cannot be combined with an image, which is built already",
            hint="name the model in place of the image, or leave it out",
        )
    request = None if is_image(text) else make_api_request(model, instance, fields)
    if request is not None:
        check_runnable(request)
    engine = find_engine()
    if request is None:
        wanted = container_of_image(engine, text, asked, Settings(**own))
    else:
        wanted, build_image = container_of_model(engine, request, asked, own, ignore)
        build_image(on_event)
    with ExitStack() as ending:
        server, serving = start(engine, wanted, asked, ending, on_event)
        return RunningModel(server, serving)
