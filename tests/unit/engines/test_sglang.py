from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.containers import find_container
from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.engines.schema import find_schema, shipped_versions
from packager.engines.sglang.check import check_options
from packager.engines.sglang.family import SglangFamily
from packager.planning.planner import make_plan
from tests.support.engine_plans import CONTAINERS, EAGLE3, FP8_AT_LOAD, MEDUSA_V1, NGRAM, plan_for
from tests.support.headers import LLAMA_3_8B, facts_of, model_of


def render(plan: Plan) -> ServingConfig:
    return SglangFamily().render(plan, Artifacts(model=()))


def errors(plan: Plan) -> list[str]:
    return [finding.code for finding in SglangFamily().check(plan) if finding.severity == "error"]


def of_version(version: str, **changes: Any) -> Plan:
    plan = plan_for("sglang", **changes)
    return replace(plan, container=replace(plan.container, engine_version=version))


def hints(plan: Plan) -> list[str]:
    return [finding.hint for finding in SglangFamily().check(plan) if finding.severity == "error"]


def told(plan: Plan) -> dict[str, str]:
    prefix = "SM_SGLANG_"
    env = render(plan).env
    return {key.removeprefix(prefix): env[key] for key in env if key.startswith(prefix)}


def test_the_plan_is_spelled_in_variables() -> None:
    assert told(plan_for("sglang")) == {
        "MODEL_PATH": "/opt/packager/model",
        "SERVED_MODEL_NAME": "chat",
        "DTYPE": "bfloat16",
        "TP_SIZE": "4",
        "CONTEXT_LENGTH": "8192",
        "MAX_RUNNING_REQUESTS": "16",
        "MEM_FRACTION_STATIC": "0.78",
    }
    assert errors(plan_for("sglang")) == []


def test_an_eagle_head_proposes_a_chain() -> None:
    read = told(plan_for("sglang", draft=EAGLE3, weights="mounted"))

    assert read["SPECULATIVE_ALGORITHM"] == "EAGLE3"
    assert read["SPECULATIVE_DRAFT_MODEL_PATH"].startswith("/opt/ml/additional-model-data-sources")
    assert read["SPECULATIVE_NUM_STEPS"] == "3"
    assert read["SPECULATIVE_EAGLE_TOPK"] == "1"
    assert read["SPECULATIVE_NUM_DRAFT_TOKENS"] == "4"


def test_n_grams_need_no_draft_model() -> None:
    read = told(plan_for("sglang", draft=NGRAM))

    assert read["SPECULATIVE_ALGORITHM"] == "NGRAM"
    assert "SPECULATIVE_DRAFT_MODEL_PATH" not in read


def test_everything_decided_has_its_option() -> None:
    read = told(plan_for("sglang", pp_degree=2, kv_dtype="fp8", max_prefill_tokens=2048))

    assert (read["PP_SIZE"], read["KV_CACHE_DTYPE"]) == ("2", "fp8_e4m3")
    assert read["CHUNKED_PREFILL_SIZE"] == "2048"


UPSTREAM = ContainerFacts(
    family="sglang",
    kind="nvidia",
    engine="sglang",
    engine_version="0.5.17",
    version="v0.5.17",
    variant="upstream",
    default_base="",
)


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(CONTAINERS, "upstream", UPSTREAM)
    return "upstream"


def argv_of(plan: Plan) -> list[str]:
    argv: list[str] = json.loads(render(plan).files[0].data)["argv"]
    return argv


def test_upstreams_image_gets_a_command_without_vllms_middleware(upstream: str) -> None:
    plan = plan_for(upstream, engine_options=(("disable-radix-cache", "true"),))
    command, launcher = render(plan).files

    argv = json.loads(command.data)["argv"]
    assert argv[:3] == ["python3", "-m", "sglang.launch_server"]
    assert argv[argv.index("--port") + 1] == "8080"
    assert "--disable-radix-cache" in argv
    assert launcher.path.endswith("launch.py")


# What users set: SGLang's documentation, cookbooks and issues.  All were refused as unknown.
REAL: tuple[tuple[str, str], ...] = (
    ("lora-paths", "sql=/opt/ml/model/sql"),
    ("max-loras-per-batch", "4"),
    ("lora-backend", "triton"),
    ("lora-target-modules", "q_proj"),
    ("max-lora-rank", "64"),
    ("page-size", "16"),
    ("json-model-override-args", '{"rope_theta": 1000000}'),
    ("attention-backend", "flashinfer"),
    ("sampling-backend", "pytorch"),
    ("grammar-backend", "xgrammar"),
    ("moe-runner-backend", "triton"),
    ("cuda-graph-max-bs", "64"),
    ("cuda-graph-bs", "8"),
    ("disable-overlap-schedule", "true"),
    ("enable-mixed-chunk", "true"),
    ("enable-hierarchical-cache", "true"),
    ("hicache-ratio", "2.0"),
    ("watchdog-timeout", "600"),
    ("stream-interval", "4"),
    ("max-queued-requests", "128"),
    ("tool-call-parser", "qwen25"),
    ("reasoning-parser", "qwen3"),
    ("schedule-policy", "lpm"),
    ("load-format", "safetensors"),
    ("torch-compile-max-bs", "16"),
    ("log-requests-level", "2"),
    ("bucket-time-to-first-token", "0.5"),
    ("cpu-offload-gb", "8"),
    ("sleep-on-idle", "true"),
)


SIZE_HINT = "write a whole number, or one such as 4Ki"
JSON_HINT = 'write JSON, such as {"key": 1}, with quotes around keys and texts'


@pytest.mark.parametrize("version", ["0.5.5", "0.5.8", "0.5.17"])
def test_real_options_of_sglang_are_no_longer_refused_as_unknown(version: str) -> None:
    refused = {
        name: codes
        for name, value in REAL
        if (codes := errors(of_version(version, engine_options=((name, value),))))
    }

    assert refused == {}


@pytest.mark.parametrize(
    ("name", "value", "code", "hint"),
    [
        ("attention-backend", "flashinfre", "value-refused", "did you mean 'flashinfer'?"),
        ("tool-call-parser", "qwen-25", "value-refused", "did you mean 'qwen25'?"),
        ("reasoning-parser", "deepseek_r1", "value-refused", "did you mean 'deepseek-r1'?"),
        ("schedule-policy", "fcsf", "value-refused", "did you mean 'fcfs'?"),
        ("load-format", "safetensor", "value-refused", "did you mean 'safetensors'?"),
        ("enabel-lora", "true", "key-dropped", "did you mean 'enable-lora'?"),
        ("page-size", "sixteen", "value-refused", "write a whole number"),
        ("hicache-ratio", "nearly", "value-refused", "write a number, such as 0.5"),
        ("enable-lora", "yes", "value-refused", "write true or false"),
        ("preferred-sampling-params", "{temperature: 1}", "value-refused", JSON_HINT),
        ("json-model-override-args", "{rope_theta: 1}", "value-refused", JSON_HINT),
        ("max-total-tokens", "8 thousand", "value-refused", SIZE_HINT),
        ("log-requests-level", "4", "value-refused", "it takes 0, 1, 2, 3"),
        ("download-dir", "-jinja", "value-refused", "choose another value"),
        ("download-dir", "", "value-refused", "choose another value"),
        ("lora-paths", "[]", "value-refused", "choose another value"),
    ],
)
def test_an_option_that_sglangs_parser_refuses_is_refused_before(
    name: str, value: str, code: str, hint: str
) -> None:
    plan = plan_for("sglang", engine_options=((name, value),))

    assert (errors(plan), hints(plan)) == ([code], [hint])


LOOKED_UP = (
    ("0.5.5", "quantization", "bitsandbytes", ""),
    ("0.5.17", "quantization", "marlin", ""),
    ("0.5.23", "quantization", "gptq", ""),
    ("0.5.17", "chat-template", "chatlm", "did you mean 'chatml'?"),
    ("0.5.17", "completion-template", "star_code", "did you mean 'star_coder'?"),
    ("0.5.17", "eplb-algorithm", "deepsek", "did you mean 'deepseek'?"),
    ("0.5.5", "eplb-algorithm", "elasticity_aware_hierarchical", ""),
    ("0.5.5", "model-impl", "mindspore", ""),
    ("0.5.8", "dllm-algorithm", "JointThreshold", ""),
    ("0.5.17", "modelopt-quant", "fp4", ""),
    ("0.5.17", "offload-mode", "gpu", ""),
    ("0.5.17", "torchao-config", "int4wo-100", ""),
    ("0.5.17", "log-level", "verbose", ""),
    ("0.5.17", "log-level", "INFO", ""),
    ("0.5.9", "speculative-draft-attention-backend", "fa4", ""),
)


@pytest.mark.parametrize(
    ("version", "name", "value", "hint"), LOOKED_UP, ids=lambda one: str(one).partition(" ")[0]
)
def test_a_name_that_sglang_looks_up_after_its_parser_is_refused(
    version: str, name: str, value: str, hint: str
) -> None:
    schema = find_schema("sglang", version)
    (finding,) = check_options({name: value}, schema, one_word=True)

    assert finding.code == "value-refused"
    assert value in finding.message
    assert not hint or finding.hint == hint


@pytest.mark.parametrize(
    ("version", "name", "value"),
    [
        ("0.5.8", "quantization", "bitsandbytes"),
        ("0.5.17", "quantization", "unquant"),
        ("0.5.17", "chat-template", "chatml"),
        ("0.5.17", "chat-template", "/opt/templates/mine.jinja"),
        ("0.5.17", "chat-template", "mine.jinja"),
        ("0.5.10", "eplb-algorithm", "elasticity_aware_hierarchical"),
        ("0.5.6", "torchao-config", "gemlite-4-64"),
        ("0.5.17", "torchao-config", "int4wo-128"),
        ("0.5.17", "speculative-draft-attention-backend", "fa4"),
        ("0.5.17", "kv-events-config", '{"publisher": "zmq", "topic": "kv"}'),
        ("0.5.17", "json-model-override-args", '{"rope_theta": 1000000}'),
        ("0.5.17", "cuda-graph-config", '{"decode": {"backend": "full", "max_bs": null}}'),
        ("0.5.17", "default-chat-template-kwargs", '{"enable_thinking": false}'),
        ("0.5.17", "preferred-sampling-params", '{"temperature": 0.6, "top_p": 0.95}'),
        ("0.5.17", "limit-mm-data-per-request", '{"image": 4}'),
    ],
    ids=lambda one: str(one).partition(" ")[0],
)
def test_a_name_or_json_that_sglang_knows_is_taken(version: str, name: str, value: str) -> None:
    found = check_options({name: value}, find_schema("sglang", version), one_word=True)

    assert [finding for finding in found if finding.severity == "error"] == []


@pytest.mark.parametrize(
    ("version", "name", "value", "words"),
    [
        ("0.5.17", "cuda-graph-config", '{"extend": {}}', "no 'extend' in 'cuda-graph-config'"),
        (
            "0.5.17",
            "cuda-graph-config",
            '{"decode": {"backend": "ful"}}',
            "refuses \"ful\" for 'cuda-graph-config.decode.backend'",
        ),
        (
            "0.5.14",
            "cuda-graph-config",
            '{"prefill": {"backend": "full"}}',
            "refuses \"full\" for 'cuda-graph-config.prefill.backend'",
        ),
        ("0.5.17", "cuda-graph-config", '{"decode": {"max_bs": "4"}}', "which is of type int"),
        ("0.5.17", "kv-events-config", '{"port": 5557}', "no 'port' in 'kv-events-config'"),
        ("0.5.17", "kv-events-config", '{"publisher": "nats"}', 'refuses "nats"'),
        ("0.5.17", "kv-events-config", '{"format": "dynamo"}', "no 'format'"),
        ("0.5.17", "kv-events-config", "tcp://*:5557", "which is of type json"),
        ("0.5.5", "model-loader-extra-config", '{"threads": 8}', "no 'threads'"),
        ("0.5.5", "model-loader-extra-config", '{"num_threads": "8"}', "which is of type int"),
        ("0.5.17", "limit-mm-data-per-request", '{"smell": 1}', "no 'smell'"),
        ("0.5.17", "json-model-override-args", "[1]", "wants a JSON object"),
        ("0.5.17", "default-chat-template-kwargs", "[1]", "wants a JSON object"),
        ("0.5.5", "preferred-sampling-params", '{"temprature": 1}', "no 'temprature'"),
        ("0.5.17", "mm-process-config", '{"image": 1}', "which is of type object"),
    ],
    ids=lambda one: str(one).partition(" ")[0],
)
def test_json_that_sglang_refuses_or_passes_over_is_refused(
    version: str, name: str, value: str, words: str
) -> None:
    schema = find_schema("sglang", version)
    (finding,) = check_options({name: value}, schema, one_word=True)

    assert finding.severity == "error"
    assert words in finding.message


def test_algorithms_in_small_letters_are_for_parsers_that_take_any_text() -> None:
    for version, taken in (("0.5.11", False), ("0.5.12", True), ("0.5.23", True)):
        schema = find_schema("sglang", version)
        found = list(check_options({"speculative-algorithm": "ngram"}, schema, one_word=True))
        assert (found == []) is taken, version


def test_options_are_those_of_the_containers_own_version() -> None:
    cases = (("0.5.5", "hybrid-kvcache-ratio", "0.5"), ("0.5.23", "rl-quant-profile", "x"))
    for version, name, value in cases:
        options = find_schema("sglang", version).options
        assert name in options
        assert errors(of_version(version, engine_options=((name, value),))) == []
    assert errors(of_version("0.5.17", engine_options=(("hybrid-kvcache-ratio", "0.5"),))) == [
        "key-dropped"
    ]
    for version, codes in (("0.5.9", ["value-refused"]), ("0.5.10", [])):
        plan = of_version(version, engine_options=(("max-total-tokens", "64Ki"),))
        assert errors(plan) == codes, version


def test_a_version_without_a_table_takes_the_nearest_older_one_and_says_so() -> None:
    found = [
        (finding.severity, finding.message)
        for finding in SglangFamily().check(of_version("0.5.20"))
        if finding.code == "options-unproven"
    ]

    assert found == [
        ("note", "the options of SGLang 0.5.20 are not known here; those of 0.5.17 are used")
    ]
    assert not [f for f in SglangFamily().check(plan_for("sglang")) if f.code == "options-unproven"]


@pytest.mark.parametrize(
    ("version", "kind", "codes"),
    [
        ("0.5.10", "dflash", ["draft-unsupported"]),
        ("0.5.11", "dflash", []),
        ("0.5.5", "eagle", []),
        ("0.5.5", "draft_model", []),
        ("0.5.23", "eagle", []),
        ("0.5.23", "suffix", ["draft-unsupported"]),
    ],
)
def test_a_draft_needs_an_algorithm_that_the_version_has(
    version: str, kind: str, codes: list[str]
) -> None:
    assert errors(of_version(version, draft=replace(EAGLE3, kind=kind))) == codes


@pytest.mark.parametrize("version", shipped_versions("sglang"))
def test_everything_that_a_plan_renders_is_in_every_versions_table(version: str) -> None:
    whole: dict[str, Any] = {
        "pp_degree": 2,
        "dp_degree": 2,
        "kv_dtype": "fp8",
        "max_prefill_tokens": 2048,
        "quantization": FP8_AT_LOAD,
    }

    assert errors(of_version(version, **whole)) == []
    for draft in (EAGLE3, NGRAM):
        assert errors(of_version(version, draft=draft, weights="mounted")) == []


@pytest.mark.parametrize(
    "name", ["tensor-parallel-size", "model", "host", "port", "config", "expert_parallel_size"]
)
def test_an_option_of_the_plan_is_refused_by_any_of_its_names(name: str) -> None:
    assert errors(plan_for("sglang", engine_options=((name, "4"),))) == ["options-conflict"]


def test_several_values_are_several_words_of_a_command(upstream: str) -> None:
    given = (("cuda-graph-bs", "[1, 2, 4]"), ("lora-paths", '["a=/a", {"lora_name": "b"}]'))
    plan = plan_for(upstream, engine_options=given)
    argv = argv_of(plan)

    assert errors(plan) == []
    place = argv.index("--cuda-graph-bs")
    assert argv[place : place + 4] == ["--cuda-graph-bs", "1", "2", "4"]
    place = argv.index("--lora-paths")
    assert argv[place + 1 : place + 3] == ["a=/a", '{"lora_name": "b"}']
    wrong = plan_for(upstream, engine_options=(("cuda-graph-bs", '[1, "x"]'),))
    assert errors(wrong) == ["value-refused"]


def test_several_values_cannot_go_through_a_variable_that_becomes_one_word() -> None:
    several = plan_for("sglang", engine_options=(("cuda-graph-bs", "[1, 2]"),))
    one = plan_for("sglang", engine_options=(("cuda-graph-bs", "[8]"),))

    assert (errors(several), hints(several)) == (
        ["value-refused"],
        ["give one, or use upstream's image"],
    )
    assert errors(one) == []
    assert told(one)["CUDA_GRAPH_BS"] == "8"


def test_a_switch_that_is_on_by_itself_is_turned_off_by_its_negation(upstream: str) -> None:
    """`false` was left out by the image, and the switch stayed on."""
    off = (("dllm-fdfo", "false"),)

    assert told(plan_for("sglang", engine_options=off))["NO_DLLM_FDFO"] == "true"
    assert "DLLM_FDFO" not in told(plan_for("sglang", engine_options=off))
    assert "--no-dllm-fdfo" in argv_of(plan_for(upstream, engine_options=off))
    assert (
        told(plan_for("sglang", engine_options=(("enable-lora", "false"),)))["ENABLE_LORA"]
        == "false"
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"draft": MEDUSA_V1}, "draft-unsupported"),
        ({"served_name": "true"}, "value-refused"),
        ({"engine_options": (("tp_size", "2"),)}, "options-conflict"),
        ({"engine_options": (("max-runing-requests", "2"),)}, "key-dropped"),
        ({"engine_options": (("speculative-algorithm", "medusa"),)}, "value-refused"),
    ],
    ids=str,
)
def test_what_sglang_would_refuse_is_an_error(changes: dict[str, Any], code: str) -> None:
    assert code in errors(plan_for("sglang", **changes))


@pytest.mark.parametrize("version", ["0.5.5", "0.5.8", "0.5.17"])
@pytest.mark.parametrize("pp_degree", [2, 4])
def test_a_pipeline_that_is_asked_for_is_planned_and_rendered(version: str, pp_degree: int) -> None:
    facts = facts_of(
        model_of(LLAMA_3_8B),
        "g5.12xlarge",
        family="sglang",
        pp_degree=pp_degree,
        tp_degree=4 // pp_degree,
    )
    container = find_container("sglang", "nvidia", version)
    plan = make_plan(replace(facts, container=container), SglangFamily())

    assert plan.pp_degree == pp_degree
    assert told(plan)["PP_SIZE"] == str(pp_degree)
    assert errors(plan) == []
