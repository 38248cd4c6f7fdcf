"""Memory of adapters' slots: what engines were seen to take."""

from __future__ import annotations

import pytest

from packager.core.split import Split
from packager.core.units import GIB, MIB
from packager.estimate.sizing.adapters import AdapterSlots, adaptable_sizes, adapter_bytes
from packager.estimate.sizing.engine_memory import adapted_multiples
from packager.models.architectures.profile import make_profile
from tests.support.headers import LLAMA_3_8B, model_of
from tests.support.layouts import config_of, headers_of
from tests.support.zoo import files, qwen3_moe


@pytest.mark.parametrize(
    ("sharded", "logged"),
    [(False, 53.9761), (True, 26.9761)],  # vllm-project/vllm#28761: model loading, GiB
)
def test_a_mixture_takes_what_its_log_says(sharded: bool, logged: float) -> None:
    model = qwen3_moe()
    profile, _ = make_profile(model)
    sizes = adaptable_sizes(model, profile, ends=True)
    slots = AdapterSlots(count=16, rank=32, sizes=sizes, sharded=sharded)

    taken = adapter_bytes(profile, Split(tp_degree=4), slots)

    weights = profile.weight_bytes / 4
    assert (taken + weights) / GIB == pytest.approx(logged, rel=0.02)


@pytest.mark.parametrize(
    ("count", "rank", "tp_degree", "sharded", "mebibytes"),
    [
        (1, 16, 1, False, 88),
        (8, 64, 1, False, 2819),
        (8, 64, 4, False, 1570),
        (8, 64, 4, True, 898),
        (32, 64, 1, False, 11274),
    ],
)
def test_a_dense_model_takes_what_vllms_buffers_are(
    count: int, rank: int, tp_degree: int, sharded: bool, mebibytes: int
) -> None:
    model = model_of(LLAMA_3_8B)
    profile, _ = make_profile(model)
    sizes = adaptable_sizes(model, profile, ends=True)
    slots = AdapterSlots(count=count, rank=rank, sizes=sizes, sharded=sharded)

    taken = adapter_bytes(profile, Split(tp_degree=tp_degree), slots)

    assert taken / MIB == pytest.approx(mebibytes, rel=0.02)


def test_only_adapted_modules_count_where_slots_are_for_them_alone() -> None:
    model = model_of(LLAMA_3_8B)
    profile, _ = make_profile(model)
    slots = [
        AdapterSlots(
            count=1, rank=16, sizes=adaptable_sizes(model, profile, ends=False, leaves=one)
        )
        for one in (("q_proj",), ("q_proj", "k_proj", "v_proj"), ())
    ]

    one, group, everything = (adapter_bytes(profile, Split(tp_degree=1), each) for each in slots)

    assert one == group < everything


@pytest.mark.parametrize(
    ("count", "rank", "tp_degree", "sharded", "mebibytes"),
    [(1, 16, 1, False, 368.32), (8, 64, 4, True, 3069.75)],  # of vLLM 0.32.0's own layers
)
def test_packed_experts_are_padded_as_their_kernels_want(
    count: int, rank: int, tp_degree: int, sharded: bool, mebibytes: float
) -> None:
    model = files(config_of("gpt-oss-20b"), headers_of("gpt-oss-20b"))
    profile, _ = make_profile(model)
    slots = AdapterSlots(
        count=count,
        rank=rank,
        sizes=adaptable_sizes(model, profile, ends=False, joined=True),
        sharded=sharded,
        multiples=adapted_multiples(profile.weight_format),
    )

    taken = adapter_bytes(profile, Split(tp_degree=tp_degree), slots)

    assert taken / MIB == pytest.approx(mebibytes, rel=0.001)
