"""Memory of adapters' slots, against what vLLM's own layers allocate for models as published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from packager.core.model import ModelFiles
from packager.core.split import Split
from packager.engines.adapters import adapter_traits
from packager.estimate.sizing.adapters import AdapterSlots, adaptable_sizes, adapter_bytes
from packager.estimate.sizing.engine_memory import adapted_multiples
from packager.models.architectures.profile import make_profile
from tests.live.tool_programs import documents_in
from tests.support.headers import model_of
from tests.support.layouts import config_of, headers_of, read_layout
from tests.support.vllm_packages import NEWEST, run_beside, vllm_sites
from tests.support.zoo import files

pytestmark = [pytest.mark.live, pytest.mark.timeout(1800)]

Setting = tuple[int, int, int, bool]  # slots, rank, devices, fully sharded
SETTINGS: tuple[Setting, ...] = ((1, 16, 1, False), (8, 64, 1, False), (8, 64, 4, False),
                                 (8, 64, 4, True))  # fmt: skip
MODELS = (
    "llama-3-8b", "llama-3.1-405b", "mistral-7b-v0.1", "phi-3-mini", "mixtral-8x7b",
    "qwen3-30b-a3b", "qwen3-next-80b", "qwen3.5-27b", "glm-4.5-air", "deepseek-v3", "gpt-oss-20b",
)  # fmt: skip
NEAR = 0.02
UNWRITTEN: Mapping[str, Mapping[str, tuple[int, ...]]] = {  # that published checkpoints have, too
    "qwen3-next-80b": {"in_proj_ba.weight": (64, 2048), "conv1d.weight": (8192, 1, 4)},
    "qwen3.5-27b": {
        "in_proj_z.weight": (6144, 5120),
        "in_proj_a.weight": (48, 5120),
        "in_proj_b.weight": (48, 5120),
        "conv1d.weight": (10240, 1, 4),
    },
}


@pytest.fixture(scope="module")
def allocated(
    serving_base: str, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[tuple[str, Setting], int]:
    """Return the bytes that vLLM allocates on each device."""
    del serving_base
    place = tmp_path_factory.mktemp("slots")
    order = []
    for name in MODELS:
        (place / name).mkdir()
        (place / name / "config.json").write_text(json.dumps(config_of(name)))
        order.append({"place": str(place / name), "settings": SETTINGS})
    (place / "order.json").write_text(json.dumps(order))
    printed = run_beside(vllm_sites()[NEWEST], "adapter_slots.py", str(place / "order.json"))
    return {
        (Path(one["place"]).name, tuple(one["setting"])): one["bytes"]
        for one in documents_in(printed)
    }


@pytest.mark.parametrize("name", MODELS)
def test_slots_take_what_is_planned(
    allocated: Mapping[tuple[str, Setting], int], name: str
) -> None:
    model = model_named(name)
    profile, _ = make_profile(model)
    traits = adapter_traits("vllm", NEWEST)
    assert traits is not None
    sizes = adaptable_sizes(
        model,
        profile,
        ends=traits.heads is not None and profile.architecture in traits.heads,
        joined=profile.architecture in traits.stacked,
    )
    for setting in SETTINGS:
        count, rank, devices, sharded = setting
        multiples = adapted_multiples(profile.weight_format)
        slots = AdapterSlots(
            count=count, rank=rank, sizes=sizes, sharded=sharded, multiples=multiples
        )
        planned = adapter_bytes(profile, Split(tp_degree=devices), slots)
        assert planned == pytest.approx(allocated[name, setting], rel=NEAR)


def model_named(name: str) -> ModelFiles:
    if "tensors" in read_layout(name):
        headers = headers_of(name)
        unwritten = UNWRITTEN.get(name, {})
        layers = [one.removesuffix("out_proj.weight") for one in headers if "attn.out_proj" in one]
        also = {f"{layer}{leaf}": ("BF16", shape)
                for layer in layers for leaf, shape in unwritten.items()}  # fmt: skip
        return files(config_of(name), headers | also)
    return model_of(config_of(name))
