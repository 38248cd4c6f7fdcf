"""What vLLM makes of trained heads when it loads them: run with its packages on the path.

    PYTHON head_weights.py TARGET,METHOD[,HEAD] ...

The class of the head is built as a server builds it, and its own `load_weights` gets every tensor.
Without a head it is the MTP head of the target.  One line of JSON each, as `engine_weights` says.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import engine_weights

MTP = ("mtp.", "model.embed_tokens.", "lm_head.")


def told_of(target: str, method: str, head: str = "") -> dict[str, Any]:
    """Build the head's class, load its tensors and compare."""
    import torch
    from safetensors.torch import load_file
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model

    asked = {"method": method, "num_speculative_tokens": 3, **({"model": head} if head else {})}
    config = EngineArgs(
        model=target, max_model_len=128, enforce_eager=True, skip_tokenizer_init=True,
        speculative_config=asked,
    ).create_engine_config()  # fmt: skip
    config.device_config.device = torch.device("cpu")
    with set_current_vllm_config(config):
        if not parallel_state.model_parallel_is_initialized():
            meeting = Path(tempfile.mkdtemp(), "meeting").as_uri()
            parallel_state.init_distributed_environment(1, 0, meeting, 0, "gloo")
            parallel_state.initialize_model_parallel(1, 1)
        draft = config.speculative_config.draft_model_config
        model = initialize_model(vllm_config=config, model_config=draft)
    tensors: dict[str, Any] = {}
    for file in sorted(Path(head or target).glob("*.safetensors")):
        tensors |= load_file(file)
    if not head:
        tensors = {name: one for name, one in tensors.items() if name.startswith(MTP)}
    fills = engine_weights.FILLS
    first, second = (engine_weights.loaded_over(model, fill, tensors) for fill in fills)
    unfilled = (name for name in first if not engine_weights.same(first[name], second[name]))
    found = {"class": type(model).__name__, "unfilled": sorted(unfilled)}
    return {**found, "unread": engine_weights.unread(tensors, first)}


def main() -> None:
    """Print what is found of each."""
    import torch

    torch.set_default_dtype(torch.bfloat16)
    for words in sys.argv[1:]:
        try:
            found = told_of(*words.split(","))
        except Exception as error:
            traceback.print_exc()
            found = {"refused": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps({"asked": words, **found}), file=sys.__stdout__, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
