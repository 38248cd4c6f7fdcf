"""What SGLang checks of several options together, and of options with the model and the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.core.techniques import Quantization
from packager.engines.rules import plan_facts
from packager.engines.schema import find_schema
from packager.engines.sglang.check import check_options
from packager.engines.sglang.family import SglangFamily
from packager.findings import Finding
from tests.support.engine_plans import AWQ, EAGLE3, NGRAM, PACKED, plan_for

EAGLE = {"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/draft"}
LORA = {"enable-lora": "true", "max-lora-rank": "16", "lora-target-modules": "q_proj"}
DP = {"enable-dp-attention": "true", "dp-size": "2", "tp-size": "4"}
HOPPER = {"compute_capability": 9.0}
BLACKWELL = {"compute_capability": 10.0}
T4 = {"compute_capability": 7.5}
MLA = {"attention": "mla"}
HEADS = {"attention": "heads"}


def found(version: str, settings: dict[str, str], **facts: Any) -> list[Finding]:
    schema = find_schema("sglang", version)
    findings = check_options(settings, schema, facts, version=version, one_word=False)
    return [finding for finding in findings if finding.severity == "error"]


CASES: list[tuple[str, dict[str, str], dict[str, Any], str]] = [
    ("0.5.17", {"enable-lora": "true"}, {}, "refuses 'enable-lora' without 'lora-paths'"),
    ("0.5.17", {**LORA, "max-loaded-loras": "2"}, {}, "'max-loaded-loras' 2 below"),
    ("0.5.17", {**LORA, "max-loras-per-batch": "0"}, {}, "'max-loras-per-batch' 0"),
    ("0.5.17", {**LORA, **EAGLE}, {}, "n-grams only beside LoRA"),
    ("0.5.17", LORA | {"lora-target-modules": '["all", "q_proj"]'}, {}, "all beside others"),
    ("0.5.8", LORA | {"enable-lora-overlap-loading": "true"}, {}, "without 'max-loaded-loras'"),
    ("0.5.5", {"enable-hierarchical-cache": "true", "disable-radix-cache": "true"}, {}, "radix"),
    ("0.5.23", {"enable-lmcache": "true", "disable-radix-cache": "true"}, {}, "radix"),
    ("0.5.5", {"chunked-prefill-size": "1000", "page-size": "64"}, {}, "does not divide"),
    ("0.5.5", {"page-size": "0"}, {}, "fails on 'page-size' 0"),
    ("0.5.17", {"schedule-conservativeness": "-1"}, {}, "'schedule-conservativeness' -1"),
    ("0.5.5", {"enable-priority-scheduling": "true", "schedule-policy": "lpm"}, {}, "lpm"),
    ("0.5.17", {"tokenizer-worker-num": "0"}, {}, "'tokenizer-worker-num' 0"),
    ("0.5.15", {"skip-tokenizer-init": "true", "tokenizer-worker-num": "4"}, {}, "one tokenizer"),
    ("0.5.5", {"nnodes": "3", "tp-size": "4"}, {}, "among 3 'nnodes'"),
    ("0.5.17", {"nnodes": "2", "tp-size": "2", "dp-size": "2"}, {}, "over 2 nodes"),
    ("0.5.12", {"moe-dense-tp-size": "4", "tp-size": "4"}, {}, "'moe-dense-tp-size' 4"),
    ("0.5.17", {"moe-dense-tp-size": "2", "tp-size": "4"}, {}, "'moe-dense-tp-size' 2"),
    ("0.5.5", DP | {"dp-size": "3"}, {}, "does not divide 'tp-size' 4"),
    ("0.5.17", {"enable-dp-attention": "true"}, {}, "turns 'enable-dp-attention' off"),
    ("0.5.17", {"enable-dp-lm-head": "true", "tp-size": "4"}, {}, "no use for 'enable-dp-lm-head'"),
    ("0.5.17", {"pp-size": "2", "speculative-algorithm": "EAGLE"}, {}, "with 'pp-size' 2"),
    ("0.5.23", {"pp-size": "2", "speculative-algorithm": "NGRAM"}, {}, "NGRAM with 'pp-size' 2"),
    ("0.5.10", {"pp-size": "2", "enable-mixed-chunk": "true"}, {}, "'enable-mixed-chunk' with"),
    ("0.5.9", {"attn-cp-size": "3", "tp-size": "4"}, {}, "does not divide"),
    ("0.5.14", {"enable-prefill-cp": "true"}, {}, "without 'cp-strategy'"),
    ("0.5.5", {"enable-eplb": "true", "tp-size": "4"}, {}, "without 'ep-size' above 1"),
    ("0.5.5", {"moe-a2a-backend": "deepep", "tp-size": "8", "ep-size": "2"}, {}, "sets 'ep-size'"),
    ("0.5.17", {"enable-two-batch-overlap": "true"}, {}, "without 'moe-a2a-backend'"),
    (
        "0.5.17",
        {"moe-runner-backend": "cutlass", "quantization": "fp8", "ep-size": "2", "tp-size": "4"},
        {},
        "FP8 experts with 'ep-size' 2",
    ),
    ("0.5.5", {"moe-runner-backend": "flashinfer_cutlass"}, {"quantization": ""}, "modelopt_fp4"),
    ("0.5.9", {"decode-attention-backend": "trtllm_mha"}, HOPPER, "for SM 10 only"),
    ("0.5.17", {"attention-backend": "trtllm_mha"}, HOPPER, "prefill on SM 10 only"),
    ("0.5.17", {"attention-backend": "trtllm_mla"}, {**HOPPER, **MLA}, "from SM 10 on"),
    ("0.5.17", {"attention-backend": "fa3"}, T4, "SM 8 and 9 only"),
    ("0.5.17", {"attention-backend": "fa3"}, {"compute_capability": 8.0, **MLA}, "SM 9 only"),
    ("0.5.17", {"attention-backend": "flashmla"}, HEADS, "latent attention (MLA) only"),
    ("0.5.17", {"attention-backend": "trtllm_mha"}, {**BLACKWELL, **MLA}, "does not have"),
    ("0.5.7", {"attention-backend": "fa4"}, {}, "for prefill only"),
    (
        "0.5.17",
        {"attention-backend": "fa3", "kv-cache-dtype": "fp8_e5m2"},
        {},
        "by triton for a cache of fp8_e5m2",
    ),
    (
        "0.5.6",
        {"attention-backend": "trtllm_mla", "kv-cache-dtype": "fp8_e5m2"},
        {},
        "refuses 'kv-cache-dtype' fp8_e5m2",
    ),
    ("0.5.17", {"kv-cache-dtype": "nvfp4"}, HOPPER, "from SM 10 on"),
    ("0.5.17", {"attention-backend": "flashmla", "page-size": "1"}, MLA, "'page-size' to 64"),
    ("0.5.5", {"attention-backend": "flex_attention", **EAGLE}, {}, "does not draft with"),
    (
        "0.5.5",
        {"enable-deterministic-inference": "true", "attention-backend": "torch_native"},
        {},
        "torch_native",
    ),
    ("0.5.17", {"enable-mis": "true"}, {}, "without 'attention-backend' flashinfer"),
    ("0.5.10", {"multi-item-scoring-delimiter": "5"}, {}, "without 'disable-radix-cache'"),
    (
        "0.5.12",
        {"enable-torch-compile": "true", "disable-cuda-graph-padding": "true"},
        {},
        "'disable-cuda-graph-padding'",
    ),
    ("0.5.5", {"enable-pdmux": "true", "disable-overlap-schedule": "true"}, {}, "-1"),
    ("0.5.5", {**EAGLE, "speculative-num-steps": "3"}, {}, "fails on 'speculative-num-steps'"),
    ("0.5.5", {**EAGLE, "speculative-eagle-topk": "1"}, {}, "without 'speculative-num-steps'"),
    ("0.5.5", {"speculative-algorithm": "STANDALONE", **DP}, {}, "copies of attention"),
    ("0.5.17", {"speculative-algorithm": "ngram", **DP}, {}, "copies of attention"),
    ("0.5.17", {"speculative-algorithm": "DFLASH"}, {}, "wants 'speculative-draft-model-path'"),
    ("0.5.17", {**EAGLE, "enable-mixed-chunk": "true"}, {}, "'enable-mixed-chunk' off"),
    (
        "0.5.5",
        {"load-format": "dummy", "model-loader-extra-config": '{"num_threads": 8}'},
        {},
        "takes no 'model-loader-extra-config'",
    ),
    ("0.5.5", {"model-loader-extra-config": '{"pattern": "a"}'}, {}, "sharded_state only"),
    ("0.5.5", {"load-format": "remote_instance"}, {}, "loads as 'load-format' auto"),
    ("0.5.17", {"quantization": "awq"}, {"quantization": ""}, "and these are whole"),
    ("0.5.17", {"quantization": "fp8"}, {"quantization": "awq"}, "for weights of awq"),
    ("0.5.17", {"quantization": "fp8"}, T4, "from SM 8 on"),
    ("0.5.5", {"context-length": "100000"}, {"max_positions": 8192}, "above the 8192 positions"),
    ("0.5.10", {"ssl-certfile": "/x"}, {}, "without 'ssl-keyfile'"),
    ("0.5.11", {"grpc-port": "30000"}, {}, "which is 'port'"),
    ("0.5.16", {"grpc-port": "50051", "api-key": "k"}, {}, "asks for none"),
    ("0.5.6", {"export-metrics-to-file": "true"}, {}, "without 'export-metrics-to-file-dir'"),
    ("0.5.6", {"served-model-name": "chat:v1"}, {}, "refuses a colon"),
    ("0.5.5", {"prompt-tokens-buckets": "log"}, {}, "no kind log of 'prompt-tokens-buckets'"),
    ("0.5.5", {"prompt-tokens-buckets": '["tse", "10", "2"]'}, {}, "three numbers after tse"),
    ("0.5.5", {"generation-tokens-buckets": "custom"}, {}, "numbers after custom"),
    ("0.5.17", {"gc-threshold": "[1, 2, 3, 4]"}, {}, "three numbers for 'gc-threshold'"),
    ("0.5.8", {"kv-cache-dtype": "fp4_e2m1"}, {**HOPPER, **HEADS}, "which it takes on SM 9"),
    (
        "0.5.17",
        EAGLE
        | {
            "speculative-num-steps": "3",
            "speculative-eagle-topk": "1",
            "speculative-num-draft-tokens": "8",
        },
        {},
        "'speculative-num-draft-tokens' to 4 for a chain, not 8",
    ),
    ("0.5.7", {"encoder-only": "true", "language-only": "true"}, {}, "'language-only'"),
]


@pytest.mark.parametrize(
    ("version", "settings", "facts", "words"), CASES, ids=[f"{c[0]} {c[3]}" for c in CASES]
)
def test_a_combination_that_sglang_refuses_or_changes_is_refused(
    version: str, settings: dict[str, str], facts: dict[str, Any], words: str
) -> None:
    messages = [finding.message for finding in found(version, settings, **facts)]

    assert [message for message in messages if words in message], messages


TAKEN: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("0.5.17", LORA, {}),
    ("0.5.17", {"lora-paths": "sql=/sql"}, {}),
    ("0.5.5", {**LORA, **EAGLE}, {}),
    ("0.5.23", {**LORA, **EAGLE}, {}),
    ("0.5.17", {"enable-lmcache": "true", "disable-radix-cache": "true"}, {}),
    ("0.5.5", {"chunked-prefill-size": "-1", "page-size": "64"}, {}),
    ("0.5.16", {"skip-tokenizer-init": "true", "tokenizer-worker-num": "4"}, {}),
    ("0.5.13", {"moe-dense-tp-size": "4", "tp-size": "4"}, {}),
    ("0.5.23", {"enable-dp-lm-head": "true", "attn-dp-size": "4", "tp-size": "4"}, {}),
    ("0.5.23", {"pp-size": "2", "speculative-algorithm": "EAGLE"}, {}),
    ("0.5.11", {"pp-size": "2", "enable-mixed-chunk": "true"}, {}),
    ("0.5.5", {"enable-eplb": "true", "tp-size": "4", "ep-size": "4"}, {}),
    ("0.5.5", {"enable-two-batch-overlap": "true"}, {}),
    ("0.5.6", {"moe-runner-backend": "flashinfer_cutlass"}, {"quantization": ""}),
    ("0.5.10", {"decode-attention-backend": "trtllm_mha"}, HOPPER),
    ("0.5.23", {"attention-backend": "trtllm_mha"}, HOPPER),
    ("0.5.17", {"attention-backend": "trtllm_mha"}, {}),  # nothing is known of the device
    ("0.5.17", {"attention-backend": "flashmla"}, {}),
    ("0.5.8", {"attention-backend": "fa4"}, {}),
    ("0.5.17", {"attention-backend": "fa3", "kv-cache-dtype": "fp8_e4m3"}, HOPPER),
    ("0.5.11", {"enable-torch-compile": "true", "disable-cuda-graph-padding": "true"}, {}),
    ("0.5.8", {"model-loader-extra-config": '{"num_threads": 8}'}, {}),
    ("0.5.17", {"quantization": "awq"}, {"quantization": "awq"}),
    ("0.5.5", {"prompt-tokens-buckets": '["tse", "10", "2", "8"]'}, {}),
    ("0.5.5", {"prompt-tokens-buckets": "default"}, {}),
    ("0.5.17", {"gc-threshold": "[700, 10, 10]"}, {}),
    ("0.5.8", {"kv-cache-dtype": "fp4_e2m1", "attention-backend": "triton"}, HEADS),
    (
        "0.5.17",
        EAGLE
        | {
            "speculative-num-steps": "3",
            "speculative-eagle-topk": "1",
            "speculative-num-draft-tokens": "4",
        },
        {},
    ),
    ("0.5.17", {"quantization": "fp8"}, {"quantization": "", **HOPPER}),
    ("0.5.5", {"served-model-name": "chat:v1"}, {}),
]


@pytest.mark.parametrize(
    ("version", "settings", "facts"), TAKEN, ids=[f"{c[0]} {' '.join(c[1])}" for c in TAKEN]
)
def test_a_combination_that_sglang_takes_is_taken(
    version: str, settings: dict[str, str], facts: dict[str, Any]
) -> None:
    assert found(version, settings, **facts) == []


@pytest.mark.parametrize(
    ("quantization", "method"),
    [
        (None, ""),
        (PACKED, "compressed-tensors"),
        (Quantization(method="fp8", scheme="W8A8-FP8", bits=8), ""),
    ],
    ids=["none", "made by packager", "while loading"],
)
def test_rules_know_the_weights_that_are_served(
    quantization: Quantization | None, method: str
) -> None:
    plan = plan_for("sglang", quantization=quantization)

    assert plan_facts(plan)["quantization"] == method


def test_rules_know_weights_that_came_quantized() -> None:
    plan = plan_for("sglang", quantization=replace(AWQ, checkpoint_format=""))
    plan = replace(plan, profile=replace(plan.profile, quantization="awq"))

    assert plan_facts(plan)["quantization"] == "awq"


@pytest.mark.parametrize("draft", [EAGLE3, NGRAM], ids=lambda one: one.kind)
def test_options_beside_a_planned_draft_are_judged_with_it(draft: Any) -> None:
    asked = (("enable-mixed-chunk", "true"),)
    findings = SglangFamily().check(plan_for("sglang", draft=draft, engine_options=asked))

    assert "option-overridden" in [finding.code for finding in findings]
