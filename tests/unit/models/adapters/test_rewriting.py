"""Rewritten adapters: the same deltas, with scales of 1 and one rank."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from packager.core.adapters import AdapterRewrite
from packager.core.image import Blob, Inline, RemoteRange
from packager.core.model import ModelFile
from packager.images.blobs import BlobReader
from packager.models.adapters.rewriting import rewrite_adapter
from packager.models.safetensors import read_weights_header
from tests.support.adapters import read_adapter, tiny_modules, write_adapter
from tests.support.refusals import raises_code

PATH = "model.layers.0.self_attn.q_proj"
OTHER = "model.layers.0.self_attn.v_proj"
READER = BlobReader(())


def rewritten(place: Path, rewrite: AdapterRewrite) -> dict[str, bytes]:
    files = rewrite_adapter(
        read_adapter(place), rewrite, lambda file: read_weights_header(file, READER.read)
    )
    return {file.path: READER.read(_blob(file)) for file in files}


def _blob(file: ModelFile) -> Blob:
    assert not isinstance(file.content, Inline) or file.path.endswith(".json")
    return file.content if isinstance(file.content, Blob) else Blob((file.content,))


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize(("alpha", "step"), [(32, 0.0), (6, 1.0), (0.7, 1.0)])
def test_deltas_stay_the_same_within_a_step_of_their_type(
    tmp_path: Path, dtype: str, alpha: float, step: float
) -> None:
    modules = {PATH: (256, 256), OTHER: (128, 256)}
    place = write_adapter(
        tmp_path / "a",
        modules,
        dtype=dtype,
        ranks={PATH: 4, OTHER: 16},
        r=4,
        lora_alpha=alpha,
        use_rslora=True,
        rank_pattern={"v_proj": 16},
    )
    made = rewritten(place, AdapterRewrite(rank=16))
    before = _load((place / "adapter_model.safetensors").read_bytes())
    after = _load(made["adapter_model.safetensors"])
    config = json.loads(made["adapter_config.json"])

    assert (config["r"], config["lora_alpha"], config["use_rslora"]) == (16, 16, False)
    assert (config["rank_pattern"], config["target_modules"]) == ({}, ["q_proj", "v_proj"])
    unit = {"BF16": 2**-7, "F16": 2**-10, "F32": 2**-23}[dtype]
    for path, rank in ((PATH, 4), (OTHER, 16)):
        scale = alpha / rank**0.5
        key = f"base_model.model.{path}.lora_"
        a, b = after[f"{key}A.weight"], after[f"{key}B.weight"]
        own_a, own_b = before[f"{key}A.weight"], before[f"{key}B.weight"]
        assert a.shape[0] == b.shape[1] == 16
        assert (a[:rank] == own_a).all() and not a[rank:].any() and not b[:, rank:].any()
        wanted = own_b * scale
        small = 2.0**-24 if dtype == "F16" else 0.0
        assert (abs(b[:, :rank] - wanted) <= step * unit / 2 * abs(wanted) + small).all()


def test_a_value_that_its_scale_makes_infinite_is_refused(tmp_path: Path) -> None:
    place = write_adapter(
        tmp_path / "a", tiny_modules("q_proj"), dtype="F16", size=6e4, lora_alpha=8000
    )

    with raises_code("AdapterBroken", match="too large"):
        rewritten(place, AdapterRewrite(rank=8))


def test_modules_get_the_names_of_the_base(tmp_path: Path) -> None:
    place = write_adapter(tmp_path / "a", {PATH: (256, 256)})
    made = rewritten(place, AdapterRewrite(rank=8, paths={PATH: "h.0.q"}))

    assert sorted(_load(made["adapter_model.safetensors"])) == [
        "base_model.model.h.0.q.lora_A.weight",
        "base_model.model.h.0.q.lora_B.weight",
    ]


def test_a_file_of_a_hub_that_is_not_read_to_its_end_is_refused(tmp_path: Path) -> None:
    adapter = read_adapter(write_adapter(tmp_path / "a", {PATH: (256, 256), OTHER: (128, 256)}))
    weights = next(file for file in adapter.files if file.path.endswith(".safetensors"))
    header = read_weights_header(weights, READER.read)
    url = "hf://o/n@" + "0" * 40 + "/adapter_model.safetensors"
    there = replace(weights, content=RemoteRange(url=url, offset=0, length=weights.size))
    adapter = replace(adapter, files=(there,))
    kept = tuple(one for one in adapter.modules if one.path == PATH)

    assert rewrite_adapter(adapter, AdapterRewrite(rank=8), lambda _: header)
    with raises_code("ModelRefused", match="cannot be read from the hub"):
        rewrite_adapter(replace(adapter, modules=kept), AdapterRewrite(rank=8), lambda _: header)


def _load(data: bytes) -> dict[str, np.ndarray]:
    """Return every tensor in float64; numpy has no bfloat16."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        raw = data[8 + size + start : 8 + size + end]
        kind = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}[entry["dtype"]]
        values = np.frombuffer(raw, kind)
        if entry["dtype"] == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        found[name] = values.astype(np.float64).reshape(entry["shape"])
    return found
