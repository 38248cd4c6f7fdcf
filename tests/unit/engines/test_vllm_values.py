"""What vLLM's versions look up, or make classes of, behind their parser."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from packager.core.artifact import Artifacts
from packager.engines.schema import find_schema, read_size, shipped_versions
from packager.engines.vllm.check import check_draft_config, check_options
from packager.engines.vllm.family import VllmFamily
from tests.support.engine_plans import plan_for

CASES = [  # version, option, value, codes of errors: as each version's own code says
    ("0.14.0", "attention-backend", "FLASHINFER", []),
    ("0.14.0", "attention-backend", "flashinfer", []),
    ("0.14.0", "attention-backend", "NONSENSE", ["value-refused"]),
    ("0.14.0", "attention-backend", "TOKENSPEED_MLA", ["value-refused"]),
    ("0.27.1", "attention-backend", "TOKENSPEED_MLA", []),
    ("0.33.0", "reasoning-parser", "qwen3", []),
    ("0.33.0", "reasoning-parser", "none", []),
    ("0.27.1", "reasoning-parser", "nonsense", ["value-refused"]),
    ("0.14.0", "load-format", "runai_streamer", []),
    ("0.14.0", "load-format", "instanttensor", ["value-refused"]),
    ("0.33.0", "load-format", "instanttensor", []),
    ("0.33.0", "load-format", "AUTO", []),
    ("0.33.0", "additional-config", "nonsense", ["value-refused"]),
    ("0.33.0", "tokenizer-mode", "nonsense", ["value-refused"]),
    ("0.33.0", "tokenizer-mode", "slow", []),
    ("0.10.2", "distributed-executor-backend", "ray", []),
    ("0.27.1", "distributed-executor-backend", "my.module.Executor", []),
    ("0.27.1", "distributed-executor-backend", "nonsense", ["value-refused"]),
    ("0.33.0", "kv-cache-dtype", "fp8", []),
    ("0.33.0", "kv-cache-dtype", "fp9", ["value-refused"]),
    ("0.33.0", "config-format", "gguf", ["value-refused"]),
    ("0.27.1", "max-loras", "0", ["value-refused"]),
    ("0.27.1", "gpu-memory-utilization", "1.1", ["value-refused"]),
    ("0.27.1", "gpu-memory-utilization", "1", []),
    ("0.33.0", "max-num-batched-tokens", "0", ["value-refused"]),
    ("0.33.0", "max-num-batched-tokens", "2k", []),
    ("0.32.0", "mm-processor-device", "cuda", []),
    ("0.33.0", "video-pruning-rate", "1", []),  # looked at with multimodal models alone
    ("0.27.1", "lora-modules", "a=/x b=/y", ["value-refused"]),
    ("0.27.1", "lora-modules", '["a=/x","b=/y"]', []),
    ("0.27.1", "lora-modules", '[{"name":"a","path":"/x"}]', []),
    ("0.27.1", "lora-modules", '[{"name":"a"}]', ["value-refused"]),
    ("0.27.1", "cudagraph-capture-sizes", "[1,2,4]", []),
    ("0.27.1", "cudagraph-capture-sizes", '[1,"two"]', ["value-refused"]),
]


def errors(version: str, options: Mapping[str, str | bool]) -> list[str]:
    found = check_options("vLLM", options, find_schema("vllm", version))
    return [one.code for one in found if one.severity == "error" and one.code != "lora-unused"]


@pytest.mark.parametrize(
    ("version", "option", "value", "codes"), CASES, ids=lambda one: str(one) or "none"
)
def test_a_value_is_judged_as_the_version_does(
    version: str, option: str, value: str, codes: list[str]
) -> None:
    lora: dict[str, str | bool] = {"enable-lora": True} if "lora" in option else {}

    assert errors(version, {option: value, **lora}) == codes


@pytest.mark.parametrize(
    ("version", "option", "config", "codes"),
    [
        ("0.27.1", "compilation-config", {"nonsense": 1}, ["key-dropped"]),
        ("0.27.1", "compilation-config", 3, ["value-refused"]),
        ("0.27.1", "compilation-config", {"mode": 3}, []),
        ("0.27.1", "compilation-config", {"mode": "vllm_compile"}, []),
        ("0.27.1", "compilation-config", {"mode": 4}, ["value-refused"]),
        ("0.27.1", "compilation-config", {"cudagraph_mode": "full_and_piecewise"}, []),
        ("0.27.1", "compilation-config", {"cudagraph_mode": "fool"}, ["value-refused"]),
        ("0.27.1", "compilation-config", {"cudagraph_capture_sizes": [1, "8"]}, []),
        ("0.27.1", "compilation-config", {"cudagraph_capture_sizes": ["x"]}, ["value-refused"]),
        ("0.27.1", "compilation-config", {"pass_config": {"fuse": True}}, ["key-dropped"]),
        ("0.14.0", "kv-events-config", {"publsher": "zmq"}, ["key-dropped"]),  # dropped there
        ("0.33.0", "kv-events-config", {"hwm": "10", "publisher": "zmq"}, []),  # read as 10
        ("0.33.0", "kv-events-config", {"enable_kv_cache_events": "yes"}, []),
        ("0.33.0", "kv-events-config", {"enable_kv_cache_events": "maybe"}, ["value-refused"]),
        ("0.33.0", "kv-transfer-config", {"kv_connector": "Nxl"}, ["value-refused"]),
        (
            "0.33.0",
            "kv-transfer-config",
            {"kv_connector": "Mine", "kv_connector_module_path": "mine", "kv_role": "kv_both"},
            [],
        ),
        ("0.33.0", "structured-outputs-config", {"backend": "xgrammar"}, []),
        ("0.33.0", "structured-outputs-config", {"backend": "xgramar"}, ["value-refused"]),
        ("0.33.0", "attention-config", {"backend": "flash_attn"}, []),
        ("0.33.0", "attention-config", {"tokenspeed_mla_min_split_kv": 257}, ["value-refused"]),
        ("0.33.0", "eplb-config", {"window_size": 0}, ["value-refused"]),
        ("0.33.0", "hf-overrides", {"anything": {"goes": 1}}, []),
    ],
    ids=lambda one: json.dumps(one) if isinstance(one, dict) else str(one) or "none",
)
def test_json_is_judged_by_the_class_that_the_version_makes_of_it(
    version: str, option: str, config: object, codes: list[str]
) -> None:
    found = errors(version, {option: json.dumps(config)})

    assert [code for code in found if code in {"key-dropped", "value-refused"}][:1] == codes


def test_every_version_has_the_names_it_looks_up_and_the_classes_it_makes() -> None:
    for version in shipped_versions("vllm"):
        if version in {"0.7.3", "0.8.4"}:
            continue  # of LMI alone, by their own classes
        schema = find_schema("vllm", version)
        assert "hermes" in schema.options["tool-call-parser"].values, version
        assert schema.options["tool-call-parser"].opened_by == "tool-parser-plugin"
        assert "safetensors" in schema.options["load-format"].values, version
        for name in ("compilation-config", "kv-transfer-config", "speculative-config"):
            config = schema.options[name].config
            assert config is not None and config.lax and len(config.fields) > 8, (version, name)


def test_a_speculative_configuration_is_told_of_once() -> None:
    asked = {"method": "nonsense", "modell": "/x", "num_speculative_tokens": 3}
    schema = find_schema("vllm", "0.27.1")
    found = [
        *check_options("vLLM", {"speculative-config": json.dumps(asked)}, schema),
        *check_draft_config("vLLM", asked, schema),
    ]

    errors = [one.code for one in found if one.severity == "error"]
    assert sorted(errors) == ["draft-unsupported", "key-dropped"]


@pytest.mark.parametrize(
    ("asked", "rendered"),
    [
        (("disable-prefix-caching", "true"), "--no-enable-prefix-caching"),
        (("disable-prefix-caching", "false"), "--enable-prefix-caching"),
        (("enable-sliding-window", "true"), "--no-disable-sliding-window"),
        (("enable_prefix_caching", "true"), "--enable-prefix-caching"),
    ],
)
def test_an_opposite_name_of_a_switch_turns_it_off(asked: tuple[str, str], rendered: str) -> None:
    plan = plan_for("vllm-0.33", engine_options=(asked,))
    family = VllmFamily()
    files = family.render(plan, Artifacts(model=())).files
    (file,) = [one for one in files if one.path.endswith("command.json")]

    assert rendered in json.loads(file.data)["argv"]
    assert not [one for one in family.check(plan) if one.severity == "error"]


def test_a_dotted_name_of_json_is_told_how_to_be_given() -> None:
    schema = find_schema("vllm", "0.33.0")

    (found,) = check_options(
        "vLLM", {"compilation-config.pass-config.eliminate-noops": True}, schema
    )
    assert found.code == "key-dropped"
    assert found.hint == 'write compilation-config={"pass_config":{"eliminate_noops":true}}'
    (mode,) = check_options("vLLM", {"compilation-config.mode": "3"}, schema)
    assert mode.hint == 'write compilation-config={"mode":3}'
    (other,) = check_options("vLLM", {"seed.x": "3"}, schema)
    assert other.message == "vLLM 0.33.0 has no option 'seed.x'"


def test_a_number_that_is_refused_is_not_compared_with_others() -> None:
    asked = {"max-num-batched-tokens": "0", "max-num-seqs": "256"}

    assert errors("0.27.1", asked) == ["value-refused"]


def test_letters_of_sizes_are_powers_of_a_thousand_or_of_1024() -> None:
    assert [read_size(text) for text in ("7", "2k", "2K", "1.5m")] == [7, 2000, 2048, 1_500_000]
