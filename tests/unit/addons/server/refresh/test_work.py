"""Stages against doubles of an engine and a project: what is served again, and what is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packager.addons.server.refresh.spec import RefreshSpec
from packager.addons.server.refresh.turn import HeadTurn
from packager.addons.server.refresh.work import RefreshWork
from packager.core.errors import SmokeFailed
from tests.support.refusals import raises_code

SPEC = RefreshSpec(name="tiny", model="m", traffic="rows", image="tiny", deploy=("--port", "9"))


class Tags:
    """Images of an engine by their names."""

    def __init__(self, **named: str) -> None:
        self.named = {name.replace("_", ":"): found for name, found in named.items()}

    def get(self, name: str) -> Any:
        found = self.named.get(name, name)

        def tag(repository: str, tag: str) -> None:
            self.named[f"{repository}:{tag}"] = found

        return SimpleNamespace(id=found, tag=tag, attrs={})


def container(
    name: str, gone: list[str] | None = None, *, service: str = "", restarts: int = 0
) -> Any:
    labels = {"com.docker.compose.service": service}
    attrs = {"RestartCount": restarts}
    removed = [] if gone is None else gone
    return SimpleNamespace(
        name=name, attrs=attrs, labels=labels, remove=lambda **_: removed.append(name)
    )


def work_of(
    monkeypatch: pytest.MonkeyPatch,
    ran: list[tuple[str, ...]],
    *,
    images: Tags | None = None,
    containers: list[Any] | None = None,
    failure: Exception | None = None,
    clock: Callable[[], float] = lambda: 100.0,
) -> RefreshWork:
    def run(_: Any, words: Any) -> dict[str, Any]:
        ran.append(tuple(words))
        if failure is not None:
            raise failure
        return {}

    monkeypatch.setattr(RefreshWork, "_run", run)
    listed = SimpleNamespace(list=lambda **_: containers or [])
    status = SimpleNamespace(state="ready", address="", image="tiny:1")
    return RefreshWork(
        spec=SPEC,
        directory=Path("/srv"),
        engine=SimpleNamespace(images=images or Tags(), containers=listed),
        projects=SimpleNamespace(status=lambda _: status),  # type: ignore[arg-type]
        say=lambda _: None,
        sleep=lambda _: None,
        clock=clock,
    )


APPLY = ("deploy", "compose", "apply", "docker:tiny:1", "--name", "tiny", "--wait", "--port", "9")
BEFORE = HeadTurn(
    number=2, results={"collect": {"enough": True, "image": "tiny:1", "id": "sha256:old"}}
)
BUILT = HeadTurn(number=2, results={**BEFORE.results, "build": {"image": "tiny:head-2"}})


def test_the_very_image_before_serves_again_whatever_has_its_name_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[tuple[str, ...]] = []
    images = Tags(tiny_1="sha256:another")

    work_of(monkeypatch, ran, images=images).back(BEFORE)

    assert images.named["tiny:1"] == "sha256:old"
    assert ran == [APPLY]


def test_servers_that_do_not_answer_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    work = work_of(monkeypatch, [], failure=SmokeFailed("it ended"))
    rolled = work.roll_out(BUILT)
    assert rolled == {"failed": "it ended", "at_s": 100.0}

    turn = HeadTurn(number=2, results={"roll-out": rolled, "gate": {}})
    assert work.watch(turn) == {"verdict": "worse", "reason": "it ended"}


def test_what_somebody_else_deployed_meanwhile_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[tuple[str, ...]] = []
    work = work_of(monkeypatch, ran)
    other = SimpleNamespace(state="ready", address="", image="another:1")
    object.__setattr__(work, "projects", SimpleNamespace(status=lambda _: other))

    told = work.roll_out(BUILT)

    assert "serves another:1 now" in told["left"]
    assert ran == []
    assert HeadTurn(number=2, results={**BUILT.results, "roll-out": told}).outcome == "kept"


def test_a_watch_goes_on_where_it_was_after_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((700.0, 800.0, 100.0 + SPEC.watch.longest_s))
    work = work_of(monkeypatch, [], clock=lambda: next(times))

    told = work.watch(HeadTurn(number=2, results={"roll-out": {"at_s": 100.0}, "gate": {}}))

    assert (told["verdict"], told["seconds"]) == ("well", SPEC.watch.longest_s)


def test_a_server_that_restarts_is_worse_and_a_front_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn = HeadTurn(number=2, results={"roll-out": {"at_s": 100.0 - 9999.0}, "gate": {}})

    def verdict(service: str) -> str:
        found = [container("a", service=service, restarts=2)]
        return str(work_of(monkeypatch, [], containers=found).watch(turn)["verdict"])

    assert (verdict("server-b1"), verdict("front")) == ("worse", "well")


def test_containers_that_a_killed_measurement_left_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone: list[str] = []
    names = ("packager-refresh-tiny-0123456789ab", "packager-refresh-tiny-x-0123456789ab", "tiny")
    work = work_of(monkeypatch, [], containers=[container(name, gone) for name in names])

    work._remove_left()

    assert gone == ["packager-refresh-tiny-0123456789ab"]


def test_training_goes_on_from_the_head_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    work = work_of(monkeypatch, ran)

    assert work.train(Path("/turns/2"), "/turns/1/head")["head"] == "/turns/2/head"
    work.train(Path("/turns/1"), "")

    assert ran[0][-2:] == ("--from", "/turns/1/head")
    assert "--from" not in ran[1]
    assert "held-out" not in " ".join(ran[0])


def test_too_little_traffic_asks_for_no_deployment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = work_of(monkeypatch, [])
    assert work.collect(tmp_path, "") == {"enough": False}


def test_a_turn_that_would_end_the_capture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    front = container("tiny-front-1", service="front")
    front.attrs["Config"] = {"Env": ["PACKAGER_CAPTURE={}"]}
    work = work_of(monkeypatch, [], containers=[front])
    with raises_code("UsageError", match="would end that"):
        work._serving()

    kept = SPEC.model_copy(update={"deploy": ("--port", "9", "--capture=rows")})
    object.__setattr__(work, "spec", kept)
    assert work._serving()["image"] == "tiny:1"


def test_without_a_deployment_there_is_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    work = work_of(monkeypatch, [])
    absent = SimpleNamespace(state="absent", image="")
    object.__setattr__(work, "projects", SimpleNamespace(status=lambda _: absent))
    with raises_code("NotFound", match="no project 'tiny'"):
        work._serving()
