"""A CUDA device that is not there, for vLLM's configuration checks on a machine without one.

`install` must run before vLLM is imported.  vLLM then finds a platform plug-in whose class is its
own CUDA platform; torch answers what it asks of the device, and the extension modules of a build
for CUDA are empty.  Nothing can be computed: `EngineArgs.create_engine_config` is what runs.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PLUGINS = "vllm.platform_plugins"
KERNELS = re.compile(
    r"vllm\.((.*\.)?(_\w*C\w*|cumem_allocator)"
    r"|vllm_flash_attn(\..*)?|third_party\.flashmla\.flash_mla_interface)",
    re.ASCII,
)
DEVICES = 16
# Of an image for CUDA, read in requirements/cuda.txt and vllm/third_party.
BROUGHT = frozenset({"cutlass", "deep_gemm", "flashinfer", "quack", "tilelang", "triton"})
SUPPORTED = (  # asked of the kernels where a model's classes are imported
    "cutlass_scaled_mm_supports_fp8",
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_scaled_mm_supports_fp4",
    "cutlass_group_gemm_supported",
    "cutlass_sparse_scaled_mm_supported",
)


def install(capability: tuple[int, int] = (9, 0), memory_bytes: int = 80 << 30) -> None:
    """Pretend to vLLM that CUDA devices of a compute capability and a memory size are present."""
    os.environ["VLLM_PLUGINS"] = "pretended"  # none of those that are installed
    import torch

    properties = types.SimpleNamespace(
        name="pretended",
        major=capability[0],
        minor=capability[1],
        total_memory=memory_bytes,
        multi_processor_count=132,
        uuid="0",
        is_integrated=False,
        warp_size=32,
        gcnArchName="",
        shared_memory_per_block_optin=227 << 10,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: DEVICES,
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: capability,
        "get_device_name": lambda *_: "pretended",
        "get_device_properties": lambda *_: properties,
        "mem_get_info": lambda *_: (memory_bytes, memory_bytes),
        "is_bf16_supported": lambda *_, **__: capability >= (8, 0),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch.version.cuda = "13.0"
    for name in SUPPORTED:
        setattr(torch.ops._C, name, lambda *_: True)
    sys.meta_path.append(Kernels())
    listed = importlib.metadata.entry_points

    def entry_points(**asked: Any) -> Any:
        found = listed(**asked)
        if asked.get("group") != PLUGINS:
            return found
        own = importlib.metadata.EntryPoint("pretended", f"{__name__}:platform_name", PLUGINS)
        return importlib.metadata.EntryPoints((*found, own))

    importlib.metadata.entry_points = entry_points


@contextlib.contextmanager
def kernel_packages() -> Iterator[None]:
    """Have packages of kernels that an image for CUDA brings, as stand-ins, for vLLM alone."""
    import _stand_ins

    class Missing(_stand_ins.Finder):
        def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
            frame = sys._getframe(1)
            while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
                frame = frame.f_back
            asks = "" if frame is None else str(frame.f_globals.get("__name__"))
            if not asks.startswith("vllm.") or name.partition(".")[0] not in BROUGHT:
                return None
            return super().find_spec(name, path, target)

    finder = Missing()
    sys.meta_path.append(finder)
    try:
        with on_processors():
            yield
    finally:
        sys.meta_path.remove(finder)


def on_processors() -> Any:
    """Return a mode in which what is made for a GPU is made in memory."""
    import torch
    from torch.overrides import TorchFunctionMode

    def here(value: Any) -> Any:
        is_gpu = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
        return torch.device("cpu") if is_gpu else value

    class OnProcessors(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            named = {name: here(value) for name, value in (kwargs or {}).items()}
            named.pop("pin_memory", None)
            if getattr(func, "__name__", "") in ("cuda", "pin_memory"):
                return args[0]
            return func(*map(here, args), **named)

    return OnProcessors()


def count_devices() -> None:
    """Replace counters of devices that vLLM has imported by name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and "cuda_device_count_stateless" in vars(module):
            module.cuda_device_count_stateless = lambda: DEVICES


def platform_name() -> str:
    """Return the path of the platform's class, as vLLM's plug-in interface requires."""
    from vllm.platforms.cuda import NonNvmlCudaPlatform

    class Pretended(NonNvmlCudaPlatform):
        @classmethod
        def is_fully_connected(cls, *_: Any) -> bool:
            return True

        @classmethod
        def device_count(cls) -> int:
            return DEVICES

    globals()["Pretended"] = Pretended
    return f"{__name__}.Pretended"


# The arguments of `find_spec` are the import system's.
# ruff: noqa: ARG002


class OverKernels(types.ModuleType):
    """A module of Python over kernels: whatever is imported from it is there, as an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda *_, **__: None})  # called or built, it is there


class Kernels(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find empty modules for the compiled ones that a source tree lacks."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if KERNELS.fullmatch(name) is None:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package="flash" in name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return OverKernels(spec.name) if "flash" in spec.name else None

    def exec_module(self, module: types.ModuleType) -> None:
        module.__doc__ = "Empty: this is a source tree."
