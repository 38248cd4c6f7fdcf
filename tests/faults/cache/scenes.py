"""Directories in which an operation finds everything it can meet."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from artifact_cache.files import sha256_of
from artifact_cache.pins import Pin, Pins
from artifact_cache.store import address_of
from artifact_cache.stores.archive import export_archive
from tests.faults.cache.state import path_of
from tests.faults.cache.working import HOUR_S, OldBuild
from tests.support.cache_entries import CHECKPOINT, NEURON, document
from tests.support.cache_opening import LocalStore, open_local
from tests.support.known import known

PINNED = document(1)


def scene_for(operation: str, at: Path) -> Path:
    """Directories in which the operation has all it can meet."""
    at.mkdir(parents=True)
    root = at / "cache"
    local = open_local(root)
    local.get_or_build(PINNED, OldBuild(b"pinned"), at / "pinned")
    Pins(LocalStore(root)).add("first", Pin(keys=(address_of(PINNED).key,)))
    if operation in ("fetch", "heal", "heal-entry", "pin", "explain", "gc", "fsck"):
        local.get_or_build(CHECKPOINT, OldBuild(b"ours"), at / "built")
    blob = root / "cas/sha256" / digest_of(at / "pinned/rank0/model.bin")
    match operation:
        case "heal":
            spoil(root / "cas/sha256" / digest_of(at / "built/rank0/model.bin"))
        case "heal-entry":
            spoil(path_of(root, CHECKPOINT))
        case "fetch":
            shutil.rmtree(root / "stamp")
        case "fetch-far":
            open_local(at / "far").get_or_build(CHECKPOINT, OldBuild(b"ours"), at / "built")
        case "gc":
            local.get_or_build(NEURON, OldBuild(b"young"), at / "young")
            _leave_litter(root, at)
        case "fsck":
            spoil(root / "cas/sha256" / digest_of(at / "built/rank0/model.bin"))
            (root / "quarantine").mkdir()
            blob.rename(root / "quarantine" / f"20260101T000000Z-{blob.name}-0.blob")
        case "unpack":
            other = open_local(at / "other")
            other.get_or_build(CHECKPOINT, OldBuild(b"ours"), at / "built")
            (at / "scratch").mkdir()
            found = known(other.store.get(address_of(CHECKPOINT)))
            export_archive([found], at / "archive", at / "scratch")
    return at


def _leave_litter(root: Path, at: Path) -> None:
    """What killed processes and time leave."""
    local = open_local(root)
    for seed in (2, 3):
        local.get_or_build(document(seed), OldBuild(b"old %d" % seed), at / f"old{seed}")
        local.get_or_build(document(seed), OldBuild(b"never"), at / f"used{seed}")
        used = LocalStore(root).use_path(address_of(document(seed)).key)
        past = time.time() - HOUR_S
        for path in (used, path_of(root, document(seed))):
            os.utime(path, (past, past))
    orphan = root / "cas/sha256/00" / ("0" * 64)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"nobody's")
    (root / "tmp/1-dead").mkdir()
    (root / "tmp/1-dead/draft").write_bytes(b"half")
    (root / "quarantine").mkdir(exist_ok=True)
    (root / "quarantine/20260101T000000Z-x-0.blob").write_bytes(b"broken")


def digest_of(path: Path) -> str:
    digest = sha256_of(path)
    return f"{digest[:2]}/{digest}"


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)
