"""Mistral's own format of a model: `params.json`, consolidated weights and a tokenizer of its own.

Engines that read it translate its keys and the names of its tensors to those of transformers; so
does this module, for the planner alone.  The files go into the image as they are.
Source: vLLM, transformers_utils/configs/mistral.py and model_executor/models (llama.py,
mistral_large_3.py), 0.33.0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from packager.core.model import TensorInfo
from packager.core.tokenizer_files import TEKKEN

PARAMS = "params.json"
SINGLE = "consolidated.safetensors"
INDEX = "consolidated.safetensors.index.json"
TOKENIZER = re.compile(r"tokenizer(\.mm)?\.model\.v\d\w*")  # of mistral-common, by version
POSITIONS = 128_000  # where params.json does not say

_WEIGHTS = re.compile(r"consolidated.*\.safetensors")
_KEYS = {
    "dim": "hidden_size",
    "norm_eps": "rms_norm_eps",
    "n_kv_heads": "num_key_value_heads",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "tied_embeddings": "tie_word_embeddings",
    "max_seq_len": "max_position_embeddings",
}
_EXPERT_KEYS = {
    "num_experts": "n_routed_experts",
    "expert_hidden_dim": "moe_intermediate_size",
    "num_shared_experts": "n_shared_experts",
    "route_every_n": "moe_layer_freq",
}
_PARTS = {
    "layers": "model.layers",
    "tok_embeddings": "model.embed_tokens",
    "norm": "model.norm",
    "output": "lm_head",
    "attention": "self_attn",
    "attention_norm": "input_layernorm",
    "feed_forward": "mlp",
    "ffn_norm": "post_attention_layernorm",
    "wq": "q_proj",
    "wk": "k_proj",
    "wv": "v_proj",
    "wo": "o_proj",
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
    "experts": "mlp.experts",
    "shared_experts": "mlp.shared_experts",
    "gate": "mlp.gate",
    "qscale_weight": "weight_scale",
    "qscale_act": "input_scale",
}
_OF_LANGUAGE_MODEL = ("layers.", "tok_embeddings.", "norm.", "output.")


def is_consolidated(path: str) -> bool:
    """Return whether a weights file has the names of Mistral's own code in it."""
    return _WEIGHTS.fullmatch(path) is not None


def is_native(names: Collection[str], weights: Collection[str]) -> bool:
    """Return whether a model's files are in this format and in no other."""
    return PARAMS in names and bool(weights) and all(map(is_consolidated, weights))


def native_tokenizers(names: Iterable[str]) -> list[str]:
    """Return the tokenizers of mistral-common, the one that it prefers first."""
    found = sorted((name for name in names if TOKENIZER.fullmatch(name)), reverse=True)
    return [name for name in names if name == TEKKEN] + found


def translated_config(params: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return params.json in transformers' words; `stated` is config.json, which fills gaps."""
    text = {_KEYS.get(key, key): value for key, value in params.items()}
    positions = params.get("max_position_embeddings", params.get("max_seq_len"))
    text["max_position_embeddings"] = positions or stated.get("max_position_embeddings", POSITIONS)
    text.setdefault("tie_word_embeddings", False)
    window = text.get("sliding_window")
    if isinstance(window, list) and window:
        layers = text.get("num_hidden_layers")
        repeats = layers // len(window) if isinstance(layers, int) else 1
        kinds = ["full_attention" if one is None else "sliding_attention" for one in window]
        text["layer_types"] = kinds * max(1, min(repeats, 1000))
        text["sliding_window"] = next((one for one in window if one is not None), None)
    text |= _kind(text)
    method = text.pop("quantization", None)
    quantized = _quantization(method) if isinstance(method, Mapping) else {}
    config = {**_with_towers(text), **quantized}
    return {**{key: value for key, value in stated.items() if key not in _OWN}, **config}


_OWN = frozenset({"architectures", "model_type", "text_config", "vision_config", "audio_config"})


def _kind(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class that engines make of the language model, and its experts."""
    moe = text.get("moe")
    if isinstance(moe, Mapping) and moe:
        if moe.get("num_shared_experts"):
            named = {_EXPERT_KEYS.get(str(key), str(key)): moe[key] for key in moe}
            return {
                **named,
                "architectures": ["MistralLarge3ForCausalLM"],
                "model_type": "deepseek_v3",
            }
        return {
            "num_local_experts": moe.get("num_experts"),
            "num_experts_per_tok": moe.get("num_experts_per_tok"),
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
        }
    if text.get("model_type") == "mamba":
        return {"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2"}
    return {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}


def _with_towers(text: dict[str, Any]) -> dict[str, Any]:
    multimodal = text.pop("multimodal", None)
    multimodal = multimodal if isinstance(multimodal, Mapping) else {}
    sees = text.pop("vision_encoder", None) or multimodal.get("vision_encoder_args")
    hears = multimodal.get("whisper_model_args")
    if sees:
        kind, tower = "pixtral", {"vision_config": sees}
        return {
            "architectures": ["PixtralForConditionalGeneration"],
            "model_type": kind,
            "text_config": text,
            **tower,
        }
    if hears:
        encoder = hears.get("encoder_args") if isinstance(hears, Mapping) else None
        return {
            "architectures": ["VoxtralForConditionalGeneration"],
            "model_type": "voxtral",
            "text_config": text,
            "audio_config": encoder or {},
        }
    return text


def _quantization(stated: Mapping[str, Any]) -> dict[str, Any]:
    if stated.get("qformat_weight") == "fp8_e4m3":
        scheme = "dynamic" if stated.get("qscheme_act") == "NO_SCALES" else "static"
        return {"quantization_config": {"quant_method": "fp8", "activation_scheme": scheme}}
    return {"quantization_config": dict(stated)}


def translated_tensors(tensors: Iterable[TensorInfo]) -> tuple[TensorInfo, ...]:
    """Return tensors under the names that transformers gives them; towers keep theirs."""
    return tuple(
        tensor._replace(name=".".join(_PARTS.get(part, part) for part in tensor.name.split(".")))
        if tensor.name.startswith(_OF_LANGUAGE_MODEL)
        else tensor
        for tensor in tensors
    )
