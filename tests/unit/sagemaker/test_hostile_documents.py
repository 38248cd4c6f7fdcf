"""Documents of strangers: each ends as a job, or as a refusal of the API, and soon."""

from __future__ import annotations

import copy
import json
import random
import time
from typing import Any

import pytest

from packager.core.request import parse_request
from packager.jobs.values import NewJob
from packager.sagemaker.optimization import make_job
from packager.sagemaker.refusals import ApiRefusal
from packager.sagemaker.settings import JobSettings
from packager.sagemaker.variables import NUMBERS, SAME_HERE, TEXTS, TRANSLATED, WORDS
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
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 1e308, 2**31, 2**63, 10**400, float("nan")),
    *("", " ", "a", "\x00", "\x1b[31m", "é" * 100, "a" * 70_000, "-" * 5_000, "s3://", "s3:///x"),
    *("s3://models/../../etc", "https://h/x", "file:///etc/passwd", "/etc/passwd", "{job}/x"),
    *("--output", "$(id)", "eagle3:/etc", "oci:/x", "ml.g5.xlarge", "max", "true", "\ud800"),
    *([], {}, [[]], [{}], {"S3": {}}, {"a": {"b": {"c": []}}}, [None], {"": ""}, {"x": None}),
]
NAMES = ["", "X", "OptimizationJobName", "S3", "S3Uri", "Key", "ModelQuantizationConfig", "\x1b"]
CASES = 1500


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container below a value, with each of its keys."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in list(items):
        found.append((value, key))
        if isinstance(one, dict | list):
            found += _places(one)
    return found


def _changed(chance: random.Random) -> Any:
    body = copy.deepcopy(chance.choice(BODIES))
    for _ in range(chance.randint(1, 3)):
        places = _places(body)
        if not places:
            break
        container, key = chance.choice(places)
        what = chance.randrange(4)
        if what == 0:
            del container[key]
        elif what == 1 and isinstance(container, dict):
            container[chance.choice(NAMES)] = copy.deepcopy(chance.choice(VALUES))
        elif what == 2 and isinstance(container, list):
            container += [copy.deepcopy(chance.choice(container))] * chance.randint(1, 30)
        else:
            container[key] = copy.deepcopy(chance.choice(VALUES))
    return body


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
    texts = [value for value in VALUES if isinstance(value, str) and len(value) < 300]
    texts += ["1", "awq", "fp8", "{}", '{"method":[]}', '{"method":"eagle3","model":{}}', "[" * 99]
    ends = []
    for _ in range(200):
        picked = chance.sample(known, chance.randint(1, 4))
        ends.append(_ends(quantization(**{name: chance.choice(texts) for name in picked})))

    for found in ends:
        _check(found)


@pytest.mark.parametrize("body", [None, [], 7, "x", {}, {"a": {"b": [1]}}, [[[[]]]]])
def test_what_is_no_document_is_refused(body: Any) -> None:
    assert isinstance(_ends(body), ApiRefusal)


def test_no_document_names_a_file_of_this_machine() -> None:
    for place in ("/etc/passwd", "./x", "../x", "~/x", "{job}/request.json", "examples/tiny-llama"):
        for name in ("OPTION_CALIB_DATASET", "OPTION_SPECULATIVE_DRAFT_MODEL", "HF_MODEL_ID"):
            assert isinstance(_ends(quantization(**{name: place})), ApiRefusal)


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
