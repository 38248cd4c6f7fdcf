"""Every option of vLLM is judged once: in a compile key, out of it, or a credential."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from packager.core.artifact import Artifacts
from packager.core.key_options import DATA, classes, credential_option, keyed_options, option_class
from packager.engines.schema import ENGINES, load_schema
from packager.engines.vllm.family import VllmFamily
from packager.optimize.compile.vllm_cache import _engine_args, _key
from tests.support.cases import cases_of
from tests.support.known import known
from tests.unit.optimize.compile import test_vllm_cache as vllm

cases = cases_of(__file__)

SCHEMAS = sorted(ENGINES.glob("vllm-*.json"))


def names(path: str) -> set[str]:
    schema = load_schema(ENGINES / path)
    return {name for one in schema.options.values() for name in (one.name, *one.aliases)}


@pytest.mark.parametrize("schema", [path.name for path in SCHEMAS])
def test_every_option_of_a_shipped_version_is_classified(schema: str) -> None:
    assert sorted(names(schema) - classes().keys()) == []


def test_no_option_is_classified_that_vllm_never_had() -> None:
    known: set[str] = set().union(*(names(path.name) for path in SCHEMAS))

    assert sorted(classes().keys() - known) == []


def test_no_option_stands_in_two_lists() -> None:
    table = tomllib.loads(DATA.read_text(encoding="utf-8"))["vllm"]
    left_out = [name for group in table["left_out"].values() for name in group]
    listed = [*table["compiled"], *table["credentials"], *left_out]

    assert len(listed) == len(set(listed))


@cases("an_option_is_judged_by_its_list_or_its_name")
def test_an_option_is_judged_by_its_list_or_its_name(name: str, expected: str) -> None:
    assert option_class(name) == expected


def test_a_key_has_what_is_compiled_and_what_nobody_knows() -> None:
    asked = (("--Block_Size", "32"), ("port", "1"), ("api-key", "hidden"), ("new_kernel", "on"))

    assert list(keyed_options(asked)) == [("block-size", "32"), ("new-kernel", "on")]


@cases("a_credential_is_found_by_name_in_json_and_in_urls")
def test_a_credential_is_found_by_name_in_json_and_in_urls(name: str, value: str) -> None:
    assert credential_option(name, value)


@cases("what_only_looks_like_a_credential_is_taken")
def test_what_only_looks_like_a_credential_is_taken(name: str, value: str) -> None:
    assert not credential_option(name, value)


def test_an_option_that_only_serves_changes_no_compile_key() -> None:
    """A log level cost a compile of minutes, and a key went into a shared store as text."""
    plain = vllm.key_for(vllm.compile_facts())
    served = vllm.compile_facts(
        engine_options={"uvicorn-log-level": "warning", "tool-call-parser": "hermes"}
    )

    assert vllm.key_for(served) == plain


def test_every_compiled_option_changes_the_key() -> None:
    plan = vllm.plan_for(vllm.compile_facts())
    argv = ["python3", "-m", "server"]
    before = _engine_args(plan, argv)
    silent = [
        name
        for name, kind in classes().items()
        if (_engine_args(plan, [*argv, f"--{name}", "x"]) != before) != (kind == "compiled")
    ]

    assert silent == []


def test_all_values_of_an_option_with_many_are_in_the_key() -> None:
    plan = vllm.plan_for(vllm.compile_facts())
    args = _engine_args(plan, ["server", "--cudagraph-capture-sizes", "1", "2"])

    assert args == {"cudagraph-capture-sizes": "1 2"}


def test_what_shapes_the_cache_stands_in_fields_of_its_own() -> None:
    """The command line repeats them: a field that was dropped would show nowhere else."""
    key = vllm.key_for(vllm.compile_facts(draft="ngram:3", max_batch=4))
    deep = replace(vllm.plan_for(vllm.compile_facts()), pp_degree=2, tp_degree=4)
    assert key.speculation is not None
    assert (key.speculation.method, key.speculation.tokens) == ("ngram", 3)
    assert (key.shape.max_batch, key.parallelism.tp, key.parallelism.pp) == (4, 1, 1)
    facts = vllm.compile_facts()
    serving = VllmFamily().render(deep, Artifacts(model=()))
    split = known(_key(facts, deep, serving, [], {}))
    assert (split.parallelism.tp, split.parallelism.pp, split.parallelism.world) == (4, 2, 8)
    assert split.parallelism.ranks == (0, 1, 2, 3, 4, 5, 6, 7)
    assert _engine_args(deep, ["--block-size", "32"]) == {"block-size": "32"}
