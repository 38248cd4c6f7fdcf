"""Containers of runs in an engine that refuses, loses and interrupts; ports are real."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest

from packager.cli.run import containers
from packager.cli.run.containers import (
    ContainerSpec,
    check_free,
    find_engine,
    find_run,
    list_runs,
    log_lines,
    started,
    stop_run,
)
from packager.cli.run.names import MODEL_LABEL, RUN_LABEL
from packager.cli.run.serving import wait_for_end
from packager.core.errors import SmokeFailed, Unavailable, UsageError
from packager.core.events import ignore
from tests.support.cases import cases
from tests.support.doubles.docker_runs import FakeContainer, FakeEngine, refusal
from tests.support.free_ports import free_port
from tests.support.refusals import raises_code

WANTED = ContainerSpec(
    name="tiny", image="i:1", model="tiny-llama", takes_port=True, env={"A": "1"}
)
DIED = b"""Traceback (most recent call last):
  File "engine.py", line 1, in step
RuntimeError: the worker died
"""
TAKEN = "driver failed: Bind for 127.0.0.1:8080 failed: port is already allocated"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


def a_run(engine: FakeEngine, name: str = "tiny", **asked: Any) -> FakeContainer:
    labels = {RUN_LABEL: name, MODEL_LABEL: "tiny-llama"}
    return engine.add(f"packager-run-{name}", labels=labels, **asked)


def started_once(engine: FakeEngine, wanted: ContainerSpec = WANTED) -> dict[str, Any]:
    """Return what the container was created with, and the address."""
    with started(engine, wanted, ignore) as server:
        return {**server.container.asked, "url": server.url}


def test_a_container_is_published_on_loopback_with_what_its_plan_asks_for() -> None:
    asked = started_once(FakeEngine(), replace(WANTED, grace_s=125))
    host = asked["host_config"]

    [(address, port)] = host["port_bindings"].values()
    assert address == "127.0.0.1"
    assert asked["url"] == f"http://127.0.0.1:{port}"
    assert (host["shm_size"], asked["stop_timeout"]) == ("1g", 125)
    assert asked["environment"] == {"A": "1"}
    assert asked["labels"] == {RUN_LABEL: "tiny", MODEL_LABEL: "tiny-llama"}
    assert "device_requests" not in host


def test_a_plan_for_gpus_gets_all_of_them() -> None:
    [request] = started_once(FakeEngine(), replace(WANTED, gpus=True))["host_config"][
        "device_requests"
    ]

    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu"]])


def test_a_container_is_removed_at_the_end_unless_it_is_left(engine: FakeEngine) -> None:
    started_once(engine)
    assert (engine.removed, engine.there) == (["packager-run-tiny"], {})

    with started(engine, WANTED, ignore) as server:
        server.is_left = True
    assert len(engine.there) == 1


def test_a_port_that_was_taken_meanwhile_is_passed_over() -> None:
    engine = FakeEngine(start_errors=[refusal(500, TAKEN)])

    with started(engine, WANTED, ignore) as server:
        port = int(server.url.rpartition(":")[2])
        assert engine.removed == ["packager-run-tiny"]
        assert port > 8080
        assert len(engine.there) == 1


def test_a_port_that_was_asked_for_and_taken_meanwhile_is_told() -> None:
    port = free_port()
    engine = FakeEngine(start_errors=[refusal(500, TAKEN)])
    engine.add("web", host_config={"port_bindings": {"80/tcp": ("0.0.0.0", port)}})

    with raises_code("PortTaken", match=f"port {port} is taken by the container 'web'"):
        started_once(engine, replace(WANTED, port=port))

    assert [one.name for one in engine.there.values()] == ["web"]


def test_a_name_that_was_taken_meanwhile_is_an_error(engine: FakeEngine) -> None:
    other = a_run(engine)

    with raises_code("NameTaken", match="a run named 'tiny' is there already"):
        started_once(engine)

    assert engine.there == {other.id: other}


def test_a_stranger_s_container_of_that_name_stays(engine: FakeEngine) -> None:
    stranger = engine.add("packager-run-tiny")

    with pytest.raises(UsageError, match="that packager did not start"):
        started_once(engine)

    assert engine.there == {stranger.id: stranger}


def test_an_interrupt_that_hides_the_new_container_leaves_none() -> None:
    engine = FakeEngine(create_error=KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        started_once(engine)

    assert engine.there == {}


def test_an_ended_run_makes_room_for_its_name(engine: FakeEngine) -> None:
    a_run(engine).status = "exited"

    check_free(engine, "tiny", None)
    with started(engine, WANTED, ignore):
        assert len(engine.there) == 1


@pytest.mark.parametrize("status", ["running", "created", "paused", "restarting"])
def test_a_run_that_has_not_ended_keeps_its_name(engine: FakeEngine, status: str) -> None:
    a_run(engine).status = status

    with raises_code("NameTaken"):
        check_free(engine, "tiny", None)
    check_free(engine, "another", None)


def test_a_port_of_a_run_is_refused_before_any_work() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        engine = FakeEngine()
        a_run(engine, host_config={"port_bindings": {"8080/tcp": ("127.0.0.1", port)}})

        with raises_code("PortTaken", match="by the run 'tiny'"):
            check_free(engine, "another", port)


def test_an_image_with_nothing_to_run_is_told() -> None:
    engine = FakeEngine(create_error=refusal(400, "No command specified"))

    with pytest.raises(SmokeFailed, match="cannot start 'i:1': No command specified"):
        started_once(engine)


def test_an_engine_without_a_bridge_gets_the_port_as_an_argument() -> None:
    port = free_port()

    asked = started_once(FakeEngine(drivers=("host",)), replace(WANTED, port=port))

    assert asked["host_config"] == {"shm_size": "1g", "network_mode": "host", "port_bindings": None}
    assert asked["command"] == ["--host", "127.0.0.1", "--port", str(port)]
    with pytest.raises(UsageError, match="no bridge, and only port 8080"):
        started_once(FakeEngine(drivers=("host",)), replace(WANTED, port=port, takes_port=False))


def test_runs_are_told_from_other_containers_and_by_name(engine: FakeEngine) -> None:
    engine.add("stranger")
    a_run(engine, "one", host_config={"port_bindings": {"8080/tcp": ("127.0.0.1", 8081)}})
    ended = a_run(engine, "two", stop_timeout=90)
    ended.status, ended.exit_code = "exited", 70

    one, two = list_runs(engine)

    fields = attrgetter("name", "url", "exit_code", "grace_s")
    assert fields(one) == ("one", "http://127.0.0.1:8081", None, 30)
    assert fields(two) == ("two", "", 70, 90)
    assert find_run(engine, "two") == two
    with raises_code("NoSuchRun") as caught:
        find_run(engine, "stranger")
    assert "`packager ps`" in caught.value.hint


def test_a_label_of_a_stranger_s_image_makes_no_run_of_its_containers(engine: FakeEngine) -> None:
    engine.add("database", labels={RUN_LABEL: "tiny"})

    assert list_runs(engine) == []


def test_on_the_hosts_network_the_port_is_that_of_the_arguments(engine: FakeEngine) -> None:
    words = ["--host", "127.0.0.1", "--port", "8085"]
    a_run(engine, command=words, host_config={"network_mode": "host"})

    assert list_runs(engine)[0].url == "http://127.0.0.1:8085"


@pytest.mark.parametrize(("timeout", "waited"), [(None, 90), (0, 0), (7, 7)])
def test_a_run_has_its_time_to_stop(engine: FakeEngine, timeout: int | None, waited: int) -> None:
    container = a_run(engine, stop_timeout=90)

    stop_run(engine, find_run(engine, "tiny"), timeout)

    assert container.stopped_with == waited
    assert engine.there == {}


def test_a_run_that_went_away_meanwhile_is_stopped(engine: FakeEngine) -> None:
    a_run(engine)
    run = find_run(engine, "tiny")
    engine.there.clear()

    stop_run(engine, run)


def test_an_ended_run_is_removed_and_not_stopped(engine: FakeEngine) -> None:
    container = a_run(engine)
    container.status = "exited"

    stop_run(engine, find_run(engine, "tiny"))

    assert (container.stopped_with, engine.there) == (None, {})


def test_a_log_comes_in_lines_whatever_the_pieces_are(engine: FakeEngine) -> None:
    a_run(engine).log = "2026Z first\n2026Z zwölf\n2026Z no end".encode()

    lines = list(log_lines(engine, find_run(engine, "tiny"), follow=False, tail=None))

    assert lines == ["2026Z first", "2026Z zwölf", "2026Z no end"]


def test_a_lost_engine_is_told() -> None:
    with pytest.raises(Unavailable, match="connection to the Docker Engine was lost"):
        list_runs(FakeEngine(lost=ConnectionError("reset")))


@pytest.mark.parametrize("url", ["http://10.0.0.1:2375", "http+docker://ssh"])
def test_an_engine_on_another_machine_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "connect_engine", lambda **_: FakeEngine(base_url=url))

    with pytest.raises(UsageError, match="on another machine"):
        find_engine()


@pytest.mark.parametrize(
    "url", ["http+docker://localhost", "http+docker://localnpipe", "http://127.0.0.1:2375"]
)
def test_an_engine_on_this_machine_is_taken(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "connect_engine", lambda **_: FakeEngine(base_url=url))

    assert find_engine().base_url == url


def end(container: FakeContainer, code: int, *, memory: bool = False) -> None:
    container.status, container.exit_code = "exited", code
    container.out_of_memory = memory


@pytest.mark.parametrize("code", [0, 130, 143])
def test_a_server_that_another_command_stopped_ended_well(code: int) -> None:
    with started(FakeEngine(), WANTED, ignore) as server:
        told = wait_for_end(server, sleep=lambda _: end(server.container, code))

    assert told == "it was stopped by another command"


def test_a_server_that_another_command_removed_ended_well(engine: FakeEngine) -> None:
    with started(engine, WANTED, ignore) as server:
        told = wait_for_end(server, sleep=lambda _: engine.there.clear())

    assert told == "it was stopped and removed by another command"


@cases("ends")
def test_a_server_that_ends_by_itself_failed(code: int, memory: bool | None, message: str) -> None:
    with started(FakeEngine(), WANTED, ignore) as server:
        server.container.log = DIED
        with pytest.raises(SmokeFailed) as caught:
            wait_for_end(server, sleep=lambda _: end(server.container, code, memory=bool(memory)))

    assert caught.value.message.startswith(message)
    assert caught.value.log == DIED.decode()


def test_a_server_that_is_ended_gets_the_time_of_its_plan(engine: FakeEngine) -> None:
    with started(engine, replace(WANTED, grace_s=125), ignore) as server:
        container = server.container
        server.stop()

    assert container.stopped_with == 125
    assert engine.removed == ["packager-run-tiny"]


def test_an_interrupt_while_it_drains_ends_it_at_once(engine: FakeEngine) -> None:
    def stop(asked: str, timeout: int) -> None:
        raise KeyboardInterrupt

    engine.api.stop = stop
    with suppress(KeyboardInterrupt), started(engine, WANTED, ignore) as server:
        server.stop()

    assert engine.there == {}
