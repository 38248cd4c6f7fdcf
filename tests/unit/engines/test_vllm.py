from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.engines.schema import find_schema
from packager.engines.vllm.check import check_sagemaker_env
from packager.engines.vllm.family import VllmFamily
from packager.engines.vllm.render import command as command_line
from packager.engines.vllm.render import sagemaker_env
from packager.share import share_dir
from tests.support.engine_plans import AWQ, EAGLE3, FP8_AT_LOAD, MEDUSA_V1, NGRAM, plan_for
from tests.support.headers import LLAMA_3_8B, LOCAL_CPU, TINY, model_of, plan_of


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
        "/opt/packager/serving/sitecustomize.py",
    }
    for name in ("launch.py", "inputs_adapter.py", "sitecustomize.py"):
        assert placed[f"/opt/packager/serving/{name}"] == (shipped / name).read_bytes()


@pytest.mark.parametrize(
    ("plan", "there"),
    [
        (plan_of(model_of(TINY), LOCAL_CPU), True),
        (plan_of(model_of(LLAMA_3_8B), "c7i.8xlarge"), True),
        (plan_for("vllm-upstream"), False),
        (plan_for("vllm"), False),
    ],
    ids=["this-machine", "rented-processors", "gpu-by-command", "gpu-by-environment"],
)
def test_an_engine_on_processors_may_use_amx_and_others_are_left_alone(
    plan: Plan, there: bool
) -> None:
    placed = {file.path for file in render(plan).files}

    assert ("/opt/packager/serving/sitecustomize.py" in placed) == there


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
        "TORCH_COMPILE_DISABLE": "1",
    }


def test_upstreams_image_is_told_the_share_of_memory_that_was_planned_with() -> None:
    rendered = command(plan_for("vllm-upstream"))

    assert flag(rendered["argv"], "--gpu-memory-utilization") == "0.9"
    assert flag(rendered["argv"], "--tensor-parallel-size") == "4"
    assert "--enforce-eager" not in rendered["argv"]
    assert rendered["env"] == {}


def test_images_for_sagemaker_are_configured_by_variables_alone() -> None:
    config = render(plan_for("vllm"))

    assert (config.files, config.entrypoint) == ((), ())
    assert {k: v for k, v in config.env.items() if k.startswith("SM_VLLM_")} == {
        "SM_VLLM_MODEL": "/opt/packager/model",
        "SM_VLLM_SERVED_MODEL_NAME": "chat",
        "SM_VLLM_DTYPE": "bfloat16",
        "SM_VLLM_TENSOR_PARALLEL_SIZE": "4",
        "SM_VLLM_MAX_MODEL_LEN": "8192",
        "SM_VLLM_MAX_NUM_SEQS": "16",
        "SM_VLLM_GPU_MEMORY_UTILIZATION": "0.9",
        "SM_VLLM_SHUTDOWN_TIMEOUT": "25",
        "SM_VLLM_DISABLE_ACCESS_LOG_FOR_ENDPOINTS": "/health,/ping",
    }


def on_version(container: str, version: str, **changes: Any) -> Plan:
    plan = plan_for(container, **changes)
    return replace(plan, container=replace(plan.container, engine_version=version))


def shutdown_timeouts(plan: Plan) -> list[str]:
    """Every value of the option that the server is given, whichever way."""
    config = render(plan)
    if config.files:
        argv = command(plan)["argv"]
        return [argv[at + 1] for at, word in enumerate(argv) if word == "--shutdown-timeout"]
    return [value for name, value in config.env.items() if name == "SM_VLLM_SHUTDOWN_TIMEOUT"]


@pytest.mark.parametrize("container", ["vllm", "vllm-upstream", "vllm-cpu"])
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.10.2", []),
        ("0.17.0", []),
        ("0.18.0rc1", []),
        ("0.18.0", ["25"]),
        ("0.18.1", ["25"]),
        ("0.27.1", ["25"]),
        ("0.32.0", ["25"]),
        ("0.33.1.dev123+gabc", ["25"]),
        ("0.7.3", []),  # older than what is known
        ("nightly", []),  # whatever its options are
    ],
)
def test_running_requests_may_end_after_sigterm_where_the_version_can_let_them(
    container: str, version: str, expected: list[str]
) -> None:
    assert shutdown_timeouts(on_version(container, version)) == expected


@pytest.mark.parametrize("container", ["vllm", "vllm-upstream", "vllm-cpu"])
@pytest.mark.parametrize("spelled", ["shutdown-timeout", "shutdown_timeout", "Shutdown-Timeout"])
@pytest.mark.parametrize("asked", ["0", "300"])
def test_how_long_requests_may_end_is_what_was_asked_for(
    container: str, spelled: str, asked: str
) -> None:
    plan = plan_for(container, engine_options=((spelled, asked),))

    assert errors(plan) == []
    assert shutdown_timeouts(plan) == [asked]


@pytest.mark.parametrize(
    ("version", "asked", "code"),
    [
        ("0.27.1", "soon", "value-refused"),
        ("0.27.1", "2.5", "value-refused"),
        ("0.17.0", "60", "key-dropped"),
    ],
)
def test_a_shutdown_timeout_that_the_version_refuses_is_an_error(
    version: str, asked: str, code: str
) -> None:
    plan = on_version("vllm-upstream", version, engine_options=(("shutdown-timeout", asked),))

    assert code in errors(plan)


def test_a_switch_is_turned_off_by_its_negation_because_false_is_left_out() -> None:
    off = plan_for("vllm", engine_options=(("enable-prefix-caching", "false"),))
    on = plan_for("vllm", engine_options=(("enforce_eager", "true"),))

    assert render(off).env["SM_VLLM_NO_ENABLE_PREFIX_CACHING"] == "true"
    assert "SM_VLLM_ENABLE_PREFIX_CACHING" not in render(off).env
    assert render(on).env["SM_VLLM_ENFORCE_EAGER"] == "true"
    upstream = plan_for("vllm-upstream", engine_options=(("enable-prefix-caching", "false"),))
    assert "--no-enable-prefix-caching" in command(upstream)["argv"]


def test_everything_decided_has_its_option() -> None:
    plan = plan_for(
        "vllm-upstream",
        pp_degree=2,
        tp_degree=2,
        kv_dtype="fp8",
        max_prefill_tokens=2048,
        quantization=FP8_AT_LOAD,
        draft=NGRAM,
    )
    argv = command(plan)["argv"]

    assert flag(argv, "--pipeline-parallel-size") == "2"
    assert flag(argv, "--kv-cache-dtype") == "fp8"
    assert flag(argv, "--max-num-batched-tokens") == "2048"
    assert flag(argv, "--quantization") == "fp8"
    assert json.loads(flag(argv, "--speculative-config")) == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
    }


def test_a_quantized_checkpoint_says_so_itself() -> None:
    assert "--quantization" not in command(plan_for("vllm-upstream", quantization=AWQ))["argv"]


def test_mounted_weights_and_draft_are_where_sagemaker_puts_them() -> None:
    config = render(plan_for("vllm", weights="mounted", draft=EAGLE3))

    assert config.env["SM_VLLM_MODEL"] == config.model_dir == "/opt/ml/model"
    assert json.loads(config.env["SM_VLLM_SPECULATIVE_CONFIG"])["model"] == config.draft_dir


def test_images_that_split_the_command_again_get_json_in_quotes() -> None:
    value = render(plan_for("vllm-0.23", draft=NGRAM)).env["SM_VLLM_SPECULATIVE_CONFIG"]

    (word,) = shlex.split(value)
    assert json.loads(word)["method"] == "ngram"


@pytest.mark.parametrize(
    ("asked", "rendered"),
    [
        ("a b", "'a b'"),  # the second word would be taken for the model
        ("it's", "'it'\"'\"'s'"),
        ('{"stop":"it\'s"}', '\'{"stop":"it\'"\'"\'s"}\''),
        ("back\\slash", "'back\\slash'"),
        ("https://collector:4317", "https://collector:4317"),
    ],
    ids=["space", "quote", "quote in JSON", "backslash", "one word"],
)
def test_images_that_split_the_command_again_get_every_value_as_one_word(
    asked: str, rendered: str
) -> None:
    options = {"otlp-traces-endpoint": asked}

    schema = find_schema("vllm", "0.23.0")

    env = sagemaker_env(options, "0.23.0", schema)
    assert env == {"SM_VLLM_OTLP_TRACES_ENDPOINT": rendered}
    later = sagemaker_env(options, "0.27.1", schema)
    assert later == {"SM_VLLM_OTLP_TRACES_ENDPOINT": asked}


SIZES = ("cudagraph-capture-sizes", "[1,2,4]")
MODULES = ("lora-modules", '["a=/x","b=/my y"]')


@pytest.mark.parametrize(
    ("version", "asked", "rendered"),
    [
        ("0.23.0", SIZES, "1 2 4"),
        ("0.23.0", MODULES, "a=/x 'b=/my y'"),
        ("0.27.1", ("cudagraph-capture-sizes", "[8]"), "8"),
        ("0.28.0", SIZES, "[1,2,4]"),
        ("0.27.1", ("allowed-origins", '["*"]'), '["*"]'),  # a list is its value
    ],
)
def test_several_values_are_what_the_entrypoint_of_the_image_makes_words_of(
    version: str, asked: tuple[str, str], rendered: str
) -> None:
    schema = find_schema("vllm", version)

    assert list(sagemaker_env(dict([asked]), version, schema).values()) == [rendered]
    assert not list(check_sagemaker_env(dict([asked]), version, schema))


def test_several_values_are_refused_where_the_image_passes_one() -> None:
    schema = find_schema("vllm", "0.27.1")

    (finding,) = check_sagemaker_env(dict([SIZES]), "0.27.1", schema)
    assert (finding.severity, finding.code) == ("error", "value-refused")
    assert "passes one value for 'cudagraph-capture-sizes', and 3 are given" in finding.message


@pytest.mark.parametrize(
    ("asked", "words"),
    [(SIZES, ["1", "2", "4"]), (MODULES, ["a=/x", "b=/my y"]), (("seed", "7"), ["7"])],
)
def test_upstreams_command_has_a_word_for_each_value(
    asked: tuple[str, str], words: list[str]
) -> None:
    options = {"model": "/m", asked[0]: asked[1]}
    argv = command_line(options, find_schema("vllm", "0.33.0"), version="0.33.0")

    assert argv[3:] == [f"--{asked[0]}", *words]


@pytest.mark.parametrize(
    ("version", "start"),
    [
        ("0.24.0", ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/m"]),
        ("0.31.0", ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/m"]),
        ("0.32.0", ["vllm", "serve", "/m"]),
        ("0.34.0.dev1", ["vllm", "serve", "/m"]),
    ],
)
def test_the_server_is_started_by_what_the_version_wants(version: str, start: list[str]) -> None:
    argv = command_line({"model": "/m"}, find_schema("vllm", version), version=version)

    assert argv == start


def errors(plan: Plan) -> list[str]:
    return [finding.code for finding in VllmFamily().check(plan) if finding.severity == "error"]


def test_medusa_v2_heads_are_refused_because_they_need_the_models_lm_head() -> None:
    assert errors(plan_for("vllm", draft=replace(MEDUSA_V1, version="v2"))) == ["draft-unsupported"]


@pytest.mark.parametrize(
    ("container", "option", "found"),
    [
        ("vllm-0.33", ("monokernel", "true"), []),
        ("vllm-0.33", ("sleep-mode-backend", "cumem"), []),
        ("vllm-0.33", ("watchdog-config", '{"timeout": 60}'), []),
        ("vllm-0.33", ("reasoning-effort-map", '{"low": "none"}'), []),
        ("vllm-0.33", ("watchdog-config", "60s"), ["value-refused"]),
        ("vllm-0.33", ("watchdog-configs", "{}"), ["key-dropped"]),
        ("vllm-upstream", ("monokernel", "true"), ["key-dropped"]),
        ("vllm-upstream", ("watchdog-config", "{}"), ["key-dropped"]),
    ],
    ids=lambda one: "=".join(one) if isinstance(one, tuple) else None,
)
def test_options_that_came_with_vllm_0_33_are_refused_before_it_alone(
    container: str, option: tuple[str, str], found: list[str]
) -> None:
    assert errors(plan_for(container, engine_options=(option,))) == found


def test_medusa_was_taken_out_of_vllm_0_33() -> None:
    assert errors(plan_for("vllm-upstream", draft=MEDUSA_V1)) == []
    assert errors(plan_for("vllm-0.33", draft=MEDUSA_V1)) == ["draft-unsupported"]


@pytest.mark.parametrize(
    ("container", "changes", "code"),
    [
        ("vllm", {"engine_options": (("max-sequence-len", "9"),)}, "key-dropped"),
        ("vllm", {"engine_options": (("max_model_len", "9"),)}, "options-conflict"),
        ("vllm", {"engine_options": (("block-size", "many"),)}, "value-refused"),
        ("vllm", {"engine_options": (("headless", "false"),)}, "value-refused"),
        ("vllm", {"engine_options": (("--bad name", "1"),)}, "value-refused"),
        ("vllm", {"served_name": "true"}, "value-refused"),
        ("vllm", {"kv_dtype": "int3"}, "value-refused"),
        ("vllm-cpu", {"quantization": replace(FP8_AT_LOAD, method="fp9")}, "value-refused"),
        ("vllm", {"weights": "mounted", "served_name": "n" * 1025}, "sagemaker-limit"),
    ],
    ids=str,
)
def test_what_vllm_or_its_image_would_refuse_is_an_error(
    container: str, changes: dict[str, Any], code: str
) -> None:
    assert code in errors(plan_for(container, **changes))


def test_the_nearest_name_is_suggested() -> None:
    plan = plan_for("vllm", engine_options=(("max-num-seq", "9"),))

    assert "did you mean 'max-num-seqs'?" in [finding.hint for finding in VllmFamily().check(plan)]


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
