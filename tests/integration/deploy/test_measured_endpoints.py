"""Endpoints under load, through `packager serve`: what the load client sees of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from packager.core.deployment import Deployment
from packager.deploy.sagemaker.clients import Clients
from packager.deploy.sagemaker.live import LiveSageMaker
from packager.deploy.sagemaker.wanted import SageMakerWanted
from packager.load.run import run_load
from packager.load.values import Level, LoadPlan, LoadRequest, LoadRun
from packager.serve.endpoints import fleet, lifecycle
from tests.support.deployments import ROLE, deployment
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.hosting_server import Server
from tests.support.llm_double import Behaviour, LlmDouble, Mode

PLAN = LoadPlan(level=Level(concurrency=2), requests=4)
BODY = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5, "stream": True}
Loaded = Callable[..., tuple[LoadRun, LlmDouble]]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """Deploy a model that behaves so, and put it under load."""
    monkeypatch.setattr(fleet, "_POLL_S", 0.01)
    monkeypatch.setattr(lifecycle, "_WATCH_S", 0.02)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    @contextmanager
    def serving(double: LlmDouble, wanted: SageMakerWanted) -> Iterator[LiveSageMaker]:
        containers = FakeContainers(model=double.url)
        server = Server(tmp_path, containers)
        for service in ("SAGEMAKER", "SAGEMAKER_RUNTIME"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", server.url)
        try:
            live = LiveSageMaker(Clients("us-east-1"), poll_s=0.01)
            live.apply(made(), wanted)
            assert live.status("my-model", wait_s=20).state == "ready"
            yield live
        finally:
            server.stop()
            containers.close()

    def load(
        behaviour: Behaviour, *modes: Mode, stream: bool = True, components: bool = False
    ) -> tuple[LoadRun, LlmDouble]:
        wanted = SageMakerWanted(role_arn=ROLE, components=components)
        request = LoadRequest(endpoint="/v1/chat/completions", body={**BODY, "stream": stream})
        with LlmDouble(behaviour, modes=modes) as double, serving(double, wanted) as live:
            return run_load(live.route("my-model"), "my/model", [request] * 4, PLAN), double

    return load


def made() -> Deployment:
    return deployment(image="tiny:1")


@pytest.mark.parametrize("components", [False, True])
def test_every_token_of_a_stream_has_its_time(loaded: Loaded, components: bool) -> None:
    run, _ = loaded(Behaviour(itl_s=0.1), components=components)

    assert [one.failure for one in run.results] == [None] * 4
    for one in run.results:
        assert (one.output_tokens, len(one.chunks)) == (5, 5)
        times = [chunk.at_s for chunk in one.chunks]
        assert times == sorted(times)
        assert times[-1] - times[0] > 0.1  # a busy client may read some together, not all


def test_an_answer_in_one_piece_is_one(loaded: Loaded) -> None:
    run, _ = loaded(Behaviour(), stream=False)

    assert [(one.failure, one.is_streamed, one.output_tokens) for one in run.results] == [
        (None, False, 5)
    ] * 4


def test_what_a_server_refuses_beside_a_request_is_left_out(loaded: Loaded) -> None:
    """SageMaker answers 424 where the server answered 400."""
    run, _ = loaded(Behaviour(refuses=("stream_options",)))

    assert [one.failure for one in run.results] == [None] * 4
    assert [one.output_tokens for one in run.results] == [None] * 4  # nobody tells


@pytest.mark.parametrize(
    ("mode", "failure"), [("cut", "server"), ("ends", "cut"), ("status", "status")]
)
def test_answers_that_are_none_are_told_from_those_that_are(
    loaded: Loaded, mode: Mode, failure: str
) -> None:
    run, _ = loaded(Behaviour(status=500), mode)

    assert {one.failure for one in run.results} == {failure}
    if mode == "cut":
        assert "ModelStreamError" in run.results[0].reason
