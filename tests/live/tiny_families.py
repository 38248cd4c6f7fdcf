"""Random checkpoints of the families whose heads are trained: run in the trainers' environment.

    python tiny_families.py OUTPUT

GPT-OSS with experts in MXFP4 as OpenAI publishes them, Qwen3-MoE, and Qwen3-Next with its MTP head,
whose experts are stored one by one, in a shard that other tensors share.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from speculators.models.mtp.model_definitions import mtp_model_classes

TOKENIZER = Path(__file__).resolve().parents[2] / "examples/tiny-llama"
SIZES: dict[str, Any] = {
    "vocab_size": 2048, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def write(model: Any, place: Path) -> None:
    """Write a checkpoint with tiny-llama's tokenizer."""
    model.to(torch.bfloat16).save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, place / name)


def gpt_oss(place: Path) -> None:
    """Write GPT-OSS, and its experts anew in MXFP4."""
    config = transformers.GptOssConfig(
        **SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=32
    )
    write(transformers.GptOssForCausalLM(config), place)
    tensors = load_file(place / "model.safetensors")
    for name in [one for one in tensors if one.endswith(("gate_up_proj", "down_proj"))]:
        packed = to_mxfp4(tensors.pop(name).float().transpose(1, 2))
        tensors |= {f"{name}_blocks": packed[0], f"{name}_scales": packed[1]}
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    stated = json.loads((place / "config.json").read_text())
    whole = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
             "lm_head"]  # fmt: skip
    stated["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": whole}
    (place / "config.json").write_text(json.dumps(stated))


def to_mxfp4(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round blocks of 32 to 4 bits with a power of two each: two numbers a byte, the first low."""
    blocks = values.reshape(*values.shape[:-1], -1, 32)
    exponent = torch.floor(torch.log2(blocks.abs().amax(-1).clamp(min=2.0**-100))) - 2
    scaled = blocks / 2.0 ** exponent[..., None]
    code = (scaled.abs()[..., None] - FP4).abs().argmin(-1) + 8 * (scaled < 0)
    packed = code[..., 0::2] | (code[..., 1::2] << 4)
    return packed.to(torch.uint8).contiguous(), (exponent + 127).to(torch.uint8).contiguous()


def qwen3_next(place: Path) -> None:
    """Write Qwen3-Next in two shards; the second has the MTP head and the model's last tensors."""
    config = transformers.Qwen3NextConfig(
        **SIZES, **MIXTURE, shared_expert_intermediate_size=32, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
    )  # fmt: skip
    write(transformers.Qwen3NextForCausalLM(config), place)
    layer = mtp_model_classes["qwen3_next"].first_layer_class(config, layer_idx=0)
    torch.nn.init.normal_(layer.mlp.experts.gate_up_proj, std=0.02)
    torch.nn.init.normal_(layer.mlp.experts.down_proj, std=0.02)
    tensors = load_file(place / "model.safetensors")
    (place / "model.safetensors").unlink()
    last = {name: tensors.pop(name) for name in sorted(tensors)[-4:]} | mtp_tensors(layer)
    weight_map = {}
    for number, some in enumerate((tensors, last), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file(some, place / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(some, file)
    total = sum(one.nbytes for some in (tensors, last) for one in some.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))


def mtp_tensors(layer: Any) -> dict[str, torch.Tensor]:
    """Return the head as checkpoints store it: each expert for itself."""
    renamed = {"input_proj": "mtp.fc", "final_layernorm": "mtp.norm",
               "hidden_layernorm": "mtp.pre_fc_norm_hidden",
               "token_layernorm": "mtp.pre_fc_norm_embedding"}  # fmt: skip
    found: dict[str, torch.Tensor] = {}
    for name, value in layer.to(torch.bfloat16).state_dict().items():
        module, _, rest = name.partition(".")
        if name.endswith("experts.gate_up_proj"):
            for number, both in enumerate(value):
                for part, one in zip(("gate_proj", "up_proj"), both.chunk(2), strict=True):
                    found[f"mtp.layers.0.mlp.experts.{number}.{part}.weight"] = one.clone()
        elif name.endswith("experts.down_proj"):
            for number, one in enumerate(value):
                found[f"mtp.layers.0.mlp.experts.{number}.down_proj.weight"] = one.clone()
        elif module in renamed:
            found[f"{renamed[module]}.{rest}"] = value
        else:
            found[f"mtp.layers.0.{name}"] = value
    return found


def main() -> None:
    """Write all of them."""
    output = Path(sys.argv[1])
    torch.manual_seed(0)
    gpt_oss(output / "gpt-oss")
    mixture = transformers.Qwen3MoeConfig(**SIZES, **MIXTURE)
    write(transformers.Qwen3MoeForCausalLM(mixture), output / "qwen3-moe")
    qwen3_next(output / "qwen3-next")


if __name__ == "__main__":
    main()
