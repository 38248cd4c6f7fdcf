"""packager says what the cache may assume of a kind; the cache itself knows none."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import artifact_cache
from packager.cli.wiring.caches import artifact_cache_for
from packager.cli.wiring.settings import Settings
from packager.optimize.keys.documents import KINDS
from packager.optimize.keys.policy import KIND_POLICY
from tests.support.cache_entries import CHECKPOINT, NEURON, Build
from tests.support.known import known
from tests.unit.artifact_cache.test_matching import shaped

SOURCES = sorted(Path(artifact_cache.__file__).parent.rglob("*.py"))
KIND = re.compile(rf"(?<![\w-])({'|'.join(KINDS)})(?![\w-])")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_cache_names_no_kind_of_artifact(path: Path) -> None:
    """Neither in code nor in prose: a kind is what whoever opens the cache says it is."""
    assert KIND.findall(path.read_text("utf-8")) == []


def test_the_policy_names_only_kinds_that_there_are() -> None:
    assert KIND_POLICY.stamped | KIND_POLICY.larger.keys() <= KINDS.keys()


def test_every_kind_has_the_name_that_it_is_registered_by() -> None:
    assert {name: model.model_fields["kind"].default for name, model in KINDS.items()} == {
        name: name for name in KINDS
    }


def test_the_cache_of_a_build_is_opened_with_the_policy(tmp_path: Path) -> None:
    """Without it every hit on 140 GB of tensors would hash them."""
    cache = known(artifact_cache_for(Settings(cache_dir=tmp_path / "cache", environment={})))
    cache.get_or_build(shaped(NEURON, max_batch=16), Build(), tmp_path / "neuron")
    cache.get_or_build(CHECKPOINT, written_long_ago, tmp_path / "checkpoint")

    assert cache.find_larger(NEURON) is not None
    assert len(list((tmp_path / "cache").glob("artifacts/stamp/*/*"))) == 1


def written_long_ago(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"tensors")
    os.utime(directory / "model.safetensors", (1, 1))
