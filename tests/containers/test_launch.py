"""launch.py runs the rendered command, or says why it cannot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.containers.loading import SERVING

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getpid()]))"


class Launcher:
    """A copy of launch.py in a directory of its own, as in an image."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copy(SERVING / "vllm" / "launch.py", directory)

    def write(self, command: object) -> None:
        text = command if isinstance(command, str) else json.dumps(command)
        (self.directory / "command.json").write_text(text)

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        argv = [sys.executable, str(self.directory / "launch.py"), *arguments]
        environment = {"PATH": os.environ["PATH"], **(env or {})}
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> tuple[int, list[Any], str]:
        process = self.start(*arguments, env=env)
        stdout, stderr = process.communicate(timeout=30)
        return process.returncode, json.loads(stdout or "[]"), stderr


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    launcher = Launcher(tmp_path)
    launcher.write(
        {"argv": [sys.executable, "-c", SHOW, "--port", "8080"], "env": {"THREADS": "1"}}
    )
    return launcher


@pytest.mark.parametrize(
    ("given", "received"),
    [
        ([], ["--port", "8080"]),
        (["serve"], ["--port", "8080"]),
        (["serve", "--seed", "7"], ["--port", "8080", "--seed", "7"]),
        (["--seed", "7"], ["--port", "8080", "--seed", "7"]),
        (["--seed", "serve"], ["--port", "8080", "--seed", "serve"]),
    ],
    ids=["nothing", "serve", "serve-and-flags", "flags", "serve-as-a-value"],
)
def test_arguments_of_the_container_follow_the_command(
    launcher: Launcher, given: list[str], received: list[str]
) -> None:
    assert launcher.run(*given)[1][0] == received


@pytest.mark.parametrize(
    "asked",
    [
        ["--speculative-config", '{"method":"ngram"}'],
        ['--speculative-config={"method":"ngram"}'],
        ["--speculative_config", "-"],
        ["--speculative-config.method", "ngram", "--speculative-config.num_speculative_tokens=4"],
        ["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3"],
        ["--speculative-algorithm", "NGRAM", "--speculative-switch"],
    ],
    ids=["two-words", "one-word", "underscores", "dots", "sglang", "switch"],
)
def test_speculation_can_be_switched_off(launcher: Launcher, asked: list[str]) -> None:
    """With the words before and after it left alone."""
    base = [sys.executable, "-c", SHOW, "--port", "8080"]
    launcher.write({"argv": [*base, *asked, "--enforce-eager"]})
    plain = ["--port", "8080", "--enforce-eager", "--seed", "7"]

    off = launcher.run("--seed", "7", env={"PACKAGER_SPECULATION": "off"})[1][0]
    on = launcher.run("--seed", "7")[1][0]

    assert off == plain
    assert on == ["--port", "8080", *asked, "--enforce-eager", "--seed", "7"]


def test_speculation_asked_for_at_the_start_is_switched_off_too(launcher: Launcher) -> None:
    off = {"PACKAGER_SPECULATION": "off"}

    assert launcher.run("--speculative-config", "{}", env=off)[1][0] == ["--port", "8080"]


def test_the_environment_of_the_container_wins(launcher: Launcher) -> None:
    assert launcher.run()[1][1]["THREADS"] == "1"
    assert launcher.run(env={"THREADS": "8"})[1][1]["THREADS"] == "8"


def test_the_server_can_import_what_lies_beside_the_launcher(launcher: Launcher) -> None:
    assert launcher.run()[1][1]["PYTHONPATH"] == str(launcher.directory)

    given = launcher.run(env={"PYTHONPATH": "/elsewhere"})[1][1]["PYTHONPATH"]

    assert given == f"{launcher.directory}:/elsewhere"


def test_the_server_takes_the_place_of_the_launcher(launcher: Launcher) -> None:
    """Else signals would end the launcher and leave the server."""
    process = launcher.start()
    stdout, _ = process.communicate(timeout=30)

    assert json.loads(stdout)[2] == process.pid


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("", "Expecting value"),
        ("[]", "must be an object"),
        ({"argv": []}, "'argv' must be a list of strings, and not empty"),
        ({"argv": "python3"}, "'argv' must be a list of strings, and not empty"),
        ({"argv": ["python3", 1]}, "'argv' must be a list of strings, and not empty"),
        ({"argv": ["python3"], "env": {"A": 1}}, "'env' must be an object of strings"),
    ],
    ids=["empty-file", "no-object", "no-argv", "text-argv", "number-argv", "number-env"],
)
def test_a_broken_command_is_a_configuration_error(
    launcher: Launcher, command: object, why: str
) -> None:
    launcher.write(command)

    status, _, message = launcher.run()

    assert status == 78
    assert message.startswith(f"error: {launcher.directory}/command.json: ")
    assert why in message
    assert "hint: " in message


def test_a_missing_command_is_a_configuration_error(launcher: Launcher) -> None:
    (launcher.directory / "command.json").unlink()

    status, _, message = launcher.run()

    assert status == 78
    assert "No such file or directory" in message


def test_a_program_that_is_not_in_the_image_is_named(launcher: Launcher) -> None:
    launcher.write({"argv": ["no-such-engine"]})

    status, _, message = launcher.run()

    assert status == 127
    assert message.startswith("error: cannot run 'no-such-engine': No such file or directory")
