"""What a version of vLLM makes of checkpoints when it loads them: names, parts and places.

    PYTHON engine_weights.py cuda|amx|cpu CHECKPOINT...

PYTHON has one version of vLLM on its path.  For each checkpoint the class of its model is built
as a server builds it, and its own `load_weights` gets every tensor; kernels are not asked.  One
line of JSON each: `refused` has the engine's words, `unfilled` the parameters that are not whole
afterwards, `misplaced` the tensors that are not in the parameter of their name (of Llama and
Mixtral, whose fusions are known here), and `unread` those whose values are in none at all.

`cuda` pretends a GPU, `amx` the instructions that this processor may lack; `cpu` pretends nothing.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import re
import sys
import tempfile
import traceback
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 300  # characters of a refusal
# What no checkpoint here has, and the engine does without: scales of attention and its cache, and
# the order of inputs, which is for weights that were ordered by activation.
USUAL = re.compile(r"\.attn\.([qkv]_(scale|zero_point)|prob_scale)$|g_idx(_sort_indices)?$")
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(w[123]|(?:gate|up|down)_proj)\.(.*)")
OF_EXPERTS = ({"w13": ("w1", "w3"), "w2": ("w2",)},
              {"w13": ("gate_proj", "up_proj"), "w2": ("down_proj",)})  # fmt: skip
FILLS = (1, 2)
KEPT = "input_scale"  # the engine compares it with what another expert gave, unless it is 1
CACHE_SCALES = ("self_attn.k_scale", "self_attn.v_scale")
SHAPES = "weight_shape"  # of the packed matrices: fused ones share a place
DERIVED = ".A_log"  # of Mamba: the engine keeps what it computes of it
os.environ.update(
    HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1"
)


def main() -> int:
    device, places = sys.argv[1], [Path(argument) for argument in sys.argv[2:]]
    if device == "cuda":
        sys.path.append(str(ROOT / "scripts"))
        import _pretended_cuda

        _pretended_cuda.install()
        pretend_pictures()
    import torch

    if device == "amx":
        torch.cpu._is_amx_tile_supported = lambda: True
    import vllm
    from vllm.model_executor.models import registry

    if device == "cuda":
        pretend_kernels()
        _pretended_cuda.count_devices()
        registry._run_in_subprocess = lambda inspect: inspect()  # there, no device is pretended
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("cpu")
    for place in places:
        found = {"version": vllm.__version__, "place": str(place), **told_of(place)}
        print(json.dumps(found), file=sys.__stdout__, flush=True)
    os._exit(0)


class Anything(type):
    """A class of which every attribute is there."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


def pretend_pictures() -> None:
    """Have torchvision, which the base lacks and classes of models that see import."""
    from _pretended_cuda import Kernels

    class Empty(types.ModuleType):
        __version__ = "0.28.0"

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return Anything(name, (), {})

    class Pictures(Kernels):
        def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
            del path, target
            if name.partition(".")[0] != "torchvision":
                return None
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

        def create_module(self, spec: Any) -> Any:
            return Empty(spec.name)

    sys.meta_path.append(Pictures())


class TritonConfig:
    """What a kernel is tuned with: some classes look at it when they are imported."""

    def __init__(self, kwargs: Any = None, **settings: Any) -> None:
        self.kwargs = kwargs
        self.__dict__.update({"num_stages": 1, "num_warps": 4, **settings})


def pretend_kernels() -> None:
    """Have operators of GPUs, which classes look up when they are built, and never call here."""
    import torch
    from vllm import (  # it registers what there is: before others are pretended
        _custom_ops,  # noqa: F401
        triton_utils,
    )

    known = torch._ops._OpNamespace.__getattr__

    def found(own: Any, name: str) -> Any:
        try:
            return known(own, name)
        except AttributeError:
            if name.startswith("__") or not own.name.endswith("_C"):
                raise
            return lambda *_, **__: None

    torch._ops._OpNamespace.__getattr__ = found
    torch.cuda.Stream = torch.cuda.Event = type(
        "Pretended", (), {"__init__": lambda *_, **__: None}
    )
    torch.cuda.current_device = lambda: torch.device("cpu")  # where parameters are made
    torch.accelerator.current_device_index = lambda: 0
    triton_utils.triton.Config = TritonConfig
    try:  # the newest asks for sizes of real models
        from vllm.v1.attention.backends.mla.prefill.flash_attn import FlashAttnPrefillBackend
    except ImportError:
        return
    FlashAttnPrefillBackend.supports_mla_dimensions = classmethod(lambda *_: True)


def told_of(place: Path) -> dict[str, Any]:
    """Build the model's class, load the checkpoint and compare."""
    from safetensors.torch import load_file

    tensors = {}
    for file in sorted(place.glob("*.safetensors")):
        tensors |= load_file(file)
    try:
        model, quantized = built(place)
        filled = [loaded_over(model, fill, tensors) for fill in FILLS]
    except Exception as error:
        traceback.print_exc()
        words = " ".join(f"{type(error).__name__}: {error}".split())
        return {"refused": words[:LONGEST]}
    first, second = filled
    return {
        "quantized": quantized,
        "parameters": len(first),
        "unfilled": sorted(
            name for name in first if not USUAL.search(name) and not same(first[name], second[name])
        ),
        "misplaced": misplaced(tensors, first),
        "unread": unread(tensors, first),
    }


def unread(tensors: dict[str, Any], parameters: dict[str, Any]) -> list[str]:
    """Return the names of tensors that lie in no parameter, as they are or transposed.

    Names and fusions differ by architecture; values are random, so that finding them is enough.
    Numbers of 8 bits and words of packed ones are not converted to find them.
    """
    import torch

    def may_be(tensor: Any, dtype: Any) -> bool:
        return dtype == tensor.dtype or tensor.dtype in (
            torch.bfloat16,
            torch.float16,
            torch.float32,
        )

    places: dict[Any, list[bytes]] = {}
    for whole in parameters.values():
        kinds = [whole, whole.transpose(-1, -2)] if whole.dim() > 1 else [whole]
        places.setdefault(whole.dtype, []).extend(map(content_of, kinds))
    return sorted(
        name
        for name, tensor in tensors.items()
        if not name.endswith((SHAPES, DERIVED))
        and not any(
            lies_in(content_of(tensor.to(dtype)), own)
            for dtype, own in places.items()
            if may_be(tensor, dtype)
        )
    )


def lies_in(content: bytes, places: list[bytes]) -> bool:
    return any(content in place for place in places)


def content_of(tensor: Any) -> bytes:
    import torch

    return bytes(tensor.contiguous().flatten().view(torch.uint8).numpy())


def built(place: Path) -> tuple[Any, str]:
    """Return the model of a checkpoint as the engine builds it, and what it computes with."""
    model, config = configured(place)
    return model, str(config.model_config.quantization)


def configured(place: Path, devices: int = 1, on: str = "cpu", **settings: Any) -> tuple[Any, Any]:
    """Return the model of a checkpoint as the engine builds it, and the engine's configuration.

    Of several devices it is the first one's part.
    """
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model

    arguments = EngineArgs(
        model=str(place),
        max_model_len=128,
        enforce_eager=True,
        skip_tokenizer_init=True,
        **settings,
    )
    config = arguments.create_engine_config()
    config.device_config.device = torch.device("cpu")
    with set_current_vllm_config(config):
        if parallel_state.model_parallel_is_initialized():
            parallel_state.destroy_model_parallel()  # that of experts is for models with experts
        else:
            meeting = Path(tempfile.mkdtemp(), "meeting").as_uri()
            parallel_state.init_distributed_environment(1, 0, meeting, 0, "gloo")
        parallel_state.initialize_model_parallel(1, 1)
        parallel_state.get_tp_group().world_size = devices
        with torch.device(on):
            model = initialize_model(vllm_config=config, model_config=config.model_config)
    return model, config


def loaded_over(model: Any, fill: int, tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters after loading over ones that were all `fill`.

    What is `fill` afterwards for one and another for the next was not in the checkpoint.
    """
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(KEPT):
                parameter.data.fill_(1)
                continue
            parameter.data.copy_(torch.full(parameter.shape, fill).to(parameter.dtype))
        model.load_weights(tensors.items())
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def misplaced(tensors: dict[str, Any], parameters: dict[str, Any]) -> list[str]:
    """Return the names of tensors whose values the parameter of that name does not hold.

    Experts and fused projections are parts of larger parameters, along the dimension that is as
    large as all parts together; some versions of the engine keep experts transposed.
    """
    own = {name.replace(".routed_experts.", "."): one for name, one in parameters.items()}
    found = []
    for name in tensors:
        if not name.endswith(SHAPES):
            whole, names = place_of(name, own)
            parts = [tensors[one] for one in names if one in tensors]
            there = whole is not None and len(parts) == len(names)
            if not (there and is_part(whole, parts, names.index(name))):
                found.append(name)
    return sorted(found)


def place_of(name: str, parameters: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return the parameter that a tensor is a part of, or None, and the names of all its parts."""
    if name.endswith(CACHE_SCALES):
        return parameters.get(name.replace("self_attn.", "self_attn.attn.")), [name]
    expert = EXPERT.fullmatch(name)
    if expert is not None:
        path, number, part, kind = expert.groups()
        spelling = next(one for one in OF_EXPERTS if part in one["w13"] + one["w2"])
        fused = next(one for one, parts in spelling.items() if part in parts)
        whole = parameters.get(f"{path}.{fused}_{kind}")
        names = [f"{path}.{number}.{one}.{kind}" for one in spelling[fused]]
        return None if whole is None else whole[int(number)], names
    path, _, kind = name.rpartition(".")
    above, _, part = path.rpartition(".")
    fused = next((one for one, parts in FUSED.items() if part in parts), part)
    whole = parameters.get(f"{above}.{fused}.{kind}" if above else name)
    names = [f"{above}.{one}.{kind}" for one in FUSED[fused]] if fused in FUSED else [name]
    return whole, names


def is_part(whole: Any, pieces: list[Any], at: int) -> bool:
    """Return whether a fused parameter holds the tensor of piece `at` at its place."""
    return any(
        one_way(turned, pieces, at)
        for turned in ([whole, whole.t()] if whole.dim() == 2 else [whole])
    )


def one_way(whole: Any, pieces: list[Any], at: int) -> bool:
    own = pieces[at]
    if own.numel() == 1 and whole.numel() in (1, len(pieces)):  # a scale for all, or for each
        return same(whole.flatten()[at if whole.numel() > 1 else 0], own.flatten()[0])
    if whole.dim() != own.dim():
        return False
    for dimension in range(whole.dim()):
        sizes = [piece.shape[dimension] for piece in pieces]
        others = all(
            whole.shape[one] == own.shape[one] for one in range(whole.dim()) if one != dimension
        )
        if others and whole.shape[dimension] == sum(sizes):
            return same(whole.narrow(dimension, sum(sizes[:at]), sizes[at]), own)
    return False


def same(one: Any, other: Any) -> bool:
    """Compare values, those of `other` as the type of `one` holds them."""
    import torch

    return torch.equal(one.float(), other.to(one.dtype).float())


if __name__ == "__main__":
    sys.exit(main())
