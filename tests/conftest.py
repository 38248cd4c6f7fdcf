"""Real servers for live tests, each private and stopped at the end.

A server that cannot be started skips its tests, but fails them with CI=true.
"""

from __future__ import annotations

import gc
import itertools
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from artifact_cache import secrets
from tests.support.commandline import Packager, packager_in
from tests.support.processes import run_program

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
LONG_KINDS = (ROOT / "tests" / "live", ROOT / "tests" / "faults")

# A shell's background job ignores SIGINT, and so do its children: tests send it to theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)

sys.dont_write_bytecode = False  # as for the processes that tests start, see `commandline`

OWN_PLACES = {
    "XDG_STATE_HOME": "state",
    "XDG_CONFIG_HOME": "config",
    "PACKAGER_CACHE": "cache",
    "DOCKER_CONFIG": "docker",
}
_NUMBERS = itertools.count()

# An error keeps the frames that it passed, and with them connections and databases, until garbage
# is looked for, which is seldom among so many objects: a process may have 1,024 files open.
MANY_FILES = 200

ENGINE = "engine"  # the group that takes longest: half of the time of all
LONG = tuple(  # those that take a minute and more
    f"tests/live/test_{name}.py"
    for name in (
        *("quantize", "quantize_matrix", "interrupted_quantizing", "warm_ray"),
        *("draft_heads_medusa", "draft_heads_eagle3", "ray_executor"),
    )
)

settings.register_profile("busy", deadline=None)  # a busy machine is no failure
settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let golden files and the output in pages be rewritten, for review as code."""
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )
    parser.addoption(
        "--update-docs", action="store_true", help="write the output that pages show instead"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep our order of groups: xdist's own has those with most tests first."""
    config.option.loadscopereorder = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among tests: 20,000 are made and all stay, a quarter of that time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Look through the garbage once at the end: pytest does five times, all that was ever made."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the live tests first, the longest group before all, and those with an engine together.

    With `--dist loadgroup` a group runs in one process, so there is one engine, and what the tests
    of a file share is made once.  What is left when the process of the engine has nothing more to
    do are short files, which all share.  xdist reads the groups in this hook, too: marks
    that come after it are not seen.
    """
    for item in items:
        leave_to_test_all(item)
        if item.get_closest_marker("xdist_group"):
            continue
        has_engine = "docker_host" in getattr(item, "fixturenames", ())
        group = ENGINE if has_engine else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=turn_of)


def leave_to_test_all(item: pytest.Item) -> None:
    """Mark live tests and faults `extended`, unless they hold what README promises."""
    held = item.get_closest_marker("capability")
    if held and item.get_closest_marker("extended"):
        raise pytest.UsageError(f"{item.nodeid}: what holds a capability is in `make test`")
    takes_long = any(map(item.path.is_relative_to, LONG_KINDS))
    if takes_long and not held:
        item.add_marker(pytest.mark.extended)


def turn_of(item: pytest.Item) -> int:
    """Return where a test belongs in the order of all."""
    group = item.get_closest_marker("xdist_group")
    if group and ENGINE in group.args:
        return 0
    if item.get_closest_marker("live") is None:
        return 3
    return 1 if item.nodeid.partition("::")[0] in LONG else 2


def unavailable(what: str) -> NoReturn:
    """Skip on a machine that lacks something; fail where everything must be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing; `make system` installs it")


def need(tool: str) -> str:
    """Path of an installed program."""
    return shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin") or unavailable(tool)


@pytest.fixture
def own_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a new directory for one test.

    pytest looks at each one that there is to find the next number: 10 ms a directory after
    20,000 of them, and every test has several.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    place = tmp_path_factory.getbasetemp() / f"{next(_NUMBERS)}-{name}"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture
def tmp_path(own_place: Path) -> Path:
    """Make an empty directory, as pytest's own fixture does."""
    place = own_place / "work"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture(autouse=True)
def own_state(own_place: Path) -> Iterator[None]:
    """Give every test a state directory, a cache, keys and a Docker configuration of its own."""
    patch = pytest.MonkeyPatch()
    for variable, name in OWN_PLACES.items():
        (own_place / name).mkdir(mode=0o700)
        patch.setenv(variable, str(own_place / name))
    patch.delenv("PACKAGER_CLAIM_KEY", raising=False)
    patch.delenv("PACKAGER_CLAIM_KEY_FILE", raising=False)
    patch.delenv("SOURCE_DATE_EPOCH", raising=False)
    patch.setattr(secrets, "SECRETS", secrets.Secrets())
    yield
    patch.undo()
    if len([*Path("/proc/self/fd").iterdir()]) > MANY_FILES:
        gc.collect()


@pytest.fixture
def packager(tmp_path: Path) -> Packager:
    """Run the real command line in a process of its own, from a new directory."""
    return packager_in(tmp_path)


@pytest.fixture(scope="session")
def docker_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """DOCKER_HOST of an engine: the one given, else a private one for this session."""
    given = os.environ.get("DOCKER_HOST")
    if given:
        yield given
        return
    need("dockerd")
    if os.geteuid() != 0:
        unavailable("root, to start a private Docker Engine,")
    root = tmp_path_factory.mktemp("engine")
    run_script("docker-engine", "start", "--root", str(root), "--end-with", str(os.getpid()))
    try:
        exported = run_script("docker-engine", "env", "--root", str(root))
        yield exported.split("DOCKER_HOST=")[1].split()[0].strip("'\";")
    finally:
        run_script("docker-engine", "stop", "--root", str(root))


@pytest.fixture
def engine(docker_host: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the engine the one that packager finds."""
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    return docker_host


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a real, empty docker-registry."""
    need("docker-registry")
    root = tmp_path_factory.mktemp("registry")
    try:
        ends = ("--end-with", str(os.getpid()))
        yield run_script("registry", "start", "--root", str(root), *ends).split()[-1]
    finally:
        run_script("registry", "stop", "--root", str(root))


@pytest.fixture(scope="session")
def quantizing() -> Path:
    """Python of the environment that quantizes and evaluates; `make system` installs it."""
    return python_of("llmcompressor")


@pytest.fixture(scope="session")
def quantizing_fast(
    quantizing: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Variables with which packager quantizes and evaluates by forks of one loaded process."""
    from tests.live.preloaded_tools import preloaded_tools

    with preloaded_tools(tmp_path_factory.mktemp("tools"), "llmcompressor") as variables:
        yield variables


@pytest.fixture(scope="session")
def training() -> Path:
    """Python of the environment that trains draft heads; `make system` installs it."""
    return python_of("draft-heads")


@pytest.fixture(scope="session")
def training_fast(
    training: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Variables with which packager trains draft heads by forks of one loaded process."""
    from tests.live.preloaded_tools import preloaded_tools

    with preloaded_tools(tmp_path_factory.mktemp("tools"), "draft-heads") as variables:
        yield variables


@pytest.fixture(scope="session")
def serving_base() -> str:
    """Reference of the embedded vLLM-CPU base, built when it is not there yet."""
    need("debootstrap")
    if os.geteuid() != 0:
        unavailable("root, to build the serving base,")
    from packager.images.bases.embedded import build_base

    build_base("vllm-cpu")
    return "embedded:vllm-cpu"


def python_of(tool: str) -> Path:
    """Python of a tool's environment, where it is installed."""
    from packager.cli.wiring.settings import Settings
    from packager.cli.wiring.techniques import environments_for

    environments = environments_for(Settings())
    if not environments.facts(tool).installed:
        unavailable(f"the tool {tool} (1.5 GB)")
    return environments.place(tool) / "bin/python"


def run_script(name: str, *arguments: str) -> str:
    """Run one of `scripts/`, show its messages when it fails."""
    return run_program(SCRIPTS / name, *arguments).stdout
