"""Endpoints under load, through `packager serve`: what the load client sees of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from packager.addons.bench.load.run import run_load
from packager.addons.bench.load.values import Level, LoadPlan, LoadRequest, LoadRun
from packager.addons.deploy.sagemaker.clients import Clients
from packager.addons.deploy.sagemaker.live import LiveSageMaker
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from tests.support.deployments import ROLE, deployment
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.hosting_server import hosting, look_often, use_for_aws
from tests.support.llm_double import Behaviour, LlmDouble, Mode

PLAN = LoadPlan(level=Level(concurrency=2), requests=4)
BODY = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5, "stream": True}
Loaded = Callable[..., LoadRun]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """Deploy a model that behaves so, and put it under load."""
    look_often(monkeypatch)

    @contextmanager
    def serving(double: LlmDouble, wanted: SageMakerSpec) -> Iterator[LiveSageMaker]:
        with hosting(tmp_path, FakeContainers(model=double.url)) as server:
            use_for_aws(monkeypatch, server)
            live = LiveSageMaker(Clients("us-east-1"), poll_s=0.01)
            live.apply(deployment(image="tiny:1"), wanted)
            assert live.status("my-model", wait_s=20).state == "ready"
            yield live

    def load(
        behaviour: Behaviour, *modes: Mode, stream: bool = True, components: bool = False
    ) -> LoadRun:
        wanted = SageMakerSpec(role_arn=ROLE, components=components)
        request = LoadRequest(endpoint="/v1/chat/completions", body={**BODY, "stream": stream})
        with LlmDouble(behaviour, modes=modes) as double, serving(double, wanted) as live:
            return run_load(live.route("my-model"), "my/model", [request] * 4, PLAN)

    return load


@pytest.mark.parametrize("components", [False, True])
def test_every_token_of_a_stream_has_its_time(loaded: Loaded, components: bool) -> None:
    run = loaded(Behaviour(itl_s=0.1), components=components)

    assert [one.failure for one in run.results] == [None] * 4
    for one in run.results:
        assert (one.output_tokens, len(one.chunks)) == (5, 5)
        times = [chunk.at_s for chunk in one.chunks]
        assert times == sorted(times)
        assert times[-1] - times[0] > 0.1  # a busy client may read some together, not all


def test_an_answer_in_one_piece_is_one(loaded: Loaded) -> None:
    run = loaded(Behaviour(), stream=False)

    assert [(one.failure, one.is_streamed, one.output_tokens) for one in run.results] == [
        (None, False, 5)
    ] * 4


def test_what_a_server_refuses_beside_a_request_is_left_out(loaded: Loaded) -> None:
    """SageMaker answers 424 where the server answered 400."""
    run = loaded(Behaviour(refuses=("stream_options",)))

    assert [one.failure for one in run.results] == [None] * 4
    assert [one.output_tokens for one in run.results] == [None] * 4  # nobody tells


@pytest.mark.parametrize(
    ("mode", "failure"), [("cut", "server"), ("ends", "cut"), ("status", "status")]
)
def test_failed_answers_are_told_from_good_ones(loaded: Loaded, mode: Mode, failure: str) -> None:
    run = loaded(Behaviour(status=500), mode)

    assert {one.failure for one in run.results} == {failure}
    if mode == "cut":
        assert "ModelStreamError" in run.results[0].reason
