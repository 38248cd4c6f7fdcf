"""A load format for vLLM that loads a checkpoint as usual and writes what each rank then has.

vLLM's own way of saving (`save_sharded_state`) writes what kernels have made of the weights,
and loads it back where kernels expect what was in the checkpoint.  Where both are the same it
works; on processors, and with most formats of quantized weights, it does not.  Here a rank is
written between the two: when its parameters are filled, and before they are processed.

Imported by vLLM in every process, by an entry point of `vllm.general_plugins`.
"""

from __future__ import annotations

import copy
import os
from typing import Any

NAME = "packager_ranks"
INTO = "PACKAGER_RANKS_INTO"
PART_BYTES = "PACKAGER_RANKS_PART_BYTES"


def register() -> None:
    """Add the load format."""
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader

    class RankSaver(DefaultModelLoader):  # type: ignore[misc, unused-ignore]
        def __init__(self, load_config: Any) -> None:
            plain = copy.copy(load_config)
            plain.load_format = "auto"  # it compares names of formats with those it knows
            super().__init__(plain)

        def load_weights(self, model: Any, model_config: Any) -> None:
            super().load_weights(model, model_config)
            ShardedStateLoader.save_model(
                model, os.environ[INTO], max_size=int(os.environ[PART_BYTES])
            )

    register_model_loader(NAME)(RankSaver)
