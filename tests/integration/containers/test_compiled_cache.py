"""Compiled files of an image: used on the machine they are for, whole, and nowhere else."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from packager.catalog import machine
from tests.support.processes import run_python
from tests.support.workers import SERVING
from tests.unit.containers.test_compiled_cache import compiled_cache


def test_packager_and_the_launcher_read_a_processor_alike(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nmodel name\t: X\nflags\t\t: fpu sse4_2 avx2 avx512f amx_bf16 bmi2 xyz\n"
    )
    (tmp_path / "meminfo").write_text("MemTotal: 1024 kB\n")

    theirs = compiled_cache.instructions(tmp_path / "cpuinfo")

    assert theirs == ["amx_bf16", "avx2", "avx512f", "bmi2", "sse4_2"]
    assert machine.ISA.pattern == compiled_cache.ISA.pattern
    assert list(machine.describe_machine(tmp_path).isa) == theirs


def test_the_launcher_says_what_became_of_them_and_starts_the_server(tmp_path: Path) -> None:
    for name in ("launch.py", "compiled_cache.py"):
        (tmp_path / name).write_bytes((SERVING / "vllm" / name).read_bytes())
    command = [sys.executable, "-c", "print('started')"]
    env = {"PACKAGER_COMPILED": str(tmp_path / "nothing")}
    (tmp_path / "command.json").write_text(json.dumps({"argv": command, "env": env}))

    def started(**given: str) -> tuple[str, str]:
        env = {"PATH": os.environ["PATH"], **given}
        # 70: the server ended without having been asked to
        done = run_python(tmp_path / "launch.py", env=env, alone=True, status=70)
        return done.stdout, done.stderr

    out, said = started()
    assert out == "started\n"
    assert said.startswith("packager: nothing is compiled ahead of time")
    out, said = started(PACKAGER_COMPILED="off")
    assert out == "started\n"
    assert said.startswith("error: the server ended")  # and nothing before it
