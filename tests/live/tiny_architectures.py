"""Random checkpoints of many architectures, a few layers each: run in the tool environment.

    python tiny_architectures.py OUTPUT [--wide] [NAME ...]

Models that see have a processor beside them, whose tokens are those that tiny-llama has for roles.

Hidden size 64, or 128 where they are wide: heads of 32 are the smallest that vLLM's attention
computes on processors, and latent and linear attention have one size each there.  In both
groups of 32 divide everything; the tokenizer is tiny-llama's.  Norms and some columns are far
from 1, as in real checkpoints: with flat ones, folding a scale into the wrong norm would hardly
show.
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

TOKENIZER = Path(__file__).resolve().parents[2] / "examples/tiny-llama"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")

BASE: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
HEAD = {"head_dim": 16}
WIDE = {
    ("hidden_size", 64): 128,
    ("intermediate_size", 128): 256,
    ("head_dim", 16): 32,
    ("ffn_dim", 128): 256,
    ("word_embed_proj_dim", 64): 128,
    ("out_hidden_size", 64): 128,
    ("q_lora_rank", 32): 64,
    ("kv_lora_rank", 32): 512,  # with the next, the one size that vLLM's CPU kernel has
    ("qk_rope_head_dim", 16): 64,
    ("qk_nope_head_dim", 16): 32,
    ("v_head_dim", 16): 32,
    ("linear_key_head_dim", 16): 128,  # as its kernel wants it
    ("linear_value_head_dim", 16): 128,
    ("linear_num_value_heads", 4): 16,  # packed weights have multiples of 32 outputs there
    ("mrope_section", (2, 3, 3)): [4, 6, 6],
}
MLA = {
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}
VISION = {"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2}
CLIP = {
    "model_type": "clip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
    "projection_dim": 32,
}
SIGLIP = {name: value for name, value in CLIP.items() if name != "projection_dim"} | {
    "model_type": "siglip_vision_model",
    "vision_use_head": False,
}
# Published checkpoints spell these towers as the library did before its fifth release.
TOWERS_AS_PUBLISHED = dict.fromkeys(("llava", "gemma3-vl"), "vision_tower.vision_model.")
PIXTRAL = {
    "model_type": "pixtral",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 14,
}
LLAMA_TEXT = {"model_type": "llama", **BASE}

# Tokens of a picture, among those that the tokenizer has.
SEEN = {
    "image_token": "<|system|>",
    "boi_token": "<|user|>",
    "vision_start_token": "<|user|>",
    "eoi_token": "<|assistant|>",
    "vision_end_token": "<|assistant|>",
    "video_token": "!",
}
QWEN_TOKENS = {
    "image_token_id": 3,
    "vision_start_token_id": 4,
    "vision_end_token_id": 5,
    "video_token_id": 6,
}
SMALL = {"height": 28, "width": 28}
PIXELS = {"shortest_edge": 28 * 28, "longest_edge": 64 * 64}
COLOURS = {  # said in full: vLLM leaves colours as they are where Qwen's processor does not say
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.3, 0.25, 0.2],
}


def _of_qwen(kind: str, generation: str, patch_size: int) -> dict[str, Any]:
    pixels = {"size": PIXELS, "merge_size": 2, "temporal_patch_size": 2, **COLOURS}
    pixels["patch_size"] = patch_size
    return {
        "processor_class": kind,
        "image_processor": {"image_processor_type": "Qwen2VLImageProcessor", **pixels},
        "video_processor": {"video_processor_type": f"{generation}VideoProcessor", **pixels},
    }


# name → processor_config.json
PROCESSORS: dict[str, dict[str, Any]] = {
    "llava": {
        "processor_class": "LlavaProcessor",
        "image_processor": {
            "image_processor_type": "CLIPImageProcessor",
            **COLOURS,
            "size": {"shortest_edge": 28},
            "crop_size": SMALL,
        },
        "image_token": SEEN["image_token"],
        "num_additional_image_tokens": 1,
        "patch_size": 14,
        "vision_feature_select_strategy": "default",
    },
    "gemma3-vl": {
        "processor_class": "Gemma3Processor",
        "image_processor": {
            "image_processor_type": "Gemma3ImageProcessor",
            **COLOURS,
            "size": SMALL,
            "do_pan_and_scan": False,
        },
        "image_seq_length": 1,
    },
    "mistral3": {
        "processor_class": "PixtralProcessor",
        "image_processor": {
            "image_processor_type": "PixtralImageProcessor",
            **COLOURS,
            "size": {"longest_edge": 56},
            "patch_size": 14,
        },
        "image_token": SEEN["image_token"],
        "image_break_token": SEEN["boi_token"],
        "image_end_token": SEEN["eoi_token"],
        "patch_size": 14,
        "spatial_merge_size": 2,
    },
    "qwen2-vl": _of_qwen("Qwen2VLProcessor", "Qwen2VL", 14),
    "qwen2.5-vl": _of_qwen("Qwen2_5_VLProcessor", "Qwen2VL", 14),
    "qwen3.5": _of_qwen("Qwen3VLProcessor", "Qwen3VL", 16),
}

# name → class of the model, class of its configuration, what differs from BASE
ZOO: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {}),
    "llama-mha": ("LlamaForCausalLM", "LlamaConfig", {"num_key_value_heads": 4}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", HEAD),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": 64}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", HEAD),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**HEAD, "sliding_window": 64}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**HEAD, "sliding_window": 64}),
    "phi": ("PhiForCausalLM", "PhiConfig", {"num_key_value_heads": 4}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {}),
    "mixtral": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {"num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "qwen2-moe": (
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 64},
    ),
    "qwen3-moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**EXPERTS, **HEAD, "num_experts": 4}),
    "qwen3-next": (
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        {
            **EXPERTS,
            **HEAD,
            "num_experts": 4,
            "shared_expert_intermediate_size": 64,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "gpt-oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {**HEAD, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 64},
    ),
    "deepseek-v3": (
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        {
            **EXPERTS,
            **MLA,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "n_group": 2,
            "topk_group": 1,
            "topk_method": "noaux_tc",  # transformers takes these two for granted, vLLM reads them
            "scoring_func": "sigmoid",
            "first_k_dense_replace": 1,
            "num_nextn_predict_layers": 1,
        },
    ),
    "deepseek-v2": (
        "DeepseekV2ForCausalLM",
        "DeepseekV2Config",
        {
            **EXPERTS,
            **MLA,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
    ),
    "glm4-moe": (
        "Glm4MoeForCausalLM",
        "Glm4MoeConfig",
        {
            **EXPERTS,
            **HEAD,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
    ),
    "olmoe": ("OlmoeForCausalLM", "OlmoeConfig", {"num_experts": 4, "num_experts_per_tok": 2}),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", {"num_key_value_heads": 4}),
    "glm4": ("Glm4ForCausalLM", "Glm4Config", HEAD),
    "granite": ("GraniteForCausalLM", "GraniteConfig", {}),
    "granite-moe": (
        "GraniteMoeForCausalLM",
        "GraniteMoeConfig",
        {"num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", {"num_key_value_heads": 4}),
    "gpt-neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {}),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {"ffn_dim": 128, "word_embed_proj_dim": 64, "intermediate_size": None},
    ),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"n_layer": 2, "n_head": 4}),
    "falcon-7b": (
        "FalconForCausalLM",
        "FalconConfig",
        {"multi_query": True, "new_decoder_architecture": False, "tie_word_embeddings": False},
    ),
    "falcon-40b": (
        "FalconForCausalLM",
        "FalconConfig",
        {"num_kv_heads": 2, "new_decoder_architecture": True, "tie_word_embeddings": False},
    ),
    "cohere": ("CohereForCausalLM", "CohereConfig", {}),
    "cohere2": ("Cohere2ForCausalLM", "Cohere2Config", {"sliding_window": 64}),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256},
    ),
    "qwen2-vl": (
        "Qwen2VLForConditionalGeneration",
        "Qwen2VLConfig",
        {
            **QWEN_TOKENS,
            "text_config": {
                **BASE,
                "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
            },
            "vision_config": VISION,
        },
    ),
    "qwen2.5-vl": (
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen2_5_VLConfig",
        {
            **QWEN_TOKENS,
            "text_config": {
                **BASE,
                "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
            },
            "vision_config": {
                "depth": 1,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_heads": 2,
                "out_hidden_size": 64,
                "fullatt_block_indexes": [0],
            },
        },
    ),
    "qwen3.5": (
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5Config",
        {
            **QWEN_TOKENS,
            "text_config": {
                **BASE,
                **HEAD,
                "linear_key_head_dim": 16,
                "linear_value_head_dim": 16,
                "linear_num_key_heads": 2,
                "linear_num_value_heads": 4,
                "layer_types": ["linear_attention", "full_attention"],
            },
            "vision_config": {
                "depth": 1,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_heads": 2,
                "out_hidden_size": 64,
            },
        },
    ),
    "llava": (
        "LlavaForConditionalGeneration",
        "LlavaConfig",
        {"text_config": LLAMA_TEXT, "vision_config": CLIP, "image_token_index": 3},
    ),
    "mistral3": (
        "Mistral3ForConditionalGeneration",
        "Mistral3Config",
        {
            "text_config": {"model_type": "mistral", **BASE, **HEAD},
            "vision_config": PIXTRAL,
            "image_token_index": 3,
        },
    ),
    "gemma3-vl": (
        "Gemma3ForConditionalGeneration",
        "Gemma3Config",
        {
            "text_config": {**BASE, **HEAD, "sliding_window": 64},
            "vision_config": SIGLIP,
            "mm_tokens_per_image": 1,
            "image_token_index": 3,
            "boi_token_index": 4,
            "eoi_token_index": 5,
        },
    ),
}


def make(name: str, output: Path, *, wide: bool = False) -> Path:
    """Write the checkpoint of `name` below `output`, in bfloat16."""
    model_class, config_class, differing = ZOO[name]
    nested = "text_config" in differing
    sizes = ({} if nested else BASE) | differing
    if wide:
        sizes = _widened(sizes)
    config = getattr(transformers, config_class)(**sizes)
    torch.manual_seed(len(name))
    model = getattr(transformers, model_class)(config).to(torch.bfloat16)
    _roughen(model)
    place = output / name
    model.save_pretrained(place)
    if name in TOWERS_AS_PUBLISHED:
        _rename(place, "vision_tower.", TOWERS_AS_PUBLISHED[name])
    if getattr(config, "num_nextn_predict_layers", 0):
        _add_draft_layer(place, config.num_hidden_layers)
    for file in TOKENIZER_FILES:
        shutil.copy(TOKENIZER / file, place)
    if name in PROCESSORS:
        _write_json(place / "processor_config.json", PROCESSORS[name])
        told = json.loads((place / "tokenizer_config.json").read_text())
        _write_json(place / "tokenizer_config.json", {**told, "extra_special_tokens": SEEN, **SEEN})
    if name == "gemma3-vl":
        _have_newlines(place / "tokenizer.json")
    return place


def _have_newlines(file: Path) -> None:
    """Have up to four newlines be tokens, as Gemma's, in place of the last merged ones."""
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    model = tokenizer["model"]
    del model["merges"][-4:]
    for number, word in enumerate(sorted(model["vocab"], key=model["vocab"].__getitem__)[-4:], 1):
        newlines = "\n" * number
        model["vocab"][newlines] = model["vocab"].pop(word)
        row = {**tokenizer["added_tokens"][-1], "special": False}
        tokenizer["added_tokens"].append(
            {**row, "id": model["vocab"][newlines], "content": newlines}
        )
    _write_json(file, tokenizer)


def _write_json(place: Path, value: dict[str, Any]) -> None:
    place.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _widened(sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of a wide model, those of its parts too."""

    def widened(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return _widened(value)
        return WIDE.get((key, tuple(value) if isinstance(value, list) else value), value)

    return {key: widened(key, value) for key, value in sizes.items()}


def _rename(place: Path, start: str, published: str) -> None:
    file = place / "model.safetensors"
    tensors = {
        published + name.removeprefix(start) if name.startswith(start) else name: tensor
        for name, tensor in load_file(file).items()
    }
    save_file(tensors, file, metadata={"format": "pt"})


def _add_draft_layer(place: Path, layers: int) -> None:
    """Add the layer that only drafting loads: a copy of the last one and what joins it to them."""
    file = place / "model.safetensors"
    tensors = load_file(file)
    last, added = f"model.layers.{layers - 1}.", f"model.layers.{layers}."
    copies = {
        name.replace(last, added): tensor.clone()
        for name, tensor in tensors.items()
        if name.startswith(last)
    }
    norm = tensors["model.norm.weight"]
    copies[f"{added}eh_proj.weight"] = torch.randn(len(norm), 2 * len(norm)).to(norm.dtype)
    for name in ("enorm", "hnorm", "shared_head.norm"):
        copies[f"{added}{name}.weight"] = norm.clone()
    save_file(tensors | copies, file, metadata={"format": "pt"})


@torch.no_grad()
def _roughen(model: Any) -> None:
    """Spread norms' weights around their neutral value, and give two channels outliers."""
    for name, parameter in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            continue  # sharp attention makes every error large
        if parameter.ndim == 1 and name.endswith("weight"):
            factors = torch.exp(torch.randn_like(parameter, dtype=torch.float32) * 0.5)
            factors[:2] *= 6
            gain = parameter.float() if parameter.float().mean() > 0.5 else 1 + parameter.float()
            rough = gain * factors
            offset = 0.0 if parameter.float().mean() > 0.5 else 1.0
            parameter.copy_((rough - offset).to(parameter.dtype))
        elif parameter.ndim == 1 and name.endswith("bias"):
            parameter.copy_(torch.randn_like(parameter) * 0.05)


def main() -> None:
    """Write those that are named, or all."""
    output, names = Path(sys.argv[1]), sys.argv[2:]
    wide = "--wide" in names
    for name in [one for one in names if one != "--wide"] or ZOO:
        make(name, output, wide=wide)


if __name__ == "__main__":
    main()
