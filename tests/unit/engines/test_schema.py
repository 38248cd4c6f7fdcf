from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from packager.core.suggestions import guess
from packager.engines.schema import (
    ENGINES,
    Option,
    check_value,
    facts,
    facts_schema,
    find_schema,
    is_of_type,
    shipped_versions,
    value_tokens,
    versions_with,
)
from packager.engines.vllm.family import VllmFamily
from tests.support.cases import cases_of, read_tables
from tests.support.engine_plans import plan_for

cases = cases_of(__file__, "schemas")

SHIPPED = sorted(ENGINES.glob("*.json"))
NEWEST = max(shipped_versions("vllm"), key=Version)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_schema_says_where_it_comes_from_and_names_what_we_render(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))

    assert path.stem == f"{document['engine']}-{document['version']}"
    assert document["version"] in document["source"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", document["date"])
    rendered = read_tables(__file__, "schemas")["rendered"][document["engine"]]
    options, methods = set(rendered["options"]), set(rendered["methods"])
    if document["version"] == "0.7.3":  # of LMI 14 alone; the draft has options of its own
        options, methods = options - {"speculative-config"} | {"speculative-model"}, set()
    assert options <= document["options"].keys()
    gone = {"medusa"} if path.stem == "vllm-0.33.0" else set()
    assert methods - gone <= set(document["draft_methods"])


def test_a_version_that_is_shipped_is_proven_and_another_is_not() -> None:
    assert find_schema("vllm", "0.33.0").proven
    later = find_schema("vllm", "0.34.0")
    assert (later.proven, later.version) == (False, "0.33.0")
    assert not find_schema("vllm", "0.1.0").proven
    assert not find_schema("vllm", "nightly").proven


@cases("nearest")
def test_a_nightly_takes_the_table_nearest_below_it_and_not_the_oldest(
    version: str, used: str
) -> None:
    found = find_schema("vllm", version)

    assert found.version == (NEWEST if used == "newest" else used)
    assert not found.proven


@pytest.mark.parametrize("version", ["0.27.1+cu128", "v0.27.1", "0.27.1-gpu-py312-cu130"])
def test_another_build_of_a_known_version_has_its_proven_table(version: str) -> None:
    found = find_schema("vllm", version)

    assert found.version == "0.27.1"
    assert found.proven


@cases("said")
def test_a_plan_for_a_nightly_says_whose_options_it_was_checked_against(
    version: str, severity: str, message: str
) -> None:
    plan = plan_for("vllm-upstream")
    nightly = replace(plan, container=replace(plan.container, engine_version=version))

    found = [one for one in VllmFamily().check(nightly) if one.code == "options-unproven"]

    said = message.replace("NEWEST", NEWEST)
    assert [(one.severity, one.message) for one in found] == [(severity, said)]


def test_the_schema_of_a_version_is_chosen_once() -> None:
    """A ranking listed the directory of schemas 859 times, a tenth of its time."""
    assert find_schema("vllm", "0.27.1+local") is find_schema("vllm", "0.27.1+local")


def test_what_a_later_version_took_out_is_not_in_what_stands_in_for_it() -> None:
    assert "medusa" in find_schema("vllm", "0.32.0").draft_methods
    assert "medusa" not in find_schema("vllm", "0.33.0").draft_methods


@cases("an_option_is_found_by_any_spelling", name="max-num-seqs")
def test_an_option_is_found_by_any_spelling(spelled: str, name: str) -> None:
    option = find_schema("vllm", "0.32.0").find(spelled)

    assert option is not None and option.name == name


@cases("types")
def test_types_take_what_engines_take(of_type: str, taken: list[str], refused: list[str]) -> None:
    assert [value for value in taken if not is_of_type(value, of_type)] == []
    deep = [value.replace("DEEP", "[" * 9999) for value in refused]
    assert [value for value in deep if is_of_type(value, of_type)] == []


def test_a_list_of_values_that_is_nested_without_end_is_one_value_that_is_refused() -> None:
    """Python's decoder gave up on it with a traceback."""
    option = Option(name="cuda-graph-bs", type="int", many=True)
    deep = "[" * 9999

    assert value_tokens(option, deep) == (deep,)
    assert [f.code for f in check_value("X", option, option.name, deep)] == ["value-refused"]


def test_a_refused_value_comes_with_the_nearest_one() -> None:
    option = Option(name="dtype", type="word", choices=("float16", "bfloat16"))

    (finding,) = check_value("X", option, "dtype", "bfloat61")
    assert finding.code == "value-refused"
    assert finding.hint == "did you mean 'bfloat16'?"


def test_nothing_is_suggested_for_what_is_like_nothing() -> None:
    assert guess("zzz", ("max-num-seqs",)) == ""


ROWS = ("added", "removed", "nxdi", "plug_in")


def test_every_table_written_by_hand_says_where_it_comes_from() -> None:
    names = [name for name in facts() if name not in ROWS]

    assert {"lmi-neuronx"} == set(names)
    for name in names:
        assert facts()[name]["source"] and facts()[name]["date"]
        assert not facts_schema(name).proven
    for row in (row for kind in ROWS for row in facts()[kind]):
        assert row["source"] and row["date"]


@cases("what_a_version_has_is_read_from_its_own_parser_or_written_down")
def test_what_a_version_has_is_read_from_its_own_parser_or_written_down(
    kind: str, first: str
) -> None:
    assert versions_with(kind)[0] == first


def test_a_kind_of_draft_may_have_a_last_version_or_none() -> None:
    assert versions_with("medusa")[-1] == "0.32.0"
    assert versions_with("nothing of the kind") == ()
