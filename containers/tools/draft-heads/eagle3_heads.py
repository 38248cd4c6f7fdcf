"""EAGLE-3 heads as speculators has them: new ones, given ones, and their files.

New heads are shaped as their authors': no norm before `fc`, residuals taken
before norms.  So every engine that knows EAGLE-3 can serve them, also those that
read the authors' format only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from packager_worker import BadInput, Rejected
from rows import Row
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from speculators.convert.eagle.eagle3_converter import Eagle3Converter
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.models.peagle.core import PEagleDraftModel
from speculators.train.cli import create_transformer_layer_config
from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

AUTHORS = {"midlayer.": "layers.0.", "model.": ""}
# Of the model, and loaded from there: no part of a head.
MODELS = ("embed_tokens.weight", "verifier_norm.weight", "verifier_lm_head.weight")
KEPT = (
    "architectures",
    "draft_vocab_size",
    "eagle_aux_hidden_state_layer_ids",
    "embed_requires_grad",
    "fc_norm",
    "norm_before_fc",
    "norm_before_residual",
    "norm_output",
    "speculators_config",
    "speculators_model_type",
    "speculators_version",
    "tie_word_embeddings",
)
LAYER_KEPT = (
    "attention_bias",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "max_position_embeddings",
    "mlp_bias",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
    "rope_parameters",
    "vocab_size",
)


def new_head(
    model: Path, asked: Mapping[str, Any], rows: Sequence[Row], attention: str, tokenizer: Any
) -> Eagle3DraftModel:
    """Make a head with random numbers; what it shares with the model is the model's."""
    shape = _new_shape(model, asked["layers"])
    size = asked["draft_vocab_size"] or shape.vocab_size
    d2t = t2d = None
    if size < shape.vocab_size:
        seen = Counter(
            token
            for row in rows
            for token, answered in zip(row.ids, row.answered, strict=True)
            if answered
        )
        d2t, t2d = build_vocab_mappings_from_distribution(dict(seen), size, shape.vocab_size)
    kind, more = Eagle3DraftModel, {}
    if asked["task"] == "peagle":
        unused = len(tokenizer) if len(tokenizer) < shape.vocab_size else None
        own = (tokenizer.mask_token_id, unused, tokenizer.pad_token_id, tokenizer.eos_token_id)
        token = next((one for one in own if one is not None), shape.vocab_size - 1)
        kind = PEagleDraftModel
        more = {"mask_token_id": token, "num_depths": asked["speculative_tokens"]}
    return kind.from_training_args(
        shape, t2d=t2d, d2t=d2t, draft_vocab_size=size, target_layer_ids=asked["aux_layers"],
        norm_before_residual=False, norm_before_fc=False, ttt_steps=asked["speculative_tokens"],
        verifier_name_or_path=str(model), draft_attn_impl=attention, **more,
    )  # fmt: skip


def _new_shape(model: Path, layers: int) -> Any:
    """Shape the head's layers as the model's, with the activation that engines have in heads."""
    try:
        shape = create_transformer_layer_config(
            str(model), layers, "llama", "silu", 0, full_attention_indices=list(range(layers))
        )
    except (AttributeError, ValueError) as error:
        raise Rejected(
            f"speculators cannot shape a head for this model: {str(error).splitlines()[0]}",
            "train Medusa heads",
        ) from error
    shape.sliding_window = None
    return shape


def given_head(
    place: Path, model: Path, asked: Mapping[str, Any], attention: str
) -> Eagle3DraftModel:
    """Load a head to go on with, in speculators' format or that of its authors."""
    tensors = _read(place)
    config = _config_of(place, model, tensors, asked)
    config.speculators_config.verifier.name_or_path = str(model)
    for proposal in config.speculators_config.proposal_methods:
        proposal.speculative_tokens = asked["speculative_tokens"]
    config.transformer_layer_config._attn_implementation = attention
    head = Eagle3DraftModel(config)
    own = head.state_dict()
    for name in own.keys() & tensors.keys():
        if own[name].shape != tensors[name].shape:
            raise Rejected(
                f"{name!r} of the given head has the shape {list(tensors[name].shape)}; "
                f"{list(own[name].shape)} is needed",
                "go on with a head that was trained for this model",
            )
    missing = own.keys() - tensors.keys() - {*MODELS, "lm_head.weight"}
    unknown = tensors.keys() - own.keys() - {"d2t", "t2d"}
    if missing or unknown:
        said = f"lacks {min(missing)!r}" if missing else f"has {min(unknown)!r}, which none has"
        raise BadInput(f"the given head is no EAGLE-3 head of its configuration: it {said}")
    known = {name: tensor for name, tensor in tensors.items() if name in own}
    head.load_state_dict(known, strict=False)
    try:
        head.load_verifier_weights()
    except (RuntimeError, ValueError) as error:
        raise Rejected(
            f"the given head does not fit the model: {str(error).splitlines()[0]}",
            "go on with a head that was trained for this model",
        ) from error
    return head


def write_head(head: Eagle3DraftModel, output: Path) -> None:
    """Write what engines load. No path of the model: an image says where it lies there."""
    state = {name: value for name, value in head.state_dict().items() if name not in MODELS[1:]}
    tensors = {
        name: value.to("cpu", torch.bfloat16 if value.is_floating_point() else None).contiguous()
        for name, value in state.items()
    }
    save_file(tensors, output / "model.safetensors", metadata={"format": "pt"})
    whole = head.config.to_dict()
    config = {name: whole[name] for name in (*KEPT, "mask_token_id") if name in whole}
    config |= {"architectures": [type(head).__name__], "torch_dtype": "bfloat16"}
    config["speculators_config"]["verifier"]["name_or_path"] = None
    shape = head.config.transformer_layer_config.to_dict()
    layer = {name: shape[name] for name in LAYER_KEPT}
    config["transformer_layer_config"] = layer | _earlier_rope(layer["rope_parameters"])
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (output / "config.json").write_text(text, encoding="utf-8")


def _earlier_rope(rope: Mapping[str, Any]) -> dict[str, Any]:
    """Say it as transformers 4 reads it, too: engines with that one know `rope_parameters` not."""
    scaling = {name: value for name, value in rope.items() if name != "rope_theta"}
    said = {"rope_theta": rope["rope_theta"]}
    return said if scaling == {"rope_type": "default"} else {**said, "rope_scaling": scaling}


def _config_of(
    place: Path, model: Path, tensors: Mapping[str, torch.Tensor], asked: Mapping[str, Any]
) -> Eagle3SpeculatorConfig:
    try:
        config = json.loads((place / "config.json").read_text(encoding="utf-8"))
        if config.get("speculators_model_type"):
            return Eagle3SpeculatorConfig.from_dict(config)
        return _authors_config(config, model, tensors, asked)
    except (OSError, ValueError, TypeError) as error:
        said = str(error).splitlines()[0]
        raise BadInput(f"config.json of the given head cannot be used: {said}") from error


def _authors_config(
    config: dict[str, Any],
    model: Path,
    tensors: Mapping[str, torch.Tensor],
    asked: Mapping[str, Any],
) -> Eagle3SpeculatorConfig:
    """Say in speculators' words what the authors' format says."""
    known = len(tensors["t2d"]) if "t2d" in tensors else config["vocab_size"]
    flat = {
        **config,
        "target_vocab_size": known,
        "draft_vocab_size": config.get("draft_vocab_size") or known,
    }
    made: Eagle3SpeculatorConfig = Eagle3Converter()._build_eagle3_speculator_config(
        flat, str(model), norm_before_residual=bool(config.get("norm_before_residual")),
        eagle_aux_hidden_state_layer_ids=list(asked["aux_layers"]),
    )  # fmt: skip
    return made


def _read(place: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for file in sorted(place.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as opened:
                found |= {_plain(name): opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise BadInput(f"{file.name} of the given head cannot be read: {error}") from error
    return found


def _plain(name: str) -> str:
    """Give a tensor's name as speculators has it."""
    for theirs, ours in AUTHORS.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name
