"""What several files of live tests share: made once for a process, and only read by tests.

A fixture that a file imports from another one is made anew for each file, whatever its scope.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import OWN_PLACES, SCRIPTS, need, unavailable
from tests.live.building import build, ran
from tests.live.head_training import Training
from tests.live.processors import caps, need_true_flags
from tests.live.servers import SMALL_MODEL, served
from tests.live.tiny_images import (
    PYTHON,
    TINY_ENGINE,
    build_tiny_served,
    commit_tiny_engine,
    import_python,
)
from tests.support.browser import Browser, opened
from tests.support.commandline import TINY, packager_in
from tests.support.doubles.s3 import Bucket, bucket_server

COMPILING = (
    *("build", "--model", str(TINY), "--instance", "local"),
    *("--compile", "vllm_cache", "--executor", "docker", "--quiet"),
)


@pytest.fixture(scope="session")
def python_base(docker_host: str) -> str:
    """An image with this machine's Python, so that nothing is pulled."""
    import docker

    import_python(docker.DockerClient(base_url=docker_host))
    return PYTHON


@pytest.fixture(scope="session")
def tiny_base(docker_host: str, python_base: str) -> str:
    """A base image with the engine that starts in a blink."""
    import docker

    commit_tiny_engine(docker.DockerClient(base_url=docker_host))
    return TINY_ENGINE


@pytest.fixture(scope="session")
def built(
    docker_host: str, tiny_base: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """An image of tiny-llama that packager built on a base with the tiny engine."""
    place = tmp_path_factory.mktemp("tiny-engine")
    own = {"DOCKER_HOST": docker_host, "XDG_CACHE_HOME": str(place), "XDG_STATE_HOME": str(place)}
    return build_tiny_served(place, own), place


@pytest.fixture
def image(built: tuple[str, Path], engine: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The image as `packager build` printed it, where its record is."""
    printed, place = built
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))  # of bases that were taken out of the engine
    return printed


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    """Make a bucket with tiny-llama in it."""
    with bucket_server() as url:
        made = Bucket(url)
        made.upload(TINY, "models/tiny")
        yield made


@pytest.fixture(scope="session")
def plain_image(
    docker_host: str, serving_base: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """An image of tiny-llama with a real vLLM and no draft."""
    place = tmp_path_factory.mktemp("plain")
    name = "packager-test:plain"
    own = {variable: str(place / folder) for variable, folder in OWN_PLACES.items()}
    environment = {"DOCKER_HOST": docker_host, **own}
    build(packager_in(place), f"docker:{name}", base=serving_base, env=environment)
    return name


@dataclass(frozen=True)
class Compiled:
    """An image with what a real vLLM compiled, its build record, and the cache that has it, too."""

    image: str
    record: dict[str, Any]
    cache: Path


@pytest.fixture(scope="session")
def compiled(
    docker_host: str, serving_base: str, tmp_path_factory: pytest.TempPathFactory
) -> Compiled:
    """Compile tiny-llama for this machine, once: it takes a minute of two cores."""
    need_true_flags()
    place = tmp_path_factory.mktemp("compiled")
    record, image = place / "record.json", "packager-test:compiled"
    own = {name: str(place / folder) for name, folder in OWN_PLACES.items()}
    ran(
        packager_in(place),
        *(*COMPILING, "--weights", "mounted", "--base", serving_base),
        *("--output", f"docker:{image}", "--record", str(record)),
        env={"DOCKER_HOST": docker_host, **own},
    )
    return Compiled(image, json.loads(record.read_text()), Path(own["PACKAGER_CACHE"]))


@pytest.fixture(scope="package")
def plain_server(docker_host: str, plain_image: str) -> Iterator[str]:
    """Address of a server of that image, which tests only ask."""
    with served(docker_host, plain_image, **SMALL_MODEL, **caps()) as (_, url):
        yield url


@pytest.fixture(scope="session")
def quantizing_python(quantizing: Path, quantizing_fast: dict[str, str]) -> Path:
    """Python of the quantizing environment, which runs a script with the libraries loaded."""
    return fast_python(quantizing, quantizing_fast)


@pytest.fixture(scope="session")
def training_python(training: Path, training_fast: dict[str, str]) -> Path:
    """Python of the environment of draft heads, likewise."""
    return fast_python(training, training_fast)


@pytest.fixture(scope="session")
def started(
    training_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Training]:
    """Return a function that makes a new directory to train heads in."""
    return lambda name: Training(tmp_path_factory.mktemp(name), training_python)


def fast_python(real: Path, fast: dict[str, str]) -> Path:
    return Path(fast["PACKAGER_TOOLS"], real.parents[1].name, "bin/python")


@pytest.fixture(scope="session")
def consumers() -> Path:
    """Directory with AIPerf and SageMaker's SDK, each below its name."""
    found = subprocess.run([SCRIPTS / "bench-consumers", "path"], capture_output=True, text=True)
    if found.returncode != 0:
        unavailable("scripts/bench-consumers")
    return Path(found.stdout.strip())


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A browser that looks for barriers."""
    found = subprocess.run([SCRIPTS / "axe-core", "path"], capture_output=True, text=True)
    if found.returncode:
        unavailable("axe-core")
    axe = Path(found.stdout.strip()).read_text(encoding="utf-8")
    with opened(need("chromium"), need("chromedriver"), axe) as started:
        yield started
