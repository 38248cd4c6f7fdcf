"""What SGLang makes of adapters when it loads them, as `engine_adapters.py` says it of vLLM.

    PYTHON sglang_adapters.py cuda ORDER

The engine's own manager is made anew for each adapter: it takes modules and rank from it.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine_adapters import words_of
from sglang_weights import configured, pretend


def main() -> int:
    pretend()
    import sglang

    meeting = Path(tempfile.mkdtemp(), "meeting").as_uri()
    for case in json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")):
        try:
            model, config, arguments = weighed(Path(case["base"]), meeting)
            found = loaded(model, config, arguments, case)
        except Exception as error:
            found = {"unread": words_of(error)}
        meeting = ""
        line = {"version": sglang.__version__, "name": case["name"], **found}
        print(json.dumps(line), file=sys.__stdout__, flush=True)
    os._exit(0)


def weighed(base: Path, meeting: str) -> tuple[Any, Any, Any]:
    """Return a model with its own weights, its configuration and the server's."""
    from safetensors.torch import load_file

    model, config, arguments = configured(base, meeting, lora_backend="torch_native")
    tensors: dict[str, Any] = {}
    for file in sorted(base.glob("*.safetensors")):
        tensors |= load_file(file)
    model.load_weights(tensors.items())
    return model, config, arguments


def loaded(model: Any, config: Any, arguments: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Load an adapter into a slot, and compare what is in it with what PEFT adds."""
    from adapter_rows import differences
    from safetensors.torch import load_file
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.lora.lora_manager import LoRAManager
    from sglang.srt.lora.lora_registry import LoRARef

    try:
        one = LoRARef(lora_name="one", lora_path=case["place"], pinned=False)
        manager = LoRAManager(
            base_model=model,
            base_hf_config=config.hf_config,
            max_loras_per_batch=2,
            load_config=LoadConfig(),
            dtype=config.dtype,
            server_args=arguments,
            lora_backend="torch_native",
            max_lora_rank=case.get("rank"),
            lora_paths=[one],
        )
        manager.fetch_new_loras({one.lora_id})
        slot = manager.memory_pool.get_buffer_id(one.lora_id)
        adapter = manager.loras[one.lora_id]
        rows = Path(case["rows"])
        meant = load_file(rows) if rows.exists() else {}
        return {"differs": differences(meant, held(manager, slot, adapter))}
    except Exception as error:
        return {"refused": words_of(error)}


def held(manager: Any, slot: int, adapter: Any) -> Iterator[Any]:
    """Yield the rows of every layer that has slots, with what is in this one."""
    from adapter_rows import projected

    rank, scaling = adapter.config.r, adapter.scaling
    layers = [module for layer in manager.lora_modules for module in layer.values()]
    for module in layers:
        if hasattr(module, "gate_up_lora_a_weights"):
            yield from of_experts(module, slot, rank, scaling)
            continue
        delta = summed(module.lora_a[slot], module.lora_b[slot], module.lora_offsets, rank)
        yield projected(module.base_layer.weight[: len(delta)], delta * scaling)
    if (embedding := manager.embed_tokens_module) is not None:
        first, second = embedding.embedding_A_buffer[slot], embedding.embedding_B_buffer[slot]
        delta = first[:rank].double().t() @ second[:, :rank].double().t()
        yield projected(embedding.base_layer.weight[: len(delta)], delta * scaling)
    if (head := manager.lm_head_module) is not None:
        first, second = head.lm_head_A_buffer[slot], head.lm_head_B_buffer[slot]
        delta = second[:, :rank].double() @ first[:rank].double()
        yield projected(head.base_layer.weight[: len(delta)], delta * scaling)


def of_experts(module: Any, slot: int, rank: int, scaling: float) -> Iterator[Any]:
    from adapter_rows import projected

    pairs = (
        (
            module.base_layer.w13_weight,
            module.gate_up_lora_a_weights,
            module.gate_up_lora_b_weights,
        ),
        (module.base_layer.w2_weight, module.down_lora_a_weights, module.down_lora_b_weights),
    )
    for weights, firsts, seconds in pairs:
        for expert, weight in enumerate(weights):
            first, second = firsts[slot][expert], seconds[slot][expert]
            most = len(second)
            offsets = (0, most // 2, most) if weights is module.base_layer.w13_weight else (0, most)
            yield projected(weight, summed(first, second, offsets, rank) * scaling)


def summed(first: Any, second: Any, offsets: Any, rank: int) -> Any:
    """Return the products of the slices of a layer, one below the other."""
    import torch

    slices = itertools.pairwise(offsets)
    return torch.cat(
        [
            second[start:end, :rank].double() @ first[at * rank : (at + 1) * rank].double()
            for at, (start, end) in enumerate(slices)
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
