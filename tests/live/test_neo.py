"""`packager neo` in place of AWS's container: with real tools, and with the mounts of a job."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.live.tiny_images import interpreter
from tests.support.cases import read_tables
from tests.support.commandline import TINY, packager_in
from tests.support.places import ROOT

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

CORPUS: dict[str, dict[str, str]] = read_tables(__file__)
NEO, SHARDING, AWQ = (CORPUS[name] for name in ("job", "sharding", "awq"))
WORDS = ("--quantize", "awq", "--calibration-samples", "8", "--calibration-tokens", "64")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for name in ("model/compiled", "compilation/errors", "compilation/cache"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copytree(TINY, tmp_path / "model/input", ignore=shutil.ignore_patterns("__pycache__"))
    settings = "engine=Python\noption.model_id=/opt/ml/model/input\noption.max_model_len=512\n"
    (tmp_path / "model/input/serving.properties").write_text(settings)
    return tmp_path


def libraries_of(packages: Path) -> set[str]:
    """Return the libraries that packager's own packages are linked to."""
    (module,) = packages.glob("pydantic_core/*.so")
    linked = subprocess.check_output(["ldd", module], text=True)
    return {str(path) for path in re.findall(r"(/\S+) \(0x", linked)}


def files(root: Path) -> dict[str, str]:
    return {
        one.name: hashlib.sha256(one.read_bytes()).hexdigest()
        for one in root.iterdir()
        if one.name not in ("serving.properties", "packager-tree.json")
    }


def test_a_quantization_leaves_what_a_build_leaves(
    job: Path, quantizing_fast: dict[str, str]
) -> None:
    packager = packager_in(job)
    here = {name: one.replace("/opt/ml", str(job)) for name, one in NEO.items()}
    settings = job / "model/input/serving.properties"
    settings.write_text(settings.read_text().replace("/opt/ml", str(job)))

    packager("neo", "--quiet", env={**here, **AWQ, **quantizing_fast}, status=0)
    settings.unlink()
    packager(
        "build", "--model", "model/input", "--instance", "ml.g5.xlarge", "--family", "lmi",
        "--max-total-tokens", "512", *WORDS, "--output", "dir:tree", "--quiet",
        env={"PACKAGER_CACHE": str(job / "compilation/cache"), **quantizing_fast},
        status=0,
    )  # fmt: skip

    out = job / "model/compiled"
    assert files(out) == files(job / "tree")
    config: dict[str, Any] = json.loads((out / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    assert (out / "serving.properties").read_text().splitlines() == [
        "engine=Python",
        "option.max_model_len=512",
    ]


def test_a_container_has_the_mounts_of_a_job(job: Path, engine: str, python_base: str) -> None:
    """The mounts and variables of djl-serving's tests/integration/launch_container.sh."""
    import docker

    packages = Path(docker.__file__).parents[1]
    read_only = {str(ROOT), str(packages), *libraries_of(packages)}
    container = docker.from_env().containers.run(
        python_base,
        [str(interpreter()), "-m", "packager", "neo", "--quiet"],
        detach=True,
        environment={**NEO, **SHARDING, "PYTHONPATH": f"{ROOT}:{packages}", "HOME": "/tmp"},
        volumes=[
            f"{job}/model/input:/opt/ml/model/input:ro",
            f"{job}/model/compiled:/opt/ml/model/compiled",
            f"{job}/compilation:/opt/ml/compilation",
            *(f"{place}:{place}:ro" for place in sorted(read_only)),
        ],
        network_mode="none",
    )
    try:
        ended = container.wait(timeout=600)["StatusCode"]
        log = container.logs().decode()
    finally:
        container.remove(force=True)

    assert ended == 0, log
    assert not (job / "compilation/errors/errors.json").exists()
    assert (job / "model/compiled/serving.properties").read_text().splitlines() == CORPUS[
        "a_container_has_the_mounts_of_a_job"
    ]
    assert files(job / "model/compiled").keys() >= {"config.json", "tokenizer.json"}
