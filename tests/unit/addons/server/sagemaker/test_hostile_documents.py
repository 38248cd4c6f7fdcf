"""Documents of strangers: each ends as a job, or as a refusal of the API, and soon."""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.api_refusals import ApiRefusal
from packager.addons.server.jobs.values import NewJob
from packager.addons.server.protocol import read_body
from packager.addons.server.sagemaker.optimization import make_job
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.sagemaker.variables import NUMBERS, SAME_HERE, TEXTS, TRANSLATED, WORDS
from packager.core.request import parse_request
from tests.faults.documents.mutations import damage
from tests.support.sagemaker_bodies import (
    AWQ,
    EAGLE_OWN_HEAD,
    MODELS,
    SDK_TAGS,
    compilation,
    quantization,
    sharding,
)

SETTINGS = JobSettings(images="docker:jobs")
BODIES = [
    {**AWQ, "Tags": SDK_TAGS, "OptimizationEnvironment": {"OPTION_DTYPE": "bf16"}},
    EAGLE_OWN_HEAD,
    compilation("ml.inf2.8xlarge", OPTION_TENSOR_PARALLEL_DEGREE="2"),
    sharding(OPTION_TENSOR_PARALLEL_DEGREE="4"),
]
STRANGE = [
    *("", " ", "a", "\x00", "\x1b[31m", "é" * 100, "s3://", "s3:///x", "max", "true"),
    *("s3://models/../../etc", "https://h/x", "file:///etc/passwd", "/etc/passwd", "{job}/x"),
    *("--output", "$(id)", "eagle3:/etc", "oci:/x", "ml.g5.xlarge", "1", "awq", "fp8", "{}"),
    *('{"method":[]}', '{"method":"eagle3","model":{}}', "[" * 99),
]
CASES = 1500


def _changed(chance: random.Random) -> Any:
    """Return a body that was damaged, where a server still reads it."""
    while True:
        changed = damage(json.dumps(chance.choice(BODIES)).encode(), chance)
        if len(changed) < 100_000:
            with suppress(ApiRefusal):
                return read_body(changed)


def _ends(body: Any) -> NewJob | ApiRefusal:
    started = time.process_time()
    try:
        found: NewJob | ApiRefusal = make_job(body, SETTINGS, find_model=MODELS.get)
    except ApiRefusal as refusal:
        found = refusal
    assert time.process_time() - started < 2.0, body
    return found


def _check(found: NewJob | ApiRefusal) -> None:
    if isinstance(found, ApiRefusal):
        assert found.type in ("ValidationException", "SerializationException")
        assert found.message.isprintable()
        assert len(found.message) < 40_000
        return
    words = [word for stage in found.stages for word in stage.arguments]
    assert not any("\x00" in word for word in words)
    assert {stage.arguments[0] for stage in found.stages} <= {"build", "draft", "jobs"}
    json.dumps(found.document)
    parse_request(json.loads(found.files["request.json"]))


@pytest.mark.parametrize("seed", range(5))
def test_changed_documents_end_as_jobs_or_refusals(seed: int) -> None:
    chance = random.Random(seed)
    ends = [_ends(_changed(chance)) for _ in range(CASES // 5)]

    for found in ends:
        _check(found)
    assert sum(isinstance(found, NewJob) for found in ends) >= 3


@pytest.mark.parametrize("seed", range(3))
def test_changed_environments_end_as_jobs_or_refusals(seed: int) -> None:
    chance = random.Random(seed)
    known = [
        *TRANSLATED,
        *(f"OPTION_{name.upper()}" for name in (*NUMBERS, *WORDS, *TEXTS, *SAME_HERE)),
        *("OPTION_SPECULATIVE_CONFIG", "OPTION_SPECULATIVE_DRAFT_MODEL", "SM_VLLM_MAX_LOGPROBS"),
        *("OPTION_HF_OVERRIDES", "OPTION_LIMIT_MM_PER_PROMPT", "SERVING_X", "ENABLE_CUDA_GRAPHS"),
        *("option_quantize", "OPTION_", "SM_VLLM_", "PATH", "LD_PRELOAD", "PYTHONPATH"),
    ]
    ends = []
    for _ in range(200):
        picked = chance.sample(known, chance.randint(1, 4))
        ends.append(_ends(quantization(**{name: chance.choice(STRANGE) for name in picked})))

    for found in ends:
        _check(found)


def test_no_place_stands_for_the_folder_of_the_job() -> None:
    output = {"S3OutputLocation": "s3://results/{job}/"}

    assert isinstance(_ends({**AWQ, "OutputConfig": output}), ApiRefusal)


@pytest.mark.parametrize("name", ["--output", "-a", "a b", "{job}", "a/b", "a:b"])
def test_no_name_of_a_job_is_an_option_or_a_place(name: str) -> None:
    assert isinstance(_ends({**AWQ, "OptimizationJobName": name}), ApiRefusal)


def test_a_place_in_a_bucket_is_one_argument() -> None:
    output = {"S3OutputLocation": "s3://results/a --draft x"}
    found = _ends({**AWQ, "OutputConfig": output})

    assert isinstance(found, NewJob)
    assert "s3://results/a --draft x" in found.stages[0].arguments
