"""What SGLang makes of checkpoints when it loads them, as `engine_weights.py` says it of vLLM.

    PYTHON sglang_weights.py cuda CHECKPOINT...

A GPU is pretended, and packages of kernels that the serving base lacks are empty modules: classes
of models import them, and building and loading them calls none.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
import tempfile
import traceback
import types
from pathlib import Path
from typing import Any

from engine_weights import (
    FILLS,
    LONGEST,
    ROOT,
    USUAL,
    loaded_over,
    pretend_pictures,
    unread,
)
from engine_weights import same as equal

LACKING = frozenset({"IPython", "cuda", "cutlass", "gguf", "orjson", "sgl_kernel", "triton"})
RANKS = ("tp", "pp", "attn_tp", "attn_dp", "attn_cp", "moe_ep", "moe_tp", "moe_dp")


class Idle:
    """What stands for a kernel, a type or a decorator of them."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *given: Any, **_: Any) -> Any:
        return given[0] if given and callable(given[0]) else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Idle()

    def __class_getitem__(cls, _: Any) -> Any:
        return cls


class Deep(type):
    """A class of which every attribute is there, too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Idle()


class Empty(types.ModuleType):
    """A module that has whatever is asked for."""

    __version__ = "99.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Deep(name, (Idle,), {})


class Finder:
    """Finds the packages that are lacking."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        del path, target
        if name.partition(".")[0] not in LACKING:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return Empty(spec.name)

    def exec_module(self, module: Any) -> None:
        if module.__name__ == "triton":
            module.jit = lambda function=None, **_: function or (lambda own: own)
            module.autotune = module.heuristics = lambda *_, **__: lambda own: own
            module.cdiv = lambda count, size: -(-count // size)
            module.next_power_of_2 = lambda count: 1 << (count - 1).bit_length()
            target = types.SimpleNamespace(backend="cuda", arch=90, warp_size=32)
            active = types.SimpleNamespace(get_current_target=lambda: target)
            module.runtime = Empty("triton.runtime")
            module.runtime.driver = types.SimpleNamespace(active=active)


def pretend() -> None:
    """Have a GPU and packages of kernels."""
    sys.path.append(str(ROOT / "scripts"))
    import _pretended_cuda

    _pretended_cuda.install()
    pretend_pictures()
    import torch
    import torch._inductor.runtime.triton_compat  # both look for what is pretended below
    import tvm_ffi  # noqa: F401

    torch.compile = lambda model=None, *_, **__: model or (lambda own: own)
    torch.cuda.Stream = torch.cuda.Event = Idle
    torch.cuda.set_device = lambda _: None
    sys.meta_path.append(Finder())  # type: ignore[arg-type]
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("cpu")
    _pretended_cuda.on_processors().__enter__()


def main() -> int:
    pretend()
    import sglang

    meeting = Path(tempfile.mkdtemp(), "meeting").as_uri()
    for number, argument in enumerate(sys.argv[2:]):
        found = told_of(Path(argument), meeting if number == 0 else "")
        line = {"version": sglang.__version__, "place": argument, **found}
        print(json.dumps(line), file=sys.__stdout__, flush=True)
    os._exit(0)


def told_of(place: Path, meeting: str) -> dict[str, Any]:
    """Build the model's class, load the checkpoint and compare."""
    from safetensors.torch import load_file

    tensors: dict[str, Any] = {}
    for file in sorted(place.glob("*.safetensors")):
        tensors |= load_file(file)
    try:
        model, quantized = built(place, meeting)
        first, second = (loaded_over(model, fill, tensors) for fill in FILLS)
    except Exception as error:
        traceback.print_exc()
        words = " ".join(f"{type(error).__name__}: {error}".split())
        return {"refused": words[:LONGEST]}
    return {
        "quantized": quantized,
        "parameters": len(first),
        "unfilled": sorted(
            name
            for name in first
            if not USUAL.search(name) and not equal(first[name], second[name])
        ),
        "unread": unread(tensors, first),
    }


def built(place: Path, meeting: str) -> tuple[Any, str]:
    """Return the model of a checkpoint as the engine builds it, and what it computes with."""
    model, config, _ = configured(place, meeting)
    return model, str(config.quantization)


def configured(place: Path, meeting: str, **settings: Any) -> tuple[Any, Any, Any]:
    """Return the model as the engine builds it, its configuration and the server's."""
    import torch
    from sglang.srt import distributed
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.layers import dp_attention
    from sglang.srt.model_loader import loader
    from sglang.srt.runtime_context import get_parallel
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

    arguments = ServerArgs(
        model_path=str(place),
        device="cuda",
        skip_tokenizer_init=True,
        disable_cuda_graph=True,
        **settings,
    )
    set_global_server_args_for_scheduler(arguments)
    config, load = ModelConfig.from_server_args(arguments), LoadConfig()
    if meeting:
        distributed.init_distributed_environment(
            world_size=1, rank=0, local_rank=0, backend="gloo", distributed_init_method=meeting
        )
        distributed.initialize_model_parallel(backend="gloo")
        get_parallel().override_permanently(**{f"{rank}_rank": 0 for rank in RANKS})
        dp_attention.initialize_dp_attention(arguments)
    with torch.device("cpu"):
        scheme = loader._get_quantization_config(config, load)
        model = loader._initialize_model(config, load, scheme)
    return model, config, arguments


if __name__ == "__main__":
    sys.exit(main())
