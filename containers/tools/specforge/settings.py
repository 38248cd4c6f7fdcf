"""What SpecForge is told: the head's shape, and the run.

Names and meanings are those of SpecForge 0.2.0, `specforge/config/schema.py`; it refuses names
that it does not know.  Paths are below the work directory, where the command runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packager_worker import Rejected

ARCHITECTURE = "LlamaForCausalLMEagle3"
RUN, DRAFT, TARGET, MAPPING = "run.json", "draft.json", "target", "mapping.pt"
GIVEN, TRAIN, CHECKPOINTS = "given", "features/train", "checkpoints"
RUN_ID = "head"

STATES = 3  # hidden states that SpecForge's heads read
SAVES = 20  # in a run

# What a head and a model say in the same words.
SHAPE = (
    "attention_bias", "bos_token_id", "eos_token_id", "head_dim", "hidden_size",
    "initializer_range", "intermediate_size", "max_position_embeddings", "num_attention_heads",
    "num_key_value_heads", "rms_norm_eps", "rope_parameters", "rope_scaling",
    "rope_theta", "vocab_size",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How the optimizer goes through the rows. SpecForge refuses a last step that is not full."""

    accumulation: int  # rows of each device in a step
    steps: int


def schedule(lengths: Sequence[int], devices: int, asked: Mapping[str, Any]) -> Schedule:
    """Have each step see about `batch_tokens`; what is left of the last epoch is not used."""
    mean = sum(lengths) / len(lengths)
    passes = -(-len(lengths) // devices) * asked["epochs"]
    wanted = round(asked["batch_tokens"] / (mean * devices))
    accumulation = min(max(1, wanted), passes)
    steps = passes // accumulation
    return Schedule(accumulation=accumulation, steps=min(steps, asked["max_steps"] or steps))


def aux_layers(asked: Sequence[int], model_layers: int) -> list[int]:
    """Give the layers whose input the head reads, or refuse them. They count from 0.

    The first has no layer before it, which is how SpecForge names them.
    """
    known = all(0 < layer < model_layers for layer in asked)
    if not known or not len(asked) == len(set(asked)) == STATES:
        raise Rejected(
            f"SpecForge's heads read the input of {STATES} different layers of the model, "
            f"not of {list(asked)} of its {model_layers}",
            "train with `--trainer speculators`",
        )
    return list(asked)


def draft_config(
    shape: Mapping[str, Any], layers: Sequence[int], draft_vocab_size: int
) -> dict[str, Any]:
    """Describe a head of one layer, as SpecForge and the authors of EAGLE-3 do."""
    meant = {name: shape[name] for name in SHAPE if shape.get(name) is not None}
    rope = meant.get("rope_parameters", {})
    if "full_attention" in rope:  # where layers differ, the head is one that sees all
        meant["rope_parameters"] = rope["full_attention"]
    return {
        **meant,
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "hidden_act": "silu",
        "pad_token_id": 0,
        "num_hidden_layers": 1,
        "draft_vocab_size": draft_vocab_size or shape["vocab_size"],
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        # vLLM reads the first.  SpecForge and SGLang read the second, and mean the layer before.
        "eagle_aux_hidden_state_layer_ids": list(layers),
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in layers],
            "use_aux_hidden_state": True,
        },
    }


def train_words(resume_from: str = "") -> list[str]:
    """Give the arguments of SpecForge's command that trains."""
    resumed = [f"training.resume_from={resume_from}"] if resume_from else []
    return ["train", "--config", RUN, *resumed]


def export_words(checkpoint: str, output: str) -> list[str]:
    """Give the arguments of the one that writes a checkpoint as SGLang reads it."""
    words = ["export", "--to", "sglang", "--checkpoint", checkpoint]
    return [*words, "--draft-config", DRAFT, "--output-dir", output]


def run_config(
    asked: Mapping[str, Any], plan: Schedule, *, devices: int, goes_on: bool, maps: bool
) -> dict[str, Any]:
    """Describe the run."""
    return {
        "run_id": RUN_ID,
        "output_dir": CHECKPOINTS,
        "model": {
            "target_model_path": TARGET,
            "draft_model_config": DRAFT,
            "draft_checkpoint_path": GIVEN if goes_on else None,
            "vocab_mapping_path": MAPPING if maps else "",
            "torch_dtype": "bfloat16",
        },
        "data": {
            "hidden_states_path": TRAIN,
            "max_length": asked["max_tokens"],
            "cache_dir": "cache",
            "dataloader_num_workers": 0 if devices == 0 else None,
        },
        "training": {
            "strategy": "eagle3",
            "num_epochs": asked["epochs"],
            "max_steps": plan.steps,
            "batch_size": 1,
            "accumulation_steps": plan.accumulation,
            "learning_rate": asked["learning_rate"],
            "ttt_length": asked["speculative_tokens"],
            "attention_backend": "sdpa",
            "fsdp_sharding": "NO_SHARD" if devices < 2 else "SHARD_GRAD_OP",
            "save_interval": max(1, plan.steps // SAVES),
            "max_checkpoints": 1,
            "log_interval": 1,
            "seed": asked["seed"],
        },
        "deployment": {
            "mode": "local_colocated",
            "trainer": {"nnodes": 1, "nproc_per_node": max(1, devices)},
        },
    }
