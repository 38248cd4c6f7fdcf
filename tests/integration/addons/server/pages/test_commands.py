"""Commands that pages run end with who waits for them, whenever that is."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

from packager.addons.server.pages.commands import CommandRunner
from tests.support.processes import is_alive
from tests.support.refusals import raises_code
from tests.support.running_jobs import until

pytestmark = pytest.mark.timeout(60)  # a command that nobody ended takes longer

# Says which process a command of its own is, and waits for that one.
SCRIPT = "sleep 90 & echo $! > {place}; wait"


@pytest.mark.parametrize("steps", range(6))
def test_a_loop_may_close_at_any_step_of_a_command(steps: int) -> None:
    async def leave() -> None:
        task = asyncio.create_task(CommandRunner(program=("/bin/sleep",)).run("90"))
        for _ in range(steps):
            await asyncio.sleep(0)
        del task

    asyncio.run(leave())


def test_who_gives_up_ends_what_the_command_started(tmp_path: Path) -> None:
    async def give_up() -> int:
        task = asyncio.create_task(_commands(tmp_path / "process").run())
        process = await asyncio.to_thread(_read_process, tmp_path / "process")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return process

    ended = asyncio.run(give_up())
    until(lambda: not is_alive(ended), within_s=30)


def test_a_command_that_takes_too_long_takes_along_what_it_started(tmp_path: Path) -> None:
    place, limit_s = tmp_path / "process", 0.5
    while not (place.exists() and place.read_text()):  # a busy machine takes longer to start it
        limit_s *= 2
        with raises_code("PageCommandFailed", match=rf"took longer than {limit_s:g} s"):
            asyncio.run(_commands(place, limit_s).run("models"))

    until(lambda: not is_alive(_read_process(place)), within_s=30)


def test_commands_that_ask_other_machines_hold_up_no_others_and_end_soon() -> None:
    async def ask() -> None:
        commands = CommandRunner(program=("/bin/sleep",), far_s=2.0)
        silent = [asyncio.create_task(commands.run_far("90")) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.wait_for(commands.run("0"), 1.9)
        told = await asyncio.gather(*silent, return_exceptions=True)
        assert {str(error) for error in told} == {"`packager 90` took longer than 2 s"}

    asyncio.run(ask())


def _commands(place: Path, limit_s: float = 600.0) -> CommandRunner:
    return CommandRunner(program=("/bin/sh", "-c", SCRIPT.format(place=place)), limit_s=limit_s)


def _read_process(place: Path) -> int:
    for _ in range(4_000):
        with suppress(OSError, ValueError):
            return int(place.read_text())
        time.sleep(0.01)
    raise AssertionError("the command never started")
