from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.families.vllm import VllmFamily
from packager.share import share_dir
from tests.planning.headers import LLAMA_3_8B, LOCAL_CPU, TINY, model_of, plan_of


def render(plan: Plan) -> ServingConfig:
    return VllmFamily().render(plan, Artifacts(model=()))


def command(plan: Plan) -> dict[str, Any]:
    config = render(plan)
    (file,) = (file for file in config.files if file.path.endswith("/command.json"))
    read: dict[str, Any] = json.loads(file.data)
    return read


def flag(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_the_launcher_is_the_entrypoint_and_gets_no_arguments() -> None:
    config = render(plan_of(model_of(TINY), LOCAL_CPU))

    assert config.entrypoint == ("python3", "/opt/packager/serving/launch.py")
    assert config.cmd == ()
    assert config.port == 8080


def test_the_launcher_and_the_adapter_are_put_in_as_they_are_shipped() -> None:
    config = render(plan_of(model_of(TINY), LOCAL_CPU))
    shipped = share_dir("containers") / "serving" / "vllm"

    placed = {file.path: file.data for file in config.files}
    assert set(placed) == {
        "/opt/packager/serving/command.json",
        "/opt/packager/serving/launch.py",
        "/opt/packager/serving/inputs_adapter.py",
    }
    for name in ("launch.py", "inputs_adapter.py"):
        assert placed[f"/opt/packager/serving/{name}"] == (shipped / name).read_bytes()


def test_the_server_reaches_for_no_network() -> None:
    env = render(plan_of(model_of(TINY), LOCAL_CPU)).env

    assert env["HF_HUB_OFFLINE"] == env["TRANSFORMERS_OFFLINE"] == "1"
    assert env["VLLM_NO_USAGE_STATS"] == env["DO_NOT_TRACK"] == "1"


def test_a_cpu_compiles_nothing_and_reserves_a_cache_in_whole_gigabytes() -> None:
    rendered = command(plan_of(model_of(LLAMA_3_8B), "c7i.8xlarge"))

    assert "--enforce-eager" in rendered["argv"]
    assert rendered["env"] == {
        "VLLM_CPU_KVCACHE_SPACE": "5",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }


def test_a_gpu_is_told_the_share_of_memory_that_was_planned_with() -> None:
    rendered = command(plan_of(model_of(LLAMA_3_8B), "g5.12xlarge"))

    assert flag(rendered["argv"], "--gpu-memory-utilization") == "0.9"
    assert flag(rendered["argv"], "--tensor-parallel-size") == "2"
    assert "--enforce-eager" not in rendered["argv"]
    assert rendered["env"] == {}


def test_devices_without_a_copy_are_said() -> None:
    findings = plan_of(model_of(LLAMA_3_8B), "g5.12xlarge").findings

    assert "one copy of the model runs on 2 of 4 devices; 2 stay idle" in [
        finding.message for finding in findings
    ]


@given(
    served_name=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z"),
    max_batch=st.integers(1, 64),
    max_total_tokens=st.integers(2, 512),
)
def test_every_name_and_shape_reads_back_as_it_was_planned(
    served_name: str, max_batch: int, max_total_tokens: int
) -> None:
    argv = command(
        plan_of(
            model_of(TINY),
            LOCAL_CPU,
            served_name=served_name,
            max_batch=max_batch,
            max_total_tokens=max_total_tokens,
        )
    )["argv"]

    assert flag(argv, "--served-model-name") == served_name
    assert flag(argv, "--max-num-seqs") == str(max_batch)
    assert flag(argv, "--max-model-len") == str(max_total_tokens)
