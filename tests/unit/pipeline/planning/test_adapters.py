"""Adapters in plans: which engine's version reads which, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.plan import Plan
from packager.core.references import DirectoryReference
from packager.models.local import LocalSource
from packager.pipeline.planning.adapters import choose_adapters
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support.adapters import TINY, read_adapter, tiny_modules, write_adapter
from tests.support.cases import cases_of
from tests.support.doubles.containers import FAMILIES, with_traits
from tests.support.headers import facts_of
from tests.support.places import ROOT
from tests.support.zoo import mixtral

cases = cases_of(__file__)

BASE = LocalSource().facts(DirectoryReference.at(ROOT / "examples/tiny-llama"))


def facts_with(place: Path, family: str, version: str, **asked: Any) -> Facts:
    found = facts_of(BASE, "ml.g6.xlarge", family=family, **asked)
    container = found.container
    if version:
        changed = replace(container, engine_version=version, version=version)
        container = with_traits(changed)
    adapters = tuple(read_adapter(one, one.name) for one in sorted(place.iterdir()))
    return replace(found, container=container, adapters=adapters)


def planned(facts: Facts) -> Plan:
    return make_plan(facts, PlannerServices(family=FAMILIES[facts.container.family]))


def codes_of(facts: Facts) -> Mapping[str, str]:
    """Return the findings about adapters: code and severity."""
    try:
        found = planned(facts).findings
    except PlanRejected as rejected:
        found = rejected.findings
    return {one.code: one.severity for one in found if one.code.startswith("adapter")}


@cases(
    "fields",
    family="vllm",
    version="",
    config={},
    modules=("q_proj", "v_proj"),
    extra={},
    ranks={},
    refused="",
    rewritten=(),
)
def test_a_field_is_honoured_rewritten_or_refused(
    tmp_path: Path,
    family: str,
    version: str,
    config: dict[str, Any],
    modules: tuple[str, ...],
    extra: dict[str, list[int]],
    ranks: dict[str, int],
    refused: str,
    rewritten: tuple[str, ...],
) -> None:
    adapted = tiny_modules(*modules)
    own = {path: ranks.get(path, int(config.get("r", 8))) for path in adapted}
    shapes = {name: tuple(shape) for name, shape in extra.items()}
    write_adapter(tmp_path / "sql", adapted, ranks=own, extra=shapes, **config)
    facts = facts_with(tmp_path, family, version)

    if refused:
        assert codes_of(facts).get(refused) == "error"
        return
    plan = planned(facts)
    assert plan.adapters is not None
    (served,) = plan.adapters.adapters
    assert tuple(served.rewrite.why if served.rewrite else ()) == rewritten


@cases("misfits")
def test_an_adapter_of_another_base_is_refused(
    tmp_path: Path, modules: dict[str, list[int]], match: str
) -> None:
    sides = {path: (shape[0], shape[1]) for path, shape in modules.items()}
    write_adapter(tmp_path / "sql", sides)

    with pytest.raises(PlanRejected, match=match):
        planned(facts_with(tmp_path, "vllm", ""))


def test_modules_are_named_as_the_base_names_them(tmp_path: Path) -> None:
    wrapped = {f"model.language_model.layers.0.{name}": sides for name, sides in TINY.items()}
    write_adapter(tmp_path / "sql", wrapped)

    plan = planned(facts_with(tmp_path, "vllm", ""))

    assert plan.adapters is not None
    rewrite = plan.adapters.adapters[0].rewrite
    assert rewrite is not None
    assert rewrite.paths["model.language_model.layers.0.mlp.up_proj"] == (
        "model.layers.0.mlp.up_proj"
    )


@cases("options", version="", asked={})
def test_adapters_are_options_of_the_engine(
    tmp_path: Path, family: str, version: str, asked: dict[str, Any], options: dict[str, str]
) -> None:
    for name, rank in (("a", 4), ("b", 40)):
        write_adapter(tmp_path / name, tiny_modules("q_proj", "k_proj", "v_proj"), r=rank)

    plan = planned(facts_with(tmp_path, family, version, **asked))

    assert {name: dict(plan.engine_options).get(name) for name in options} == options


@cases("refused_requests", family="vllm", version="", asked={}, name="sql")
def test_a_request_that_cannot_be_served_is_refused(
    tmp_path: Path, family: str, version: str, asked: dict[str, Any], name: str, code: str
) -> None:
    write_adapter(tmp_path / name)
    facts = facts_with(tmp_path, family, version, **asked)

    with pytest.raises(PlanRejected) as rejected:
        planned(facts)
    assert code in {one.code for one in rejected.value.findings if one.severity == "error"}


@pytest.mark.parametrize(
    ("instance", "family", "is_refused"),
    [("ml.c7i.4xlarge", "vllm", True), ("ml.p4d.24xlarge", "vllm", False)],
)
def test_processors_take_no_adapters_beside_experts(
    tmp_path: Path, instance: str, family: str, is_refused: bool
) -> None:
    place = write_adapter(tmp_path / "sql", {"model.layers.0.self_attn.q_proj": (4096, 4096)})
    found = facts_of(mixtral(), instance, family=family)

    chosen = choose_adapters(replace(found, adapters=(read_adapter(place),)))

    codes = {one.code for one in chosen.findings if one.severity == "error"}
    assert codes == ({"adapters-unsupported"} if is_refused else set())


def test_slots_are_part_of_the_weights_memory(tmp_path: Path) -> None:
    write_adapter(tmp_path / "a")
    one = planned(facts_with(tmp_path, "vllm", ""))
    two = planned(facts_with(tmp_path, "vllm", "", max_adapters=2))
    bare = planned(replace(facts_with(tmp_path, "vllm", ""), adapters=()))

    assert one.adapters is not None and two.adapters is not None
    assert two.adapters.device_bytes == 2 * one.adapters.device_bytes
    assert one.budget.weights_bytes - bare.budget.weights_bytes == one.adapters.device_bytes
