"""`packager draft stitch`: a checkpoint with another MTP head, and every other byte as it was."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import Packager
from tests.support.doubles.models import write_json, write_model, write_safetensors

MTP = {
    "mtp.fc.weight": ("BF16", (64, 128)),
    "mtp.layers.0.mlp.experts.0.up_proj.weight": ("BF16", (32, 64)),
    "mtp.norm.weight": ("BF16", (64,)),
}


def tensors_of(place: Path) -> dict[str, tuple[Any, bytes]]:
    """Read each tensor's description and bytes, where the index says that it is."""
    weight_map = json.loads((place / "model.safetensors.index.json").read_text())["weight_map"]
    found = {}
    for file in sorted(place.glob("*.safetensors")):
        data = file.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        for name, one in header.items():
            if name != "__metadata__":
                assert weight_map.pop(name) == file.name
                start, end = (8 + length + offset for offset in one.pop("data_offsets"))
                found[name] = (one, data[start:end])
    assert weight_map == {}
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose MTP tensors lie in one shard alone, and among others in a second."""
    place = write_model(tmp_path / "model", shards=2, seed=1)
    first, second = sorted(place.glob("*.safetensors"))
    header = json.loads(
        second.read_bytes()[8 : 8 + struct.unpack("<Q", second.read_bytes()[:8])[0]]
    )
    own = {name: (one["dtype"], tuple(one["shape"])) for name, one in header.items()
           if name != "__metadata__"}  # fmt: skip
    mixed = dict(zip([*own, *MTP], [*own.values(), *MTP.values()], strict=True))
    order = sorted(mixed, key=lambda name: name[::-1])
    write_safetensors(second, {name: mixed[name] for name in order}, seed=2)
    index = json.loads((place / "model.safetensors.index.json").read_text())
    index["weight_map"] |= dict.fromkeys(MTP, second.name)
    write_json(place / "model.safetensors.index.json", index)
    assert first.name in index["weight_map"].values()
    return place


def stitch(packager: Packager, model: Path, head: Path, output: Path, status: int = 0) -> str:
    """Run the command; return what it says on stderr."""
    words = ("--model", str(model), "--head", str(head), "--output", str(output))
    return packager("draft", "stitch", *words, status=status).err


def head_of(place: Path, tensors: Any = None, seed: int = 9) -> Path:
    place.mkdir()
    write_safetensors(place / "model.safetensors", tensors or MTP, seed=seed)
    write_json(place / "config.json", {"model_type": "llama", "speculators_model_type": "mtp"})
    return place


def test_every_other_tensor_keeps_its_bytes(
    model: Path, tmp_path: Path, packager: Packager
) -> None:
    head, output = head_of(tmp_path / "head"), tmp_path / "out"

    stitch(packager, model, head, output)

    before, after = tensors_of(model), tensors_of(output)
    assert [*before] != [*after]
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == {*MTP}
    alone = (head / "model.safetensors").read_bytes()
    assert (output / "model-mtp.safetensors").read_bytes() == alone
    kept = {path.name for path in model.iterdir()} - {"model.safetensors.index.json"}
    assert kept <= {path.name for path in output.iterdir()}
    untouched = min(model.glob("*.safetensors"))
    assert (output / untouched.name).read_bytes() == untouched.read_bytes()
    stitch(packager, output, head, tmp_path / "again")
    assert tensors_of(tmp_path / "again") == after


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({**MTP, "mtp.norm.weight": ("BF16", (32,))}, "is BF16 [32] in the head"),
        ({**MTP, "mtp.norm.weight": ("F32", (64,))}, "is F32 [64] in the head"),
        ({"mtp.norm.weight": ("BF16", (64,))}, "only the model has 'mtp.fc.weight'"),
        ({**MTP, "mtp.more": ("BF16", (64,))}, "only the head has 'mtp.more'"),
    ],
)
def test_a_head_of_another_model_is_refused(
    tensors: Any, said: str, model: Path, tmp_path: Path, packager: Packager
) -> None:
    head = head_of(tmp_path / "head", tensors)

    assert said in stitch(packager, model, head, tmp_path / "out", status=3)
    assert not (tmp_path / "out").exists()
