"""The random models of the GPU campaign."""

from __future__ import annotations

import hashlib
from pathlib import Path

from benchmarks.campaign import models
from benchmarks.campaign.models import SIZES, write_model
from tests.support.cases import cases


def parameters(size: str) -> int:
    files = models._files(SIZES[size])
    return sum(models._count(shape) for tensors in files for shape in tensors.values())


@cases("sizes")
def test_sizes(size: str, count: int) -> None:
    assert parameters(size) == count


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    told = write_model(tmp_path / "one", "tiny")
    write_model(tmp_path / "other", "tiny")
    write_model(tmp_path / "third", "tiny", seed=1)
    names = sorted(path.name for path in (tmp_path / "one").glob("*.safetensors"))
    one, other, third = (
        [hashlib.sha256((tmp_path / place / name).read_bytes()).hexdigest() for name in names]
        for place in ("one", "other", "third")
    )

    assert (told["parameters"], told["bytes"], len(names)) == (1_180_800, 2_361_600, 5)
    assert one == other
    assert not set(one) & set(third)
