"""What `scripts/engine-capabilities` reads from the sources of engines."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.cases import read_tables
from tests.support.places import ROOT

TABLES = read_tables(__file__)

DEVICES = (8.0, 9.0, 10.0, 12.0)


@pytest.fixture
def experts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return importlib.import_module("_vllm_experts")


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return importlib.import_module("_sglang_devices")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


KERNELS = """
from vllm.platforms import current_platform
class Base:
    @staticmethod
    def _supports_current_device():
        p = current_platform
        return p.is_cuda() and p.has_device_capability((9, 0)) and has_a_library()
class Fast(Base): ...
class Other(Base):
    @staticmethod
    def _supports_current_device():
        return current_platform.is_device_capability_family(100) or rocm_ops.is_enabled()
class Deep:
    @staticmethod
    def _supports_current_device():
        return is_deep_supported()
class Unknown:
    @staticmethod
    def _supports_current_device():
        return current_platform.some_question_of_tomorrow(3) > 2
"""
ORACLE = """
def backend_to_kernel_cls(backend):
    if backend == Backend.FAST:
        from a import Fast
        return [Fast]
    elif backend in (Backend.OTHER, Backend.THIRD):
        return [Other]
    elif backend == Backend.DEEP:
        return [Deep]
    elif backend == Backend.UNKNOWN:
        return [Unknown]
def map_backend(name):
    mapping = {"fast": Backend.FAST, "other": Backend.THIRD, "deep": Backend.DEEP,
               "unknown": Backend.UNKNOWN, "missing": Backend.MISSING}
    return mapping[name]
"""


def test_kernels_of_experts_say_themselves_where_they_run(
    tmp_path: Path, experts: ModuleType
) -> None:
    write(tmp_path / experts.LAYERS / "kernels.py", KERNELS)
    write(tmp_path / experts.LAYERS / "oracle" / "fp8.py", ORACLE)
    asked = "def is_deep_supported():\n    return current_platform.support_deep() and envs.USE\n"
    write(tmp_path / "vllm/utils/deep_gemm.py", asked)
    platform = "class Cuda:\n    @classmethod\n    def support_deep(cls):\n"
    platform += "        return cls.is_device_capability(90)\n"
    write(tmp_path / "vllm/platforms/cuda.py", platform)

    assert (
        experts.vllm_experts(tmp_path, DEVICES)
        == TABLES["kernels_of_experts_say_themselves_where_they_run"]
    )


ARGUMENTS = """
class ServerArgs:
    def check(self):
        if self.attention_backend == "one" or self.decode_attention_backend == "one":
            if not is_sm100_supported():
                raise ValueError("no")
        if self.tp_size > 1 and self.attention_backend == "two" and is_hip():
            raise ValueError("of something else")
        if self.tp_size > 1 and self.attention_backend == "three" and not is_sm100_supported():
            raise ValueError("of more than the device")
        if prefill_backend == "four" and not (is_sm90_supported() or is_sm100_supported()):
            raise ValueError("no")
        if self.enable_indexer and not get_platform().is_blackwell:
            raise ValueError("no")
    def cache(self):
        if self.kv_cache_dtype != "five":
            return
        if not get_platform().is_sm120:
            raise ValueError("no")
"""
CHECKS = TABLES["checks"]


def test_what_arguments_refuse_on_devices_alone_is_a_row(
    tmp_path: Path, refusals: ModuleType
) -> None:
    write(tmp_path / "sglang/srt/server_args.py", ARGUMENTS)
    write(tmp_path / "sglang/srt/utils/common.py", CHECKS)

    found = refusals.sglang_refusals(tmp_path, DEVICES)

    assert [(row["option"], row["value"], row["devices"]) for row in found] == [
        ("attention-backend", "four", [8.0, 12.0]),
        ("attention-backend", "one", [8.0, 9.0, 12.0]),
        ("decode-attention-backend", "one", [8.0, 9.0, 12.0]),
        ("enable-indexer", "true", [8.0, 9.0]),
        ("kv-cache-dtype", "five", [8.0, 9.0, 10.0]),
        ("prefill-attention-backend", "four", [8.0, 12.0]),
    ]
