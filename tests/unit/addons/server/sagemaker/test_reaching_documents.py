"""Documents that reach for files, addresses, code or a shell of the server's machine."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.jobs.values import NewJob
from packager.addons.server.sagemaker.optimization import make_job
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.sagemaker.untrusted_options import reaches_out
from tests.support.cases import cases, read_tables
from tests.support.sagemaker_bodies import (
    EAGLE_BUILT_IN_DATA,
    MODELS,
    compilation,
    quantization,
    sharding,
)

CANARY = "canary-of-the-host"
STATED = read_tables(__file__)["reaching"]


def _bodies(**variables: str) -> dict[str, dict[str, Any]]:
    """Every technique, with variables where its clients put them."""
    return {
        "quantization": quantization(**variables),
        "compilation": compilation("ml.g5.xlarge", **variables),
        "neuron": compilation("ml.inf2.8xlarge", OPTION_TENSOR_PARALLEL_DEGREE="2", **variables),
        "sharding": sharding(OPTION_TENSOR_PARALLEL_DEGREE="4", **variables),
        "eagle": {**EAGLE_BUILT_IN_DATA, "OptimizationEnvironment": variables},
    }


TECHNIQUES = tuple(_bodies())


def _make(body: dict[str, Any]) -> NewJob:
    return make_job(body, JobSettings(images="docker:jobs"), find_model=MODELS.get)


@pytest.mark.parametrize("option", STATED["options"])
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_no_option_reaches_the_machine(tmp_path: Path, technique: str, option: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(CANARY)
    for reaching in STATED["texts"]:
        body = _bodies(**{option: reaching.replace("{file}", str(secret))})[technique]
        with pytest.raises(ValidationRefused) as caught:
            _make(body)
        assert CANARY not in caught.value.message


@pytest.mark.parametrize("option", STATED["code_options"])
def test_no_option_names_code(option: str) -> None:
    for technique, value in product(TECHNIQUES, ("os.system", "evil", '["a.b"]', '{"a": 1}')):
        with pytest.raises(ValidationRefused):
            _make(_bodies(**{option: value})[technique])


@pytest.mark.parametrize("prefix", ["SERVING_", "SAGEMAKER_", "DJL_", "SM_NEO_"])
def test_settings_of_a_server_reach_no_job(prefix: str) -> None:
    for body in _bodies(**{f"{prefix}LOAD_MODELS": "/etc/passwd $(id) http://h/x"}).values():
        job = _make(body)
        told = json.dumps([[one.arguments, dict(one.environment)] for one in job.stages])
        told += b"".join(job.files.values()).decode()
        assert "/etc/passwd" not in told
        assert "$(id)" not in told


@cases("engine")
def test_what_stays_in_the_engine_is_taken(option: str, value: str) -> None:
    assert reaches_out(option, value) == ""
