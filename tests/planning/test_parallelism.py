from __future__ import annotations

from dataclasses import replace

import pytest

from packager.core.plan import MemoryBudget
from packager.core.units import GIB
from packager.planning.parallelism import TpChoice, choose_tp_degree, find_degrees, refusal
from packager.planning.profile import make_profile
from tests.planning.headers import LLAMA_3_8B, model_of

LLAMA = make_profile(model_of(LLAMA_3_8B))[0]
LLAMA_2_7B_AWQ = replace(LLAMA, intermediate_size=11008, kv_heads=32, group_size=128)


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


def test_degrees_divide_the_devices() -> None:
    assert find_degrees(LLAMA, 8) == ((1, 2, 4, 8), ())
    assert find_degrees(LLAMA, 6)[0] == (1, 2)


@pytest.mark.parametrize(
    ("profile", "degree", "reason"),
    [
        (LLAMA, 16, "the instance has 8 devices"),
        (LLAMA, 3, "32 attention heads are not a multiple of it"),
        (replace(LLAMA, kv_heads=5, heads=20), 4, "5 key-value heads can be neither split"),
        (replace(LLAMA, intermediate_size=14337), 2, "the intermediate size 14337 is not"),
        (LLAMA_2_7B_AWQ, 4, "groups of 128 quantized weights: 11008 / 4 is not a multiple"),
        (LLAMA_2_7B_AWQ, 2, ""),
        (LLAMA, 8, ""),
    ],
)
def test_a_degree_is_refused_for_a_reason(profile: object, degree: int, reason: str) -> None:
    said = refusal(profile, 8, degree)  # type: ignore[arg-type]

    assert reason in said
    assert bool(said) == bool(reason)


def test_a_degree_that_was_asked_for_is_the_only_one() -> None:
    assert find_degrees(LLAMA, 4, asked=2) == ((2,), ())


def test_an_impossible_degree_that_was_asked_for_is_an_error_with_the_others() -> None:
    degrees, (finding,) = find_degrees(LLAMA, 4, asked=3)

    assert degrees == ()
    assert (finding.severity, finding.hint) == ("error", "possible here: 1, 2, 4")


def test_the_smallest_degree_that_fits_is_chosen_and_the_others_explained() -> None:
    choice = choose_tp_degree((1, 2, 4, 8), budget)

    assert choice.tp_degree == 4
    assert [finding.message for finding in choice.passed_over] == [
        "TP 1 needs 51.0 GiB per device; 20.0 GiB usable",
        "TP 2 needs 27.0 GiB per device; 20.0 GiB usable",
    ]


def test_no_degree_is_chosen_when_none_fits() -> None:
    assert choose_tp_degree((1, 2), budget).tp_degree is None
    assert choose_tp_degree((), budget) == TpChoice(None, ())
