"""Documents that reach for files, addresses, code or a shell of the server's machine."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from packager.jobs.values import NewJob
from packager.sagemaker.optimization import make_job
from packager.sagemaker.refusals import ValidationRefused
from packager.sagemaker.settings import JobSettings
from packager.sagemaker.strangers import reaches_out
from tests.support.sagemaker_bodies import (
    EAGLE_BUILT_IN_DATA,
    MODELS,
    compilation,
    quantization,
    sharding,
)

CANARY = "canary-of-the-host"
OPTIONS = (
    *("OPTION_CHAT_TEMPLATE", "SM_VLLM_CHAT_TEMPLATE", "OPTION_CONFIG", "OPTION_HF_CONFIG_PATH"),
    *("OPTION_TOKENIZER", "OPTION_DOWNLOAD_DIR", "OPTION_LOG_CONFIG_FILE", "OPTION_SSL_KEYFILE"),
    *("OPTION_GENERATION_CONFIG", "OPTION_ALLOWED_LOCAL_MEDIA_PATH", "OPTION_HF_OVERRIDES"),
    *("OPTION_OTLP_TRACES_ENDPOINT", "OPTION_ADDITIONAL_CONFIG", "SM_VLLM_UDS", "HF_MODEL_ID"),
    *("OPTION_CALIB_DATASET", "OPTION_SPECULATIVE_DRAFT_MODEL", "OPTION_MODEL_ID"),
    *("OPTION_SERVED_MODEL_NAME", "OPTION_TOOL_CALL_PARSER", "OPTION_REASONING_PARSER"),
    *("SM_SGLANG_CHAT_TEMPLATE", "SM_SGLANG_TOKENIZER_PATH", "SM_SGLANG_LORA_PATHS"),
)
REACHING = (
    *("{file}", "file://{file}", "../../..{file}", "~/.aws/credentials", "$(cat {file})"),
    *("${{HOME}}", "http://169.254.169.254/latest/meta-data", '{{"a": ["{file}"]}}'),
    *("x,{file}", "a={file}", "unix:{file}", "C:\\secrets", "/opt/ml/model/../..{file}"),
)


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


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_no_option_reaches_the_machine(tmp_path: Path, technique: str, option: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(CANARY)
    for reaching in REACHING:
        body = _bodies(**{option: reaching.format(file=secret)})[technique]
        with pytest.raises(ValidationRefused) as caught:
            _make(body)
        assert CANARY not in caught.value.message


@pytest.mark.parametrize(
    "option",
    [
        *("OPTION_WORKER_CLS", "OPTION_MIDDLEWARE", "OPTION_LOGITS_PROCESSORS"),
        *("OPTION_TOOL_PARSER_PLUGIN", "SM_VLLM_SCHEDULER_CLS", "SM_VLLM_IO_PROCESSOR_PLUGIN"),
        *("SM_SGLANG_CUSTOM_WEIGHT_LOADER", "SM_SGLANG_SIDECAR", "SM_SGLANG_SIDECAR_ARGS"),
    ],
)
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


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("chat_template", "{% for m in messages %}</s>{{ m['content'] }}{% endfor %}"),
        ("chat_template", "/opt/ml/model/template.jinja"),
        ("generation_config", "vllm"),
        ("hf_overrides", '{"rope_scaling": {"factor": 2.0, "rope_type": "yarn"}}'),
        ("limit_mm_per_prompt", '{"image": 2}'),
        ("tokenizer", "org/name"),
        ("load_format", "auto"),
        ("revision", "refs/pr/3"),
    ],
)
def test_what_stays_in_the_engine_is_taken(option: str, value: str) -> None:
    assert reaches_out(option, value) == ""
