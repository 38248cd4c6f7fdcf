"""Bytes that vLLM allocates for slots of adapters: run beside vLLM, on a pretended GPU.

    PYTHON adapter_slots.py ORDER

ORDER is a JSON list of `place` (a directory with config.json) and `settings`: rows of slots, rank,
devices, and whether slots are fully sharded.  The engine's own manager wraps a model whose weights
are on the device `meta`, where nothing is allocated and everything has its size.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from engine_adapters import have_kernels_of_experts, manager_of, pretend, words_of
from engine_weights import configured


def main() -> int:
    pretend()
    for row in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        for setting in row["settings"]:
            try:
                found: dict[str, Any] = {"bytes": slot_bytes(Path(row["place"]), *setting)}
            except Exception as error:
                found = {"refused": words_of(error)}
            line = {"place": row["place"], "setting": setting, **found}
            print(json.dumps(line), file=sys.__stdout__, flush=True)
    os._exit(0)


def slot_bytes(place: Path, slots: int, rank: int, devices: int, sharded: bool) -> int:
    """Return the bytes of all slots' matrices on the first device."""
    import torch

    model, config = configured(
        place,
        devices=devices,
        on="meta",
        enable_lora=True,
        max_loras=slots,
        max_lora_rank=rank,
        fully_sharded_loras=sharded,
        tensor_parallel_size=devices,
        load_format="dummy",
    )
    have_kernels_of_experts(model)
    manager = manager_of(model, config)._adapter_manager
    made = 0
    for module in manager.modules.values():
        kinds = (
            ("w13_lora_a", "w13_lora_b", "w2_lora_a", "w2_lora_b")
            if hasattr(module, "w13_lora_a_stacked")
            else ("lora_a", "lora_b")
        )
        for kind in kinds:
            stacked = getattr(module, f"{kind}_stacked")
            tensors = [stacked] if isinstance(stacked, torch.Tensor) else stacked
            made += sum(one.numel() * one.element_size() for one in tensors)
    return made


if __name__ == "__main__":
    sys.exit(main())
