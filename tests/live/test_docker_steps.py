"""Steps in containers of a real engine, with a worker that needs Python alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import NotFound, StepFailed
from packager.core.events import ignore
from packager.core.recipe import Estimate
from packager.images.blobs import BlobReader
from packager.optimize.steps.docker import DockerExecutor
from packager.optimize.steps.failures import StepBroken, StepOutOfMemory, StepTimedOut
from tests.live.tiny_images import PYTHON
from tests.live.waiting import wait_until
from tests.support.commandline import TINY
from tests.support.demo_tools import into as into
from tests.support.places import ROOT
from tests.support.tool_steps import HELPER, environments, model_files, step

pytestmark = pytest.mark.live


@pytest.fixture
def run(tmp_path: Path, engine: str, python_base: str) -> DockerExecutor:
    return docker_executor(tmp_path)


def docker_executor(root: Path, base: str = PYTHON) -> DockerExecutor:
    return DockerExecutor(
        environments(root),
        work_dir=root / "work",
        log_dir=root / "logs",
        read=BlobReader().chunks,
        on_event=ignore,
        base=base,
    )


def images_of(tool: str) -> list[str]:
    """Return the images of a tool, by what is in them and when they were made."""
    import docker

    images = docker.from_env().images.list(name=f"packager-tool-{tool}")
    return sorted(image.id for image in images)


_EARLIER: set[str] = set()


@pytest.fixture(autouse=True)
def earlier(engine: str) -> None:
    """Leave out the containers that are there already: who left them has failed by itself."""
    _EARLIER.clear()
    _EARLIER.update(found.id for found in containers())


def containers() -> list[Any]:
    import docker

    return [
        found
        for found in docker.from_env().containers.list(all=True, ignore_removed=True)
        if found.name.startswith("packager-step-") and found.id not in _EARLIER
    ]


def test_a_step_runs_in_a_container_and_its_files_are_ours(run: DockerExecutor, into: Path) -> None:
    result = run.run(step("copy", model_files(TINY), parameters={"seed": 5}), into)

    assert json.loads((into / "config.json").read_text())["demo"] == 5
    assert result.details == {"copied": True}
    assert {path.stat().st_uid for path in into.iterdir()} == {os.geteuid()}
    assert containers() == []


def test_the_image_of_a_tool_says_what_it_was_made_from_and_whether_that_was_verified(
    run: DockerExecutor,
) -> None:
    import docker

    run.prepare("demo-tool")

    (image,) = docker.from_env().images.list(name="packager-tool-demo-tool")[:1]
    assert "python" in json.loads(image.labels["dev.packager.tool"])
    assert image.labels["dev.packager.tool.hashes"] == "not asked for"
    assert image.labels["dev.packager.tool.base"].startswith("sha256:")


def test_a_container_sees_nothing_of_our_environment_and_no_network(
    run: DockerExecutor, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    run.run(step("environment", env={"OMP_NUM_THREADS": "1"}), into)

    seen = json.loads((into / "env.json").read_text())
    assert seen["OMP_NUM_THREADS"] == "1"
    assert not [name for name in seen if "SECRET" in name]


@pytest.mark.parametrize(
    ("do", "kind", "words"),
    [
        ("crash", StepFailed, "was killed by signal 11"),
        ("half_a_result", StepBroken, "gave a result that cannot be read"),
        ("memory", StepOutOfMemory, "failed"),
    ],
)
def test_a_container_that_fails_says_why_and_is_gone(
    do: str, kind: type[StepFailed], words: str, run: DockerExecutor, into: Path
) -> None:
    with pytest.raises(StepFailed) as caught:
        run.run(step(do), into)

    assert type(caught.value) is kind
    assert words in caught.value.message
    assert containers() == []


def test_a_container_that_hangs_is_ended(run: DockerExecutor, into: Path) -> None:
    with pytest.raises(StepTimedOut):
        run.run(step("hang", timeout_s=3.0), into)

    assert containers() == []


def test_the_kernel_ends_a_container_over_its_memory(run: DockerExecutor, into: Path) -> None:
    with pytest.raises(StepOutOfMemory, match="memory ran out"):
        run.run(step("eat", needs=Estimate(memory_bytes=32 << 20)), into)


def test_the_image_is_built_once(run: DockerExecutor, tmp_path: Path) -> None:
    run.prepare("demo-tool")
    assert docker_executor(tmp_path).find_tool("demo-tool").installed
    built = images_of("demo-tool")
    assert built

    run.prepare("demo-tool")

    assert images_of("demo-tool") == built


def test_a_base_that_is_not_there_is_explained(tmp_path: Path, engine: str, into: Path) -> None:
    with pytest.raises(NotFound, match="is not here and cannot be pulled"):
        docker_executor(tmp_path, "localhost:1/no/base:1").run(step("copy"), into)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_runs_on_when_packager_ends(
    how: signal.Signals, tmp_path: Path, engine: str, python_base: str
) -> None:
    run_and_end(
        how,
        "from tests.support.tool_steps import step\n"
        f"root = Path({str(tmp_path)!r}); (root / 'into').mkdir()\n"
        "docker_executor(root).run(step('hang'), root / 'into')\n",
    )


def test_no_installation_runs_on_when_packager_is_killed(
    tmp_path: Path, engine: str, python_base: str
) -> None:
    """It would take the network and the disk for up to an hour, and its image would never be."""
    import docker

    helper = tmp_path / "helper"
    shutil.copytree(HELPER, helper)
    (helper / "install.py").write_text("import time; time.sleep(600)\n")
    for found in images_of("demo-tool"):
        docker.from_env().images.remove(found, force=True)
    run_and_end(
        signal.SIGKILL,
        f"executor = docker_executor(Path({str(tmp_path)!r}))\n"
        f"executor._environments.helper = Path({str(helper)!r})\n"
        "executor.prepare('demo-tool')\n",
    )
    assert images_of("demo-tool") == []


def run_and_end(how: signal.Signals, program: str) -> None:
    """Run a program until its container runs, and end it; the container must end, too."""
    start = "from pathlib import Path\nfrom tests.live.test_docker_steps import docker_executor\n"
    process = subprocess.Popen(
        [sys.executable, "-c", start + program],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: [found for found in containers() if found.status == "running"])
        process.send_signal(how)
        process.wait(120)
        wait_until(lambda: not [found for found in containers() if found.status == "running"])
    finally:
        process.kill()
        for found in containers():
            found.remove(force=True)
