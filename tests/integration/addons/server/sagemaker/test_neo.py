"""`packager neo` as SageMaker starts it: no arguments, variables, mounted directories."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from packager.addons.server.commands.neo_files import move_result
from packager.core.errors import OutputFailed
from tests.support.cases import cases, read_tables
from tests.support.commandline import TINY, Done, Packager

TABLES = read_tables(__file__)


SHARDED = "option.load_format=sagemaker_fast_model_loader\noption.tensor_parallel_degree=1\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The mounts of a job: model/input, model/compiled, compilation/errors, compilation/cache."""
    for name in ("model/compiled", "compilation/errors", "compilation/cache"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copytree(TINY, tmp_path / "model/input", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def variables(job: Path, **more: str) -> dict[str, str]:
    stated = read_tables(__file__)["variables"]
    return {name: text.replace("{job}", str(job)) for name, text in stated.items()} | more


def error_of(job: Path) -> str:
    return str(json.loads((job / "compilation/errors/errors.json").read_text())["error"])


def failed(packager: Packager, job: Path, **more: str) -> tuple[Done, str]:
    done = packager("neo", "--quiet", env=variables(job, **more))
    assert done.status != 0
    assert done.out == ""
    assert not list((job / "model/compiled").iterdir())
    return done, error_of(job)


def test_a_sharding_leaves_the_model_with_its_settings(packager: Packager, job: Path) -> None:
    (job / "model/input/serving.properties").write_text(f"{SHARDED}option.max_model_len=512\n")
    (job / "compilation/errors/errors.json").write_text("of an earlier try")

    done = packager("neo", "--quiet", env=variables(job))

    assert (done.status, done.out) == (0, f"{job}/model/compiled\n"), done.err
    assert not (job / "compilation/errors/errors.json").exists()
    out = job / "model/compiled"
    assert (out / "serving.properties").read_text().splitlines() == TABLES[
        "a_sharding_leaves_the_model_with_its_settings"
    ]
    weights = sorted(one.name for one in out.glob("*.safetensors"))
    assert weights == [f"model-0000{at}-of-00003.safetensors" for at in (1, 2, 3)]
    for name in (*weights, "config.json", "tokenizer.json"):
        assert _digest(out / name) == _digest(TINY / name)
    assert not (out / "packager-tree.json").exists()
    assert not [one for one in out.iterdir() if one.name.startswith(".")]


def test_a_model_without_settings_is_described_by_variables(packager: Packager, job: Path) -> None:
    more = {
        "OPTION_LOAD_FORMAT": "sagemaker_fast_model_loader",
        "OPTION_TENSOR_PARALLEL_DEGREE": "1",
    }

    packager("neo", "--quiet", env=variables(job, **more), status=0)

    text = (job / "model/compiled/serving.properties").read_text()
    assert text == "engine=Python\noption.tensor_parallel_degree=1\n"


def test_a_result_takes_the_place_of_an_earlier_one(packager: Packager, job: Path) -> None:
    (job / "model/input/serving.properties").write_text(SHARDED)
    (job / "model/compiled/serving.properties").write_text("engine=MPI\n")
    (job / "model/compiled/config.json").mkdir()

    packager("neo", "--quiet", env=variables(job), status=0)

    assert (job / "model/compiled/config.json").is_file()
    assert "MPI" not in (job / "model/compiled/serving.properties").read_text()


def test_a_broken_move_leaves_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "serving.properties").write_text("option.quantize=fp8\n")

    def full(path: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OutputFailed), move_result(tmp_path) as tree:
        tree.mkdir()
        (tree / "model.safetensors").write_bytes(b"awq")
        monkeypatch.setattr(Path, "rename", full)

    assert list(tmp_path.iterdir()) == []


@cases("failures")
def test_a_failure_is_told_in_the_error_file_and_leaves_no_result(
    packager: Packager, job: Path, more: dict[str, str], said: str
) -> None:
    _, error = failed(packager, job, **more)

    assert said in error


def test_a_model_that_is_broken_is_a_failure_of_the_job(packager: Packager, job: Path) -> None:
    (job / "model/input/serving.properties").write_text(SHARDED)
    weights = job / "model/input/model-00002-of-00003.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])

    _, error = failed(packager, job)

    assert error.startswith("OptimizationFatalError(")


def test_a_directory_of_errors_that_is_missing_is_made(packager: Packager, job: Path) -> None:
    place = job / "elsewhere/errors.json"

    packager("neo", env=variables(job, SM_NEO_COMPILATION_ERROR_FILE=str(place), OPTION_X="1"))

    assert list(json.loads(place.read_text())) == ["error"]


def test_settings_that_cannot_be_read_are_named(packager: Packager, job: Path) -> None:
    (job / "model/input/serving.properties").mkdir()

    _, error = failed(packager, job)

    assert "serving.properties" in error


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
