"""Rules across options: how rows are read, what they hold on, and what vLLM's say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from packager.engines.rule_tables import engines_with_rules, read_rule, rules, rules_of
from packager.engines.rules import check_rules, model_facts, plan_facts
from packager.engines.schema import find_schema, shipped_versions
from packager.engines.values import UNBOUNDED
from packager.engines.vllm.check import check_options
from packager.engines.vllm.family import VllmFamily
from packager.findings import Finding, errors_in
from tests.support.engine_plans import AWQ, MIXTRAL, plan_for
from tests.support.places import DATA

VLLM = VllmFamily()
ROW: dict[str, Any] = {
    "when": [{"option": "max-num-seqs", "above": {"option": "max-num-batched-tokens"}}],
    "severity": "error",
    "code": "options-conflict",
    "message": "{who} refuses [max-num-seqs] {max-num-seqs}",
    "source": "config/scheduler.py",
    "date": "2026-11-22",
}


def holds(when: list[dict[str, Any]], settings: dict[str, Any], **facts: Any) -> bool:
    """Whether a row with these conditions says something."""
    rule = read_rule({**ROW, "when": when, "message": "no"})
    from packager.engines import rules as module

    case = module._Case(settings=settings, facts=facts, options={})
    needed = rule.needs <= settings.keys()
    held = all(module._holds(one, case) for one in rule.when)
    assert needed or not held, "a rule was skipped that holds"
    return held


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"while": []}, id="key of a row"),
        pytest.param({"severity": "fatal"}, id="severity"),
        pytest.param({"when": []}, id="no condition"),
        pytest.param({"when": [{"option": "a", "was": 1}]}, id="test"),
        pytest.param({"when": [{"option": "a"}]}, id="no test"),
        pytest.param({"when": [{"option": "a", "is": 1, "above": 0}]}, id="two tests"),
        pytest.param({"when": [{"fact": "weather", "is": 1}]}, id="fact"),
        pytest.param({"when": [{"fact": "heads", "given": True}]}, id="given fact"),
        pytest.param({"when": [{"option": "a", "fact": "heads", "is": 1}]}, id="two subjects"),
        pytest.param({"when": [{"option": "a", "type": "word"}]}, id="type"),
        pytest.param({"when": [{"any": [], "option": "a"}]}, id="any and another"),
        pytest.param({"message": "{who} refuses {block-size}"}, id="value of no condition"),
        pytest.param({"message": "{who} refuses [block-size]"}, id="name of no condition"),
        pytest.param({"hint": "lower [block-size]"}, id="name of no condition in the hint"),
        pytest.param({"since": "soon"}, id="version"),
        pytest.param({"source": ""}, id="no source"),
    ],
)
def test_a_row_with_a_mistake_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_rule({**ROW, **changed})


@pytest.mark.parametrize("key", ["when", "severity", "code", "message", "source", "date"])
def test_a_row_without_a_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        read_rule({name: value for name, value in ROW.items() if name != key})


@pytest.mark.parametrize(
    ("condition", "settings", "expected"),
    [
        ({"given": True}, {"a": "1"}, True),
        ({"given": True}, {}, False),
        ({"given": False}, {}, True),
        ({"given": False}, {"a": "1"}, False),
        ({"is": True}, {"a": True}, True),
        ({"is": True}, {"a": "true"}, True),
        ({"is": True}, {"a": "1"}, False),
        ({"is": 1}, {"a": True}, False),
        ({"is": [1, 2]}, {"a": "2"}, True),
        ({"is": [1, 2]}, {"a": "3"}, False),
        ({"is": "mp"}, {}, False),
        ({"is": "mp", "default": "mp"}, {}, True),
        ({"isnt": "mp"}, {"a": "ray"}, True),
        ({"isnt": "mp"}, {}, False),
        ({"isnt": "mp", "default": "ray"}, {}, True),
        ({"isnt": ["mp", "ray"]}, {"a": "uni"}, True),
        ({"isnt": ["mp", "ray"]}, {"a": "ray"}, False),
        ({"below": 0}, {"a": "-1"}, True),
        ({"below": 0}, {"a": "0"}, False),
        ({"above": 1}, {"a": "1.5"}, True),
        ({"above": 1}, {"a": "many"}, False),
        ({"above": 1023}, {"a": "1k"}, False),
        ({"above": 1023}, {"a": "1K"}, True),
        ({"at_least": 2}, {"a": "2"}, True),
        ({"at_most": 2}, {"a": "3"}, False),
        ({"above": {"option": "b"}}, {"a": "2", "b": "1"}, True),
        ({"above": {"option": "b"}}, {"a": "2"}, False),
        ({"above": {"option": "b", "default": 1}}, {"a": "2"}, True),
        ({"above": [{"option": "b"}, 3]}, {"a": "7", "b": "2"}, True),
        ({"above": [{"option": "b"}, 3]}, {"a": "6", "b": "2"}, False),
        ({"indivisible_by": {"option": "b"}}, {"a": "8", "b": "3"}, True),
        ({"indivisible_by": {"option": "b"}}, {"a": "9", "b": "3"}, False),
        ({"divisible_by": 16}, {"a": "48"}, True),
        ({"divisible_by": 0}, {"a": "48"}, False),
        ({"starts": ["/", "."]}, {"a": "./x"}, True),
        ({"starts": "/"}, {"a": "x"}, False),
        ({"contains": ":"}, {"a": "chat:v1"}, True),
        ({"contains": [":", "/"]}, {"a": "chat"}, False),
        ({"contains": ":"}, {"a": True}, False),
        ({"contains": "all"}, {"a": '["q", "all"]'}, True),
        ({"contains": "all"}, {"a": '["q", "overall"]'}, False),
        ({"field": "1", "is": "b"}, {"a": '["a", "b"]'}, True),
        ({"field": "2", "given": True}, {"a": '["a", "b"]'}, False),
        ({"field": "x", "given": True}, {"a": '["a", "b"]'}, False),
        ({"isnt": {"option": "b", "plus": 1}}, {"a": "4", "b": "3"}, False),
        ({"isnt": {"option": "b", "plus": 1}}, {"a": "5", "b": "3"}, True),
        ({"is": {"option": "b", "plus": 1}}, {"a": "5", "b": "many"}, False),
        ({"type": "text"}, {"a": "x"}, True),
        ({"type": "number"}, {"a": True}, False),
        ({"keys_beyond": ["b", "c"]}, {"a": '{"b":1}'}, False),
        ({"keys_beyond": ["b", "c"]}, {"a": '{"b":1,"d":2}'}, True),
        ({"keys_beyond": ["b", "c"]}, {"a": "[1]"}, False),
        ({"field": "b.c", "is": 3}, {"a": '{"b":{"c":3}}'}, True),
        ({"field": "b.c", "given": False}, {"a": '{"b":{"c":null}}'}, True),
        ({"field": "b.c", "given": True}, {"a": '{"b":3}'}, False),
        ({"field": "b", "given": True}, {"a": "{broken"}, False),
        ({"field": "b", "type": "list"}, {"a": '{"b":[1]}'}, True),
        ({"field": "b", "is": False, "default": False}, {"a": "{}"}, True),
    ],
)
def test_conditions_hold_on_what_was_given(
    condition: dict[str, Any], settings: dict[str, Any], expected: bool
) -> None:
    assert holds([{"option": "a", **condition}], settings) is expected


def test_one_of_several_conditions_is_enough() -> None:
    when = [{"any": [{"option": "a", "is": 1}, {"fact": "experts", "above": 0}]}]
    assert holds(when, {"a": "1"})
    assert holds(when, {}, experts=8)
    assert not holds(when, {"a": "2"}, experts=0)


def test_a_product_may_be_compared() -> None:
    when = [{"product": [{"option": "a"}, {"option": "b"}], "above": {"fact": "devices"}}]
    assert holds(when, {"a": "2", "b": "8"}, devices=8)
    assert not holds(when, {"a": "2", "b": "4"}, devices=8)
    assert not holds(when, {"a": "2"}, devices=1)


def test_a_fact_that_nobody_has_holds_nothing() -> None:
    assert not holds([{"fact": "experts", "is": 0}], {})
    assert holds([{"fact": "experts", "is": 0}], {}, experts=0)


def test_a_length_that_the_engine_chooses_is_no_length() -> None:
    settings = {
        "enable-chunked-prefill": False,
        "max-num-batched-tokens": "2048",
        "max-model-len": "-1",
    }
    assert not list(check_options("vLLM", settings, find_schema("vllm", "0.27.1")))
    settings["max-model-len"] = "8k"
    (found,) = check_options("vLLM", settings, find_schema("vllm", "0.27.1"))
    assert found.message == (
        "vLLM refuses 'max-num-batched-tokens' 2048 below the longest sequence of 8000 tokens "
        "without 'enable-chunked-prefill'"
    )


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.9.2", False),
        ("0.14.0rc1", False),
        ("0.14.0", True),
        ("0.17.3", True),
        ("0.18.0.dev7+gabc", True),
        ("0.18.0", False),
        ("nightly", False),
    ],
)
def test_a_rule_is_of_its_versions(version: str, expected: bool) -> None:
    rule = read_rule({**ROW, "since": "0.14.0", "before": "0.18.0"})
    assert rule.is_of(version) is expected


def test_what_is_no_version_is_judged_as_the_newest() -> None:
    assert read_rule({**ROW, "since": "0.14.0"}).is_of("nightly")


@pytest.mark.parametrize("engine", engines_with_rules())
def test_every_row_can_be_read(engine: str) -> None:
    assert rules(engine)


@pytest.mark.parametrize("engine", [one for one in engines_with_rules() if shipped_versions(one)])
def test_rules_ask_for_options_that_some_version_has(engine: str) -> None:
    for rule in rules(engine):
        versions = [one for one in shipped_versions(engine) if rule.is_of(one)]
        asked = {one.option for one in rule.references.values() if one.option}
        known = {name for one in versions for name in find_schema(engine, one).options}
        assert asked <= known, (rule.message, asked - known)


def found(version: str, settings: dict[str, Any], **facts: Any) -> list[Finding]:
    options = find_schema("vllm", version).options
    return list(check_rules("vLLM", "vllm", version, settings, facts=facts, options=options))


def test_rules_of_a_version_are_fewer_than_all() -> None:
    assert set(rules_of("vllm", "0.27.1")) <= set(rules("vllm"))


def test_a_plan_says_what_rules_ask_for() -> None:
    facts = plan_facts(plan_for("vllm", profile=MIXTRAL))
    assert facts["heads"] == 32
    assert facts["device"] == "nvidia"
    assert "compute_capability" not in facts  # of a device that nobody described


@pytest.mark.parametrize(("positions", "stated"), [(0, None), (32768, 32768), (1 << 20, None)])
def test_a_length_that_a_model_does_not_limit_is_no_fact(
    positions: int, stated: int | None
) -> None:
    facts = model_facts(replace(MIXTRAL, max_positions=positions))
    assert facts.get("max_positions") == stated


def test_facts_of_a_mixture_count_all_its_experts() -> None:
    facts = model_facts(replace(MIXTRAL, experts=8, experts_per_token=2))
    assert (facts["experts"], facts["kv_heads"]) == (8, 8)


def test_numbers_of_an_unknown_architecture_are_no_facts() -> None:
    assert set(model_facts(replace(MIXTRAL, known=False))) == {"architecture", "quantization"}


def test_expert_parallelism_of_a_dense_model_is_refused() -> None:
    settings = {"enable-expert-parallel": True}
    assert [one.code for one in found("0.27.1", settings, experts=0)] == ["options-conflict"]
    assert not found("0.27.1", settings, experts=8)
    assert not found("0.27.1", settings)


# What vLLM itself said of settings (scripts/_vllm_verdicts.py, 2026-11-22): its parser, its checks
# and EngineArgs.create_engine_config, on a pretended H100.  Beyond that: `dropped` and `changed`
# are accepted without effect, `later` is refused by `vllm serve` or by a worker, which did not
# run, and `file` is refused where the file does not exist.
VERDICTS = DATA / "engines" / "rules_vllm.jsonl"
GPU = {"device": "nvidia", "devices": 16, "compute_capability": 9.0}
FACTS: dict[str, dict[str, Any]] = {
    "llama": {
        **GPU,
        "architecture": "LlamaForCausalLM",
        "model_type": "llama",
        "heads": 16,
        "kv_heads": 8,
        "experts": 0,
        "attention": "heads",
        "max_positions": 8192,
        "has_tower": False,
        "quantization": "",
    },
    "qwen3-moe": {
        **GPU,
        "architecture": "Qwen3MoeForCausalLM",
        "model_type": "qwen3_moe",
        "heads": 16,
        "kv_heads": 8,
        "experts": 8,
        "attention": "heads",
        "has_tower": False,
        "quantization": "",
    },
}
EXPECTED = {
    "accepted": set(),
    "refused": {"error"},
    "later": {"error"},
    "dropped": {"error", "warning"},
    "changed": {"warning"},
    "file": {"warning"},
}


def recorded() -> Iterator[Any]:
    for line in VERDICTS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        settings = " ".join(f"{name}={value}" for name, value in row["settings"].items())
        yield pytest.param(row, id=f"{row['model']}: {settings}")


@pytest.mark.parametrize("row", [*recorded()])
def test_settings_are_judged_as_vllm_judges_them(row: dict[str, Any]) -> None:
    for version, verdict in row["verdicts"].items():
        said = list(
            check_options(
                "vLLM", row["settings"], find_schema("vllm", version), FACTS[row["model"]]
            )
        )
        severities = {one.severity for one in said}
        assert severities <= EXPECTED[verdict], (version, verdict, said)
        assert severities or not EXPECTED[verdict], (version, verdict)


# Requests that vLLM 0.27.1's parser takes and its configuration refuses.
TAKEN_BY_THE_PARSER_ALONE: tuple[tuple[tuple[str, str], ...], ...] = (
    (("attention-backend", "NONSENSE"),),
    (("enable-auto-tool-choice", "true"),),
    (("reasoning-parser", "nonsense"),),
    (("distributed-executor-backend", "nonsense"),),
    (("compilation-config", '{"nonsense":1}'),),
    (("compilation-config", "3"),),
    (("speculative-config", '{"method":"nonsense"}'),),
    (("kv-transfer-config", '{"kv_connector":"NixlConnector"}'),),
    (("long-prefill-token-threshold", "-5"),),
    (("enable-lora", "true"), ("max-loras", "0")),
    (("enable-lora", "true"), ("lora-modules", "a=/x b=/y")),
    (("decode-context-parallel-size", "3"),),
    (("enable-chunked-prefill", "false"), ("max-num-batched-tokens", "2048")),
)


@pytest.mark.parametrize(
    "asked",
    TAKEN_BY_THE_PARSER_ALONE,
    ids=[" ".join(f"{name}={value}" for name, value in one) for one in TAKEN_BY_THE_PARSER_ALONE],
)
def test_a_request_that_only_the_parser_takes_is_refused(
    asked: tuple[tuple[str, str], ...],
) -> None:
    plan = plan_for("vllm", tp_degree=2, engine_options=asked)
    assert errors_in(VLLM.check(plan))


def test_experts_of_a_dense_model_are_refused_in_a_plan() -> None:
    found = errors_in(VLLM.check(plan_for("vllm", expert_parallel=True)))
    assert [one.message for one in found] == [
        "vLLM refuses 'enable-expert-parallel': the model has no experts"
    ]


def test_a_template_outside_the_image_is_warned_of() -> None:
    asked = (("chat-template", "/nonexistent.jinja"),)
    found = list(VLLM.check(plan_for("vllm", engine_options=asked)))
    assert ("warning", "file-not-packaged") in [(one.severity, one.code) for one in found]


@pytest.mark.parametrize(("tokens", "refused"), [("63", True), ("64", False)])
def test_proposed_tokens_count_beside_adapters(tokens: str, refused: bool) -> None:
    settings = {
        "enable-lora": True,
        "max-num-seqs": "16",
        "max-num-batched-tokens": tokens,
        "speculative-config": '{"method":"ngram","num_speculative_tokens":3}',
    }
    assert bool(errors_in(found("0.27.1", settings))) is refused


def test_a_plan_that_quantizes_itself_has_no_quantized_files_for_vllm_to_read() -> None:
    asked = (("quantization", "awq"),)
    (found,) = errors_in(VLLM.check(plan_for("vllm", engine_options=asked)))
    assert found.code == "quantization-unsupported"
    written = replace(AWQ, existing=False)
    assert not errors_in(VLLM.check(plan_for("vllm", engine_options=asked, quantization=written)))


@pytest.mark.parametrize(
    ("version", "text", "severities"),
    [
        ("0.33.0", '{"threads":4}', ["error"]),
        ("0.22.1", '{"threads":4}', ["warning"]),
        ("0.33.0", '{"concurrency":4}', []),
    ],
)
def test_keys_that_the_streamer_does_not_read_are_told(
    version: str, text: str, severities: list[str]
) -> None:
    settings = {"load-format": "runai_streamer", "model-loader-extra-config": text}
    assert [one.severity for one in found(version, settings)] == severities


@pytest.mark.parametrize(("text", "refused"), [("yarn", True), ('{"rope_theta":1e6}', False)])
def test_overrides_that_are_no_object_are_refused(text: str, refused: bool) -> None:
    assert bool(found("0.27.1", {"hf-overrides": text})) is refused


def test_mtp_of_a_model_type_without_it_is_refused() -> None:
    settings = {"speculative-config": '{"method":"mtp","num_speculative_tokens":1}'}
    assert [one.code for one in found("0.27.1", settings, model_type="llama")] == [
        "draft-unsupported"
    ]
    assert not found("0.27.1", settings, model_type="deepseek_v3")


def test_limits_are_those_that_no_table_of_options_has() -> None:
    for rule in rules("vllm"):
        if "it takes" not in rule.hint or len(rule.references) > 2:
            continue
        (option,) = {one.option for one in rule.references.values() if one.option} - {"enable-lora"}
        for version in shipped_versions("vllm"):
            known = find_schema("vllm", version).options.get(option)
            if rule.is_of(version) and known is not None:
                assert known.bounds == UNBOUNDED, (version, option)


def test_versions_that_nobody_read_are_not_judged() -> None:
    draft = {"speculative-config": '{"method":"draft_model","num_speculative_tokens":3}'}
    assert errors_in(found("0.14.0", draft))
    assert not found("0.8.4", draft)  # it had drafts, which 0.10.2 lost

    few = {"max-num-seqs": "64", "max-num-batched-tokens": "32"}
    assert errors_in(found("0.8.4", few))
    assert not found("0.6.3.post1", few)
