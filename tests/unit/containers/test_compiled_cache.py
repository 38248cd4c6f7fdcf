"""Compiled files of an image: used on the machine they are for, whole, and nowhere else."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packager.engines.compile_caches import DATA
from tests.support.cases import cases
from tests.support.workers import SERVING, load

compiled_cache = load(SERVING / "vllm" / "compiled_cache.py")

MACHINE = compiled_cache.describe_machine({})["machine"]
CODE = b"\x7fELF machine code"
Bake = Callable[..., Path]


@pytest.fixture
def bake(tmp_path: Path) -> Bake:
    """Lay out what an image brings, for this machine but for what is said otherwise."""

    def baked(files: dict[str, bytes] | None = None, **other: Any) -> Path:
        compiled = tmp_path / "compiled"
        written = {"inductor/ab/code.so": CODE, "vllm/info.json": b"{}"}
        for name, data in written.items():
            target = compiled / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((files or {}).get(name, data))
        manifest = {
            "schema": 1,
            "for": {"machine": MACHINE, **(other.pop("target", {}) or this_machine()), **other},
            "files": {
                name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                for name, data in written.items()
            },
        }
        (compiled / "manifest.json").write_text(json.dumps(manifest))
        return compiled

    return baked


def this_machine() -> dict[str, Any]:
    here = compiled_cache.describe_machine({})
    return {name: here[name] for name in ("machine", "isa", "threads")}


def take(compiled: Path, copy: Path, env: dict[str, str] | None = None) -> str:
    said = compiled_cache.take_compiled(compiled, env or {}, copy)
    assert isinstance(said, str)
    return said


HEADER = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"


def test_what_is_set_for_the_files_goes_with_them(bake: Bake, tmp_path: Path) -> None:
    """An engine that compiles is faster with the header, one that has the files would make it."""
    asked = {HEADER: "0", "OTHER": "1"}

    used, unusable, missing = dict(asked), dict(asked), dict(asked)
    take(bake(), tmp_path / "used", used)
    take(bake(machine="another"), tmp_path / "unusable", unusable)
    take(tmp_path / "nothing", tmp_path / "missing", missing)  # as where it is compiled
    off = {**asked, "PACKAGER_COMPILED": "off"}
    compiled_cache.prepare(off)

    assert used == missing == asked
    assert unusable == {"OTHER": "1"}
    assert HEADER not in off


def test_the_image_sets_what_is_dropped(bake: Bake) -> None:
    (row,) = [one for one in tomllib.loads(DATA.read_text())["caches"] if one["kind"] == "cpu"]
    assert {*compiled_cache.FOR_THE_FILES} <= row["env"].keys() - {*row["paths"]}


def test_files_are_put_where_the_engine_may_write(bake: Bake, tmp_path: Path) -> None:
    copy = tmp_path / "copy"

    assert take(bake(), copy) == "2 files compiled ahead of time are in place"
    assert (copy / "inductor/ab/code.so").read_bytes() == CODE
    assert os.access(copy / "inductor/ab", os.W_OK)


@cases("files_for_another_machine_are_left_alone")
def test_files_for_another_machine_are_left_alone(
    bake: Bake, tmp_path: Path, other: dict[str, Any], reason: str
) -> None:
    said = take(bake(**other), tmp_path / "copy")

    assert "is not used" in said
    assert reason in said
    assert not (tmp_path / "copy").exists()


def test_another_number_of_threads_at_run_time_is_another_machine(
    bake: Bake, tmp_path: Path
) -> None:
    said = take(bake(), tmp_path / "copy", {"OMP_NUM_THREADS": "997"})

    assert "997 here" in said


@pytest.mark.parametrize("data", [CODE[:4], CODE[:-1] + b"!", b""])
def test_machine_code_that_was_cut_or_changed_is_never_loaded(
    bake: Bake, tmp_path: Path, data: bytes
) -> None:
    said = take(bake({"inductor/ab/code.so": data}), tmp_path / "copy")

    assert "inductor/ab/code.so is not what was compiled" in said
    assert not (tmp_path / "copy").exists()


@cases("a_manifest_that_makes_no_sense_is_said_and_ignored")
def test_a_manifest_that_makes_no_sense_is_said_and_ignored(
    bake: Bake, tmp_path: Path, text: str
) -> None:
    compiled = bake()
    (compiled / "manifest.json").write_text(text)

    assert "is not used" in take(compiled, tmp_path / "copy")


def test_a_file_that_is_missing_is_said(bake: Bake, tmp_path: Path) -> None:
    compiled = bake()
    (compiled / "vllm/info.json").unlink()

    assert "is not used" in take(compiled, tmp_path / "copy")


def test_a_second_start_of_a_container_begins_anew(bake: Bake, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    take(bake(), copy)
    (copy / "inductor/ab/code.so").write_bytes(b"changed by the engine")

    take(bake(), copy)

    assert (copy / "inductor/ab/code.so").read_bytes() == CODE


def test_a_place_that_somebody_else_made_is_not_used(bake: Bake, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "copy").symlink_to(tmp_path / "elsewhere")

    assert "is not ours" in take(bake(), tmp_path / "copy")
    assert list((tmp_path / "elsewhere").iterdir()) == []
