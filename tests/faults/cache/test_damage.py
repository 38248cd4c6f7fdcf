"""Bytes that change on the disk: never used, always healed, and nothing left of it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from artifact_cache.key import KeyDocument
from tests.faults.cache.state import mend
from tests.faults.cache.working import OldBuild
from tests.faults.counters import never, tried
from tests.faults.scale import LONG
from tests.support.cache_entries import CHECKPOINT, VLLM, files_of
from tests.support.cache_opening import open_local
from tests.support.places import files_below

TARGETS = ("blob", "entry", "stamp", "stamp-and-blob")
CASES = 500 if LONG else 15  # of each manner on each target: 300 in the short form

Manner = Callable[[bytes, random.Random], bytes | None]


def flip(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    changed[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def truncate(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data))]


def extend(data: bytes, dice: random.Random) -> bytes:
    return data + dice.randbytes(dice.choice([1, 100, 4096]))


def zero_fill(data: bytes, dice: random.Random) -> bytes:
    start = dice.randrange(len(data))
    length = min(dice.choice([1, 16, len(data)]), len(data) - start)
    return data[:start] + bytes(length) + data[start + length :]


def delete(_data: bytes, _dice: random.Random) -> None:
    return None


MANNERS: tuple[Manner, ...] = (flip, truncate, extend, zero_fill, delete)


def damage(path: Path, manner: Manner, dice: random.Random, *, keep_time: bool) -> None:
    """Change a file's bytes in place, as a disk or a careless program would."""
    status = path.stat()
    changed = manner(path.read_bytes(), dice)
    if changed is None:
        path.unlink()
        return
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.truncate(len(changed))
        file.write(changed)
    path.chmod(status.st_mode & 0o777)
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("manner", MANNERS, ids=lambda manner: manner.__name__)
@pytest.mark.parametrize("target", TARGETS)
def test_what_was_damaged_is_not_used_and_the_next_run_heals_it(
    here: Path, target: str, manner: Manner
) -> None:
    for seed in range(CASES):
        dice = random.Random(f"{target} {manner.__name__} {seed}")
        scene = here / str(seed)
        # Code is hashed on every read; tensors only when a stamp does not fit.
        wanted: KeyDocument = dice.choice([CHECKPOINT, VLLM])
        open_local(scene / "cache").get_or_build(wanted, OldBuild(b"ours"), scene / "built")
        shutil.rmtree(scene / "built")  # its files share their bytes with the cache
        spoil = partial(damage, manner=manner, dice=dice, keep_time=wanted is VLLM)
        for path in chosen(scene / "cache", target, dice):
            spoil(path)
        tried()

        result = open_local(scene / "cache").get_or_build(
            wanted, OldBuild(b"theirs"), scene / "out"
        )

        with never("wrong_bytes"):
            assert files_below(result.path) == files_of(b"ours" if result.hit else b"theirs")
        mend(scene / "cache", scene, wanted=wanted)
        shutil.rmtree(scene)


def chosen(root: Path, target: str, dice: random.Random) -> list[Path]:
    """One file of the target's sort; nothing where the kind has none."""
    blobs = sorted(root.glob("cas/sha256/??/*"))
    stamps = sorted(root.glob("stamp/??/*"))
    blob = dice.choice(blobs)
    match target:
        case "blob":
            return [blob]
        case "entry":
            return list(root.glob("ac/*/??/*.json"))
        case "stamp":
            return stamps[:1]
    return [blob, *(stamp for stamp in stamps if stamp.name == blob.name)]
