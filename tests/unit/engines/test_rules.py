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
from tests.support.cases import cases, read_tables
from tests.support.engine_plans import MIXTRAL, plan_for
from tests.support.places import DATA

ROW: dict[str, Any] = read_tables(__file__)["row"]


def holds(when: list[dict[str, Any]], settings: dict[str, Any], **facts: Any) -> bool:
    """Whether a row with these conditions says something."""
    rule = read_rule({**ROW, "when": when, "message": "no"})
    from packager.engines import rules as module

    case = module._Case(settings=settings, facts=facts, options={})
    needed = rule.needs <= settings.keys()
    held = all(module._holds(one, case) for one in rule.when)
    assert needed or not held, "a rule was skipped that holds"
    return held


@cases("mistakes")
def test_a_row_with_a_mistake_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_rule({**ROW, **changed})


@pytest.mark.parametrize("key", ["when", "severity", "code", "message", "source", "date"])
def test_a_row_without_a_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        read_rule({name: value for name, value in ROW.items() if name != key})


@cases("conditions")
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


@cases("a_rule_is_of_its_versions")
def test_a_rule_is_of_its_versions(version: str, expected: bool) -> None:
    assert read_rule({**ROW, "since": "0.14.0", "before": "0.18.0"}).is_of(version) is expected


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
    assert model_facts(replace(MIXTRAL, max_positions=positions)).get("max_positions") == stated


def test_facts_of_a_mixture_count_all_its_experts() -> None:
    facts = model_facts(replace(MIXTRAL, experts=8, experts_per_token=2))
    assert (facts["experts"], facts["kv_heads"]) == (8, 8)


def test_numbers_of_an_unknown_architecture_are_no_facts() -> None:
    assert set(model_facts(replace(MIXTRAL, known=False))) == {"architecture", "quantization"}


@cases("versions", facts={}, engine="vllm")
def test_rules_of_a_version_find_what_it_refuses_drops_or_changes(
    version: str, settings: dict[str, Any], facts: dict[str, Any], found: list[str], engine: str
) -> None:
    options = find_schema(engine, version).options
    said = check_rules("it", engine, version, settings, facts=facts, options=options)

    assert [f"{one.severity} {one.code}" for one in said] == found


# What vLLM itself said of settings (scripts/_vllm_verdicts.py, 2026-11-22): its parser, its checks
# and EngineArgs.create_engine_config, on a pretended H100.  Beyond that: `dropped` and `changed`
# are accepted without effect, `later` is refused by `vllm serve` or by a worker, which did not
# run, and `file` is refused where the file does not exist.
VERDICTS = DATA / "engines" / "rules_vllm.jsonl"
FACTS = read_tables(__file__)["models"]
EXPECTED = {verdict: set(said) for verdict, said in read_tables(__file__)["verdicts"].items()}


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


def test_limits_are_those_that_no_table_of_options_has() -> None:
    for rule in rules("vllm"):
        if "it takes" not in rule.hint or len(rule.references) > 2:
            continue
        (option,) = {one.option for one in rule.references.values() if one.option} - {"enable-lora"}
        for version in shipped_versions("vllm"):
            known = find_schema("vllm", version).options.get(option)
            if rule.is_of(version) and known is not None:
                assert known.bounds == UNBOUNDED, (version, option)
