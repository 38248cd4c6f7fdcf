from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from packager.families.schema import (
    ENGINES,
    Option,
    check_value,
    facts,
    facts_schema,
    find_schema,
    is_of_type,
    nearest,
)

SHIPPED = sorted(ENGINES.glob("*.json"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_schema_says_where_it_comes_from_and_names_what_we_render(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))

    assert path.stem == f"{document['engine']}-{document['version']}"
    assert document["version"] in document["source"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", document["date"])
    assert {
        "model",
        "served-model-name",
        "dtype",
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "max-model-len",
        "max-num-seqs",
        "max-num-batched-tokens",
        "kv-cache-dtype",
        "quantization",
        "speculative-config",
    } <= document["options"].keys()
    assert {"ngram", "eagle", "medusa"} <= set(document["draft_methods"])


def test_a_version_that_is_shipped_is_proven_and_another_is_not() -> None:
    assert find_schema("vllm", "0.32.0").proven
    later = find_schema("vllm", "0.33.0")
    assert (later.proven, later.version) == (False, "0.32.0")
    assert not find_schema("vllm", "0.1.0").proven
    assert not find_schema("vllm", "nightly").proven


def test_the_schema_of_a_version_is_chosen_once() -> None:
    """A ranking listed the directory of schemas 859 times, a tenth of its time."""
    assert find_schema("vllm", "0.27.1+local") is find_schema("vllm", "0.27.1+local")


def test_what_a_later_version_took_out_is_not_in_what_stands_in_for_it() -> None:
    assert "medusa" in find_schema("vllm", "0.32.0").draft_methods
    assert "medusa" not in find_schema("vllm", "0.33.0").draft_methods


@pytest.mark.parametrize(
    "spelled", ["max-num-seqs", "max_num_seqs", "MAX_NUM_SEQS"], ids=lambda name: name
)
def test_an_option_is_found_by_any_spelling(spelled: str) -> None:
    option = find_schema("vllm", "0.32.0").find(spelled)

    assert option is not None and option.name == "max-num-seqs"


def test_an_alias_finds_its_option() -> None:
    option = find_schema("vllm", "0.32.0").find("device-memory-utilization")

    assert option is not None and option.name == "gpu-memory-utilization"


@pytest.mark.parametrize(
    ("of_type", "taken", "refused"),
    [
        ("int", ["0", "-1", "4096"], ["", "1.5", "1k", "x", "١"]),
        ("size", ["4096", "1k", "25.6k", "1K", "auto", "-1"], ["1.5K", "k", "1x"]),
        ("float", ["0.9", "1", "1e-3"], ["nan", "inf", "most", ""]),
        ("switch", ["true", "false"], ["yes", "1", "True"]),
        ("word", ["a", "a/b"], ["", "a b", "a\tb"]),
        ("json", ["{}", '{"a":1}', "[]"], ["{", "{'a':1}", ""]),
        ("text", ["", "a b", "{"], []),
    ],
)
def test_types_take_what_engines_take(of_type: str, taken: list[str], refused: list[str]) -> None:
    assert [value for value in taken if not is_of_type(value, of_type)] == []
    assert [value for value in refused if is_of_type(value, of_type)] == []


def test_a_refused_value_comes_with_the_nearest_one() -> None:
    option = Option(name="dtype", type="word", choices=("float16", "bfloat16"))

    (finding,) = check_value("X", option, "dtype", "bfloat61")
    assert finding.code == "value-refused"
    assert finding.hint == "did you mean 'bfloat16'?"


def test_nothing_is_suggested_for_what_is_like_nothing() -> None:
    assert nearest("zzz", ("max-num-seqs",)) == ""


def test_every_table_written_by_hand_says_where_it_comes_from() -> None:
    names = [name for name in facts() if name not in ("added", "removed")]

    assert {"tgi", "sglang", "tgi-neuronx", "hf-vllm-neuronx", "lmi-neuronx"} == set(names)
    for name in names:
        assert facts()[name]["source"] and facts()[name]["date"]
        assert not facts_schema(name).proven
    for row in (*facts()["added"], *facts()["removed"]):
        assert row["source"] and row["date"]
