from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.catalog.instances import find_instance
from packager.core.instance import Instance
from packager.core.model import ModelProfile
from packager.core.plan import MemoryBudget
from packager.core.split import Split
from packager.core.units import GIB
from packager.estimate.sizing.parallelism import (
    choose_split,
    find_degrees,
    note_split,
    refusal,
)
from packager.models.architectures.profile import make_profile
from tests.support.cases import cases_of, read_tables
from tests.support.headers import LLAMA_3_8B, model_of

cases = cases_of(__file__)
TABLES = read_tables(__file__)

LLAMA = make_profile(model_of(LLAMA_3_8B))[0]


def budget(tp: int) -> MemoryBudget:
    return MemoryBudget(
        tp_degree=tp,
        device_bytes=24 * GIB,
        usable_bytes=20 * GIB,
        weights_bytes=48 * GIB // tp,
        activations_bytes=GIB,
        overhead_bytes=GIB,
        kv_bytes_per_token=1024,
        kv_bytes=GIB,
    )


def devices(count: int) -> Instance:
    return replace(find_instance("g5.12xlarge"), devices=count)


def reasons(instance: Instance, profile: ModelProfile = LLAMA) -> list[str]:
    return [one.reason for one in find_degrees(profile, instance)[1]]


def test_degrees_divide_the_devices() -> None:
    assert find_degrees(LLAMA, devices(8)) == ((1, 2, 4, 8), (), ())
    assert find_degrees(LLAMA, devices(6))[0] == (1, 2)


def test_every_degree_that_is_impossible_has_its_reason() -> None:
    assert reasons(devices(6)) == TABLES["reasons_of_6"]


@cases("a_degree_is_refused_for_a_reason")
def test_degrees_are_refused_for_a_reason(
    changed: dict[str, Any], degree: int, reason: str
) -> None:
    said = refusal(replace(LLAMA, **changed), devices(8), degree)

    assert reason in said
    assert bool(said) == bool(reason)


def test_a_degree_that_was_asked_for_is_the_only_one() -> None:
    assert find_degrees(LLAMA, devices(4), asked=2) == ((2,), (), ())


def test_an_impossible_degree_that_was_asked_for_is_an_error_with_the_others() -> None:
    degrees, rejected, (finding,) = find_degrees(LLAMA, devices(4), asked=3)

    assert (degrees, rejected) == ((), ())
    hint = "ask for one that is possible here: 1, 2, 4"
    assert (finding.severity, finding.hint) == ("error", hint)


INF2 = replace(find_instance("g5.12xlarge"), **TABLES["inf2"])


def test_on_neuron_all_cores_come_first() -> None:
    assert find_degrees(LLAMA, INF2)[0] == (24, 8, 2, 1)


def test_on_neuron_heads_are_padded_and_nothing_must_divide() -> None:
    assert refusal(replace(LLAMA, intermediate_size=14337), INF2, 24) == ""
    assert [(f.severity, f.code, f.message) for f in note_split(LLAMA, INF2, 24)] == [
        ("note", "heads-padded", "32 attention heads are padded to 48 at TP 24")
    ]


def test_on_neuron_a_degree_off_the_table_is_a_warning() -> None:
    degrees, _, findings = find_degrees(LLAMA, INF2, asked=12)

    assert degrees == (12,)
    assert [[f.severity, f.code] for f in findings] == TABLES["findings"]


def degrees(*all_of: int) -> tuple[Split, ...]:
    return tuple(Split(tp_degree=degree) for degree in all_of)


def test_the_smallest_degree_that_fits_is_chosen_and_the_others_explained() -> None:
    split, passed_over = choose_split(degrees(1, 2, 4, 8), lambda split: budget(split.tp_degree))

    assert split == Split(tp_degree=4)
    assert [one.what for one in passed_over] == ["tp 1", "tp 2"]
    assert [one.reason for one in passed_over] == TABLES["reasons_of_room"]


def test_no_degree_is_chosen_when_none_fits() -> None:
    assert choose_split(degrees(1, 2), lambda split: budget(split.tp_degree))[0] is None
    assert choose_split((), lambda split: budget(split.tp_degree)) == (None, ())
