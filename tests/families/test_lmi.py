from __future__ import annotations

from dataclasses import replace

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.core.artifact import Artifacts
from packager.core.findings import Finding, errors_in
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.errors import PlanRejected
from packager.families.lmi import LmiFamily, check_settings, lmi_options, settings
from tests.planning.headers import LLAMA_3_8B, TINY, model_of, plan_of

PLAN = plan_of(model_of(LLAMA_3_8B), "g5.12xlarge", family="lmi", served_name="llama")


def render(plan: Plan) -> ServingConfig:
    return LmiFamily().render(plan, Artifacts(model=()))


def properties(plan: Plan) -> dict[str, str]:
    (file,) = render(plan).files
    read: dict[str, str] = javaproperties.loads(file.data.decode("latin-1"))
    return read


def check(**changed: str) -> list[tuple[str, str]]:
    meant = settings(PLAN) | {key.replace("__", "."): value for key, value in changed.items()}
    findings: list[Finding] = list(check_settings(meant, lmi_options()))
    return [(finding.severity, finding.code) for finding in findings]


def test_properties_lie_at_the_root_of_the_model_store() -> None:
    config = render(PLAN)

    (file,) = config.files
    assert file.path == "/opt/packager/model/serving.properties"
    assert config.env["SERVING_MODEL_STORE"] == "/opt/packager/model"
    assert "HF_MODEL_ID" not in config.env
    assert "option.model_id" not in properties(PLAN)


def test_the_bases_entrypoint_is_kept() -> None:
    config = render(PLAN)

    assert (config.entrypoint, config.cmd, config.port) == ((), (), 8080)


def test_the_plan_is_spelled_in_lmis_keys() -> None:
    read = properties(PLAN)

    assert read["engine"] == "Python"
    assert read["option.tensor_parallel_degree"] == "2"
    assert read["option.max_rolling_batch_size"] == "16"
    assert read["option.max_model_len"] == "8192"
    assert read["option.dtype"] == "bf16"
    assert read["option.served_model_name"] == "llama"
    assert read["option.trust_remote_code"] == "false"


def test_the_mode_does_not_depend_on_the_models_config() -> None:
    read = properties(PLAN)

    assert read["option.rolling_batch"] == "disable"
    assert read["option.async_mode"] == "true"
    assert read["option.entryPoint"] == "djl_python.lmi_vllm.vllm_async_service"


def test_file_and_environment_say_the_same() -> None:
    env = render(PLAN).env
    server_reads = {  # ModelInfo.loadServingProperties lowers the name, but for entryPoint
        f"option.{'entryPoint' if name == 'ENTRYPOINT' else name.lower()}": value
        for name, value in (
            (key.removeprefix("OPTION_"), value)
            for key, value in env.items()
            if key.startswith("OPTION_")
        )
    }

    assert {"engine": "Python", **server_reads} == properties(PLAN)


def test_the_server_reaches_for_no_network() -> None:
    env = render(PLAN).env

    assert env["DJL_OFFLINE"] == "true"
    assert env["HF_HUB_OFFLINE"] == env["TRANSFORMERS_OFFLINE"] == env["OPT_OUT_TRACKING"] == "1"


def test_what_we_render_lmi_reads() -> None:
    assert check() == []


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("option__speculative_draft_model", "/opt/draft", "key-dropped"),
        ("option__max_num_batched", "1", "key-dropped"),
        ("option__dtype", "half", "value-refused"),
        ("option__tensor_parallel_degree", "max", "value-refused"),
        ("option__async_mode", "yes", "value-refused"),
        ("option__gpu_memory_utilization", "most", "value-refused"),
        ("option__served_model_name", "True", "value-refused"),
        ("engine", "MPI", "value-refused"),
    ],
)
def test_what_lmi_drops_or_refuses_is_an_error(key: str, value: str, code: str) -> None:
    assert check(**{key: value}) == [("error", code)]


def test_a_name_that_lmi_reads_as_a_switch_rejects_the_plan() -> None:
    with pytest.raises(PlanRejected) as error:
        plan_of(model_of(TINY), "g5.xlarge", family="lmi", served_name="true")

    assert [finding.code for finding in errors_in(error.value.findings)] == ["value-refused"]


def test_keys_of_another_version_are_a_warning() -> None:
    other = replace(PLAN, container=replace(PLAN.container, version="0.35.0-lmi17.0.0-cu128"))

    assert "options-unproven" in [finding.code for finding in LmiFamily().check(other)]


@given(
    served_name=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z"),
    max_batch=st.integers(1, 64),
    max_total_tokens=st.integers(2, 512),
)
def test_every_name_and_shape_reads_back_as_it_was_planned(
    served_name: str, max_batch: int, max_total_tokens: int
) -> None:
    if served_name.lower() in {"true", "false"}:
        return
    read = properties(
        plan_of(
            model_of(TINY),
            "g5.xlarge",
            family="lmi",
            served_name=served_name,
            max_batch=max_batch,
            max_total_tokens=max_total_tokens,
        )
    )

    assert read["option.served_model_name"] == served_name
    assert read["option.max_rolling_batch_size"] == str(max_batch)
    assert read["option.max_model_len"] == str(max_total_tokens)
