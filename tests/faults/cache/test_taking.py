"""Bytes that are flipped under a stamp, or vanish, on their way from the cache into an image."""

from __future__ import annotations

import hashlib
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from artifact_cache.errors import NotTaken
from artifact_cache.fsck import check
from artifact_cache.key import KeyDocument
from artifact_cache.results import CacheResult
from artifact_cache.store import Address, StoredEntry
from packager.core.errors import CachedFileChanged
from packager.core.image import Compression, ImageSpec
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.tee import write_image
from tests.faults.cache.state import mend
from tests.faults.cache.test_damage import damage, flip
from tests.faults.cache.working import OldBuild
from tests.faults.counters import never, tried
from tests.faults.scale import LONG
from tests.support.cache_entries import CHECKPOINT, DRAFT
from tests.support.cache_opening import LocalStore, open_cache, open_local
from tests.support.made_images import image_with, layout_sink, tar_layer, whole

ROUNDS = 200 if LONG else 6
HOUR_NS = 3600 * 10**9

Situation = Literal["same options", "other compression", "digest index lost"]


def taken(root: Path, wanted: KeyDocument, into: Path, *, always_hash: bool) -> CacheResult:
    return open_cache(root, always_hash=always_hash).get_or_build(wanted, OldBuild(b"ours"), into)


def image_of(result: CacheResult, compression: Compression) -> ImageSpec:
    assert result.entry is not None
    layers = [
        tar_layer(
            f"/m/{output.path}",
            replace(whole(result.path / output.path), sha256=output.sha256),
            compression=compression,
        )
        for output in result.entry.outputs
    ]
    return image_with(*layers, created="")


def built(scene: Path, name: str, wanted: KeyDocument, compression: Compression) -> str:
    """Take the artifact and write it, as a build does: once more where it was damaged."""
    index = DigestIndex(scene / "state/digests", clock_ns=lambda: time.time_ns() + HOUR_NS)
    for turn in (1, 2):
        result = taken(
            scene / "cache", wanted, scene / f"work-{name}-{turn}", always_hash=turn == 2
        )
        try:
            written = write_image(
                image_of(result, compression),
                [layout_sink(scene / name)],
                reader=BlobReader(),
                index=index,
            )
        except CachedFileChanged:
            assert turn == 1
            continue
        return written.image.digest
    raise AssertionError("the second turn returns or raises")


@pytest.mark.parametrize("wanted", [CHECKPOINT, DRAFT], ids=lambda one: one.kind)
@pytest.mark.parametrize("situation", ["same options", "other compression", "digest index lost"])
def test_a_bit_that_flips_under_its_stamp_never_reaches_an_image(
    here: Path, situation: Situation, wanted: KeyDocument
) -> None:
    for seed in range(ROUNDS):
        dice = random.Random(f"{situation} {seed}")
        scene = here / str(seed)
        built(scene, "warm", wanted, "none")
        compression: Compression = "zstd" if situation == "other compression" else "none"
        sound = built(scene, "sound", wanted, compression)
        for work in scene.glob("work-*"):
            shutil.rmtree(work)
        if situation == "digest index lost":
            shutil.rmtree(scene / "state")
        blob = dice.choice(sorted((scene / "cache").glob("cas/sha256/??/*")))
        damage(blob, flip, dice, keep_time=True)
        tried()

        healed = built(scene, "healed", wanted, compression)

        with never("wrong_bytes"):
            assert healed == sound
            for path in (scene / "healed/blobs/sha256").iterdir():
                assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
        with never("manual_cleanup"):
            assert check(LocalStore(scene / "cache")).problems == ()
        shutil.rmtree(scene)


class Losing(LocalStore):
    """Loses a blob between the look-up and the taking, as a collector of an old version could."""

    def __init__(self, root: Path, dice: random.Random) -> None:
        super().__init__(root)
        self._dice = dice
        self.lost = 0

    def get(self, address: Address) -> StoredEntry | None:
        found = super().get(address)
        if found is None:
            return None
        entry = found

        def extract(into: Path) -> None:
            self.blob_path(self._dice.choice(entry.entry.outputs).sha256).unlink()
            self.lost += 1
            entry.extract(into)

        return replace(found, extract=extract)


def test_a_blob_that_vanishes_after_the_look_up_is_not_taken(here: Path) -> None:
    """Where the artifact may be built, it is: `test_lossy.py`."""
    for seed in range(ROUNDS):
        scene = here / str(seed)
        root = scene / "cache"
        open_local(root).get_or_build(CHECKPOINT, OldBuild(b"ours"), scene / "built")
        shutil.rmtree(scene / "built")
        store = Losing(root, random.Random(seed))
        tried()

        with pytest.raises(NotTaken, match="is missing"):
            open_local(root, store=store).take(CHECKPOINT, scene / "out")

        assert list((scene / "out").iterdir()) == []
        assert store.lost == 1
        mend(root, scene)
        shutil.rmtree(scene)
