"""Builds upon a cache that is damaged, lost or unusable: the right image, or a typed end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import cases
from tests.support.commandline import Done, packager_in
from tests.support.demo_builds import OPTIONS, digest, environment_of

pytestmark = pytest.mark.extended


SHARD = "model-00002-of-00003.safetensors"
PUBLISHED_NS = 1_700_000_000 * 10**9


class Scene:
    """A cache with one quantized model in it, whose files are trusted by stamps."""

    def __init__(self, root: Path, tools_dir: Path) -> None:
        self.root = root
        self.ran = root / "ran"
        self.cache = root / "cache/artifacts"
        self.env = environment_of(root, tools_dir)
        self._packager = packager_in(root)
        self.first = self.build()
        assert self.first.status == 0, self.first.err
        self.trust_stamps()

    def build(self, *more: str, out: str = "out") -> Done:
        words = ("--quantize", f"demo-slow,seconds=0.01,ran={self.ran}")
        result = ("--output", f"oci:{out}", "--record", "record.json")
        return self._packager("build", *OPTIONS, *words, *result, *more, env=self.env)

    def trust_stamps(self) -> None:
        """Let the files be old, and stamp them as a hit would have done then."""
        for blob in self.cache.glob("cas/*/*/*"):
            os.utime(blob, ns=(PUBLISHED_NS, PUBLISHED_NS))
            status = blob.stat()
            stamp = self.cache / "stamp" / blob.name[:2] / blob.name
            stamp.parent.mkdir(parents=True, exist_ok=True)
            looks = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "ino": status.st_ino}
            stamp.write_text(json.dumps({**looks, "verified_at": int(time.time())}))

    @property
    def runs(self) -> int:
        return len(self.ran.read_text()) if self.ran.exists() else 0

    @property
    def record(self) -> Any:
        return json.loads((self.root / "record.json").read_text())

    def blob_of(self, name: str) -> Path:
        [entry] = self.cache.glob("ac/*/*/*.json")
        outputs = json.loads(entry.read_bytes())["outputs"]
        sha256 = next(one["sha256"] for one in outputs if one["path"].endswith(name))
        return self.cache / "cas/sha256" / sha256[:2] / sha256

    def flip(self, name: str, at: int) -> None:
        """Flip a bit as a disk would: size, inode and times stay."""
        blob = self.blob_of(name)
        data = bytearray(blob.read_bytes())
        data[at] ^= 1
        blob.chmod(0o644)
        with blob.open("r+b") as file:
            file.write(data)
        blob.chmod(0o444)
        os.utime(blob, ns=(PUBLISHED_NS, PUBLISHED_NS))

    def forget_digests(self) -> None:
        """Be another machine, or CI: the cache was kept, and nothing else."""
        self.env["XDG_STATE_HOME"] = str(self.root / "another-state")


@pytest.fixture
def scene(tmp_path: Path, tools_dir: Path) -> Scene:
    return Scene(tmp_path, tools_dir)


@cases("flipped")
def test_a_flipped_bit_is_healed_in_the_same_build(
    scene: Scene, name: str, at: int, compression: str, index: str
) -> None:
    """Once exit 0 with wrong bytes, or exit 76 at every build until somebody verified."""
    words = ("--compression", compression)
    sound = scene.build(*words, out="sound")
    assert (sound.status, scene.runs) == (0, 1)
    if index == "lost":
        scene.forget_digests()
    scene.flip(name, at)

    healed = scene.build(*words, out="healed")
    again = scene.build(*words, out="again")

    assert (healed.status, again.status) == (0, 0), healed.err + again.err
    assert digest(sound) == digest(healed) == digest(again)
    assert scene.runs == 2
    assert [step["reused"] for step in scene.record["steps"]] == [True]
    assert healed.err.count("out of the artifact cache holds other bytes") == 1
    assert {path.suffix for path in scene.cache.glob("quarantine/*")} == {".blob", ".json"}
    assert scene.blob_of(name).is_file()
    assert list((scene.root / "cache/work").iterdir()) == []


def test_a_damaged_input_of_a_later_step_is_healed_before_the_step_runs(scene: Scene) -> None:
    """What a step made of damaged files would be kept under the key of sound ones."""
    based = scene.build(out="base")
    assert based.status == 0, based.err
    scene.flip(SHARD, -1)
    words = ("--compile", "demo_compiler", "--base", "oci:base")

    healed = scene.build(*words, out="healed")
    again = scene.build(*words, "--require-cached", out="again")

    assert (healed.status, again.status) == (0, 0), healed.err + again.err
    assert digest(healed) == digest(again)
    assert scene.runs == 2


def damaged(scene: Scene) -> None:
    scene.flip(SHARD, -1)


def damaged_header(scene: Scene) -> None:
    scene.flip(SHARD, 0)


def blob_lost(scene: Scene) -> None:
    scene.blob_of(SHARD).unlink()


def entry_damaged(scene: Scene) -> None:
    [entry] = scene.cache.glob("ac/*/*/*.json")
    entry.chmod(0o644)
    entry.write_bytes(b"{}")


def blob_is_a_pipe(scene: Scene) -> None:
    blob = scene.blob_of(SHARD)
    blob.unlink()
    os.mkfifo(blob)


def cache_is_open_to_others(scene: Scene) -> None:
    scene.cache.chmod(0o777)


@pytest.mark.parametrize(
    "spoil",
    [damaged, damaged_header, blob_lost, entry_damaged, blob_is_a_pipe, cache_is_open_to_others],
    ids=lambda spoil: spoil.__name__,
)
def test_require_cached_never_runs_anything(scene: Scene, spoil: Callable[[Scene], None]) -> None:
    scene.forget_digests()
    spoil(scene)

    first = scene.build("--require-cached", out="required")
    second = scene.build("--require-cached", out="required")

    assert (first.status, second.status) == (8, 8), first.err + second.err
    assert (first.out, scene.runs) == ("", 1)
    assert "quantize" in first.err
    assert not (scene.root / "required").exists()
    healed = scene.build(out="healed")
    assert (healed.status, scene.runs) == (0, 2), healed.err
