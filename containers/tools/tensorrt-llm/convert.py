"""Bring a checkpoint into TensorRT-LLM's form: python convert.py TASK.json

A program of its own: what it holds of the GPU's memory is free again when the build begins.
Both calls are TensorRT-LLM's own, those of its examples/ up to 1.2.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def convert(task: dict[str, Any]) -> None:
    """Write config.json and one file of weights a rank."""
    if task["quantize"]:
        quantize(task)
        return
    from tensorrt_llm import AutoModelForCausalLM, Mapping

    world = task["tp_size"] * task["pp_size"]
    for rank in range(world):
        mapping = Mapping(
            world_size=world, rank=rank, tp_size=task["tp_size"], pp_size=task["pp_size"]
        )
        model = AutoModelForCausalLM.from_hugging_face(
            task["model"], dtype=task["dtype"], mapping=mapping
        )
        model.save_checkpoint(task["output"], save_config=rank == 0)
        del model


def quantize(task: dict[str, Any]) -> None:
    """Calibrate with our texts; `calib_dataset` takes a directory with a column `text`."""
    from tensorrt_llm.quantization import quantize_and_export

    told = task["quantize"]
    quantize_and_export(
        model_dir=task["model"],
        device="cuda",
        calib_dataset=task["texts"],
        dtype=task["dtype"],
        qformat=told["qformat"],
        kv_cache_dtype=told["kv_cache_dtype"],
        calib_size=told["calib_size"],
        batch_size=1,
        calib_max_seq_length=told["calib_max_seq_length"],
        awq_block_size=told["awq_block_size"] or 128,
        output_dir=task["output"],
        tp_size=task["tp_size"],
        pp_size=task["pp_size"],
        cp_size=1,
        seed=told["seed"],
        tokenizer_max_seq_length=told["calib_max_seq_length"],
    )


if __name__ == "__main__":
    convert(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
