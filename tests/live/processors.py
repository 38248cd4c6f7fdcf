"""Lesser processors than this one, for tests whose numbers depend on kernels, or that need some.

oneDNN and PyTorch choose kernels by what the processor can do, and each adds in its own order.
Where the suite itself runs under caps, containers that it starts get them too.

vLLM loads another extension where the processor has no AVX-512, and packager plans for that: a run
with `PACKAGER_TEST_HIDE_FLAGS="avx512 amx"` is one there (`tests/support/hidden_flags.py`).  Tests
ask `has_kernel`, which asks packager's own table, for the processor that the run is on.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from packager.catalog.containers import find_container
from packager.engines.vllm.processors import processor_kernels
from tests.support.hidden_flags import AVX512, VARIABLE, answers, this_machine
from tests.support.vllm_packages import SITE_PACKAGES, unpacked_base

AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
NATIVE: dict[str, str] = {}
PROCESSORS = {"native": NATIVE, "avx2": AVX2}
WITHOUT_AVX512 = {**AVX2, VARIABLE: AVX512}  # nothing that is run there finds any of it
ASKED_OF = Path("torch/cpu/__init__.py")  # by vLLM, what the processor has


def caps() -> dict[str, str]:
    """Return the caps that this run of the suite is under, as variables."""
    return {name: os.environ[name] for name in AVX2 if name in os.environ}


def cap_words(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the same as options of commands that start containers, and what hides flags there."""
    found = {name: environment[name] for name in AVX2 if name in environment}
    words = [word for name, value in found.items() for word in ("--env", f"{name}={value}")]
    if environment.get(VARIABLE):
        place, file = Path("/") / SITE_PACKAGES / ASKED_OF, denying(environment[VARIABLE])
        words += ["--volume", f"{file}:{place}:ro"]
        # What the base compiled is taken whatever its source is: there is none then.
        words += ["--volume", f"{file.parent / 'none'}:{place.parent / '__pycache__'}:ro"]
    return tuple(words)


@functools.cache
def denying(hidden: str) -> Path:
    """Write the base's module that vLLM asks, with other answers."""
    file = Path(tempfile.mkdtemp()) / "cpu.py"
    file.write_text((unpacked_base() / ASKED_OF).read_text() + answers(hidden))
    (file.parent / "none").mkdir()
    file.parent.chmod(0o755)
    file.chmod(0o644)
    return file


def need_kernel(wanted: str) -> None:
    """Skip where the processor has none: such a plan is refused (`test_quantized_serving.py`)."""
    if not has_kernel(wanted):
        pytest.skip(f"this processor has no kernel for {wanted}")


def need_true_flags() -> None:
    """Skip where flags are hidden from packager: what runs the test sees them all the same."""
    if os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} hides no flags there")


def has_kernel(wanted: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Check that vLLM of the serving base computes with a format on this run's processor."""
    version = find_container("vllm", "cpu").engine_version
    return wanted in processor_kernels(version).formats_on(this_machine(environment))
