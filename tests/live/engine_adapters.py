"""What a version of vLLM makes of adapters when it loads them into its slots.

    PYTHON engine_adapters.py cuda ORDER

ORDER is a JSON list of `name`, `base` (a checkpoint), `place` (an adapter), `rank` of a slot, and
`rows`, which PEFT adds (`peft_adapters.py`).  The engine's own manager wraps the model and loads
each adapter; kernels are not asked.  A line of JSON each: `refused` has the engine's words,
`differs` what is in the slots otherwise than PEFT adds it, `unread` why it does not load the base.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine_weights import LONGEST, ROOT, configured, pretend_kernels, pretend_pictures


def pretend() -> None:
    """Have a GPU and its kernels, which nothing calls."""
    sys.path.append(str(ROOT / "scripts"))
    import _pretended_cuda

    _pretended_cuda.install()
    pretend_pictures()
    import torch
    from vllm.model_executor.models import registry

    pretend_kernels()
    _pretended_cuda.count_devices()
    registry._run_in_subprocess = lambda inspect: inspect()  # there, no device is pretended
    from vllm.platforms import current_platform

    wrapper = "vllm.lora.punica_wrapper.punica_cpu.PunicaWrapperCPU"  # the other's are kernels
    type(current_platform).get_punica_wrapper = classmethod(lambda *_: wrapper)
    torch.Tensor.pin_memory = lambda own, *_: own
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("cpu")


def main() -> int:
    pretend()
    import vllm

    order = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    for (base, rank), cases in itertools.groupby(order, lambda one: (one["base"], one["rank"])):
        manager = None
        try:
            model, config = weighed(Path(base), rank)
            told = {}
        except Exception as error:
            told = {"unread": words_of(error)}
        try:
            manager = None if told else manager_of(model, config)
        except Exception as error:
            told = {"refused": words_of(error)}
        for case in cases:
            found = told or loaded(manager, case)
            line = {"version": vllm.__version__, "name": case["name"], **found}
            print(json.dumps(line), file=sys.__stdout__, flush=True)
    os._exit(0)


class Kernel:
    """What computes experts on a GPU, which is never asked here."""

    impl: Any = types.SimpleNamespace(shared_experts=None)
    is_monolithic = False

    def supports_lora(self) -> bool:
        return True


def have_kernels_of_experts(model: Any) -> None:
    """Have what the engine makes of weights after it loaded them on a GPU."""
    try:
        from vllm.lora.layers import fused_moe
    except ImportError:
        return  # it knows no adapters of experts yet
    fused_moe.FusedMoEKernelModularImpl = types.SimpleNamespace
    fused_moe.FusedMoEModularMethod = lambda method, _: method
    fused_moe.FusedMoEWithLoRA.set_mapping = lambda *_: None
    for module in model.modules():
        if hasattr(module, "w13_weight"):
            type(module.quant_method).supports_internal_mk = True
            module.quant_method.moe_kernel = Kernel()
            module._ensure_moe_quant_config_init = lambda: None


def weighed(base: Path, rank: int) -> tuple[Any, Any]:
    """Return a model with its own weights, and the engine's configuration."""
    from safetensors.torch import load_file

    model, config = configured(base, enable_lora=True, max_lora_rank=rank, max_loras=1)
    tensors: dict[str, Any] = {}
    for file in sorted(base.glob("*.safetensors")):
        tensors |= load_file(file)
    model.load_weights(tensors.items())
    have_kernels_of_experts(model)
    return model, config


def manager_of(model: Any, config: Any) -> Any:
    """Return the engine's manager of adapters, which wraps the model's layers."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.lora import worker_manager

    embeddings = getattr(model, "embedding_modules", {})
    words: tuple[Any, ...] = (config, torch.device("cpu"), embeddings)
    if "lora_config" in worker_manager.WorkerLoRAManager.__init__.__annotations__:  # before 0.11
        scheduler = config.scheduler_config
        words = (
            scheduler.max_num_seqs,
            scheduler.max_num_batched_tokens,
            config.model_config.get_vocab_size(),
            config.lora_config,
            torch.device("cpu"),
            embeddings,
            getattr(model, "embedding_padding_modules", []),
        )
    manager = worker_manager.WorkerLoRAManager(*words)
    with set_current_vllm_config(config):
        try:
            manager.create_lora_manager(model, config)
        except TypeError:
            manager.create_lora_manager(model)
    return manager


def loaded(manager: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Load an adapter into the one slot, and compare what is in it with what PEFT adds."""
    from adapter_rows import differences
    from safetensors.torch import load_file
    from vllm.lora.request import LoRARequest

    try:
        manager.add_adapter(LoRARequest("one", 1, case["place"]))
        rows = Path(case["rows"])
        meant = load_file(rows) if rows.exists() else {}
        return {"differs": differences(meant, held(manager._adapter_manager))}
    except Exception as error:
        return {"refused": words_of(error)}
    finally:
        manager.remove_adapter(1)
        for module in manager._adapter_manager.modules.values():
            module.reset_lora(0)
        manager._adapter_manager.lora_index_to_id[:] = [None]


def held(manager: Any) -> Iterator[Any]:
    """Yield the rows of every layer that has a slot, with what is in the slot."""
    from adapter_rows import projected

    for name, module in manager.modules.items():
        if hasattr(module, "w13_lora_a_stacked"):
            yield from of_experts(module)
            continue
        is_head = "Logits" in type(module).__name__
        layer = manager.model.get_submodule(name) if not is_head else None
        weight = head_of(manager.model) if layer is None else module.base_layer.weight
        firsts, seconds = module.lora_a_stacked, module.lora_b_stacked
        if not isinstance(firsts, (tuple, list)):
            firsts, seconds = (firsts,), (seconds,)
        if "Embedding" in type(module).__name__:
            delta = firsts[0][0].double() @ seconds[0][0, 0].double().t()
        else:
            delta = summed(firsts, seconds, (0, 0))
        most = min(len(weight), len(delta))
        yield projected(weight[:most], delta[:most])


def of_experts(module: Any) -> Iterator[Any]:
    from adapter_rows import projected

    layer = module.base_layer
    layer = getattr(layer, "routed_experts", layer)
    for weights, kind in ((layer.w13_weight, "w13"), (layer.w2_weight, "w2")):
        firsts = getattr(module, f"{kind}_lora_a_stacked")
        seconds = getattr(module, f"{kind}_lora_b_stacked")
        for expert, weight in enumerate(weights):
            yield projected(weight, summed(firsts, seconds, (0, expert)))


def summed(firsts: Any, seconds: Any, at: tuple[int, int]) -> Any:
    """Return the products of the slices of a layer, one below the other."""
    import torch

    pairs = zip(firsts, seconds, strict=True)
    return torch.cat([second[at].double() @ first[at].double() for first, second in pairs])


def head_of(model: Any) -> Any:
    """Return the weight of the head, wherever a model that sees keeps it."""
    head = next(one for name, one in model.named_modules() if name.endswith("lm_head"))
    return getattr(head, "base_layer", head).weight


def words_of(error: Exception) -> str:
    import traceback

    traceback.print_exc()
    return " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST]


if __name__ == "__main__":
    sys.exit(main())
