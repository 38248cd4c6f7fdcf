"""Describes a draft's files in the engine's layout; reads only their headers.

Tensors get other names in a header of ours, before the same range of bytes; a
configuration is written anew; files get other names.  The model's files have no
part in it: heads lie in a directory of their own, and name the model by its path.

Refuses nothing: what does not fit was refused from the same headers when it was planned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from packager.core.image import Inline
from packager.core.model import ModelFile, TensorInfo
from packager.core.plan import Plan
from packager.core.serving import MODEL_DIR, MOUNTED_MODEL_DIR
from packager.core.techniques import WITHOUT_FILES, Draft
from packager.images.reshard import ReadHeader, rename_tensors
from packager.models.rules import INDEX
from packager.optimize.drafts.eagle import aux_layers, plain_name
from packager.optimize.drafts.layouts import NORMS, served_layout
from packager.optimize.drafts.medusa import place_of
from packager.optimize.drafts.numbers import mapping

CONFIG = "config.json"
ARCHITECTURES = {"eagle": "LlamaForCausalLMEagle", "eagle3": "LlamaForCausalLMEagle3"}


def convert_draft_layout(
    files: Sequence[ModelFile], config: Mapping[str, Any], plan: Plan, read_header: ReadHeader
) -> tuple[ModelFile, ...]:
    """Convert the draft's files to the format that the plan's engine reads."""
    draft = plan.draft
    if draft is None or draft.kind == "draft_model" or draft.kind in WITHOUT_FILES:
        return tuple(files)
    wanted = served_layout(draft, plan.container)
    if draft.kind == "medusa":
        named = plan.container.traits.drafts.medusa_file
        return _rewritten(files, read_header, medusa_names(wanted, draft), named=named)
    rename = eagle_names(draft) if wanted != draft.layout else _unchanged
    model_dir = MODEL_DIR if plan.weights == "baked" else MOUNTED_MODEL_DIR
    meant = eagle_config(config, draft, wanted, model_dir)
    if meant == dict(config):
        return _rewritten(files, read_header, rename)
    written = ModelFile(path=CONFIG, role="config", content=Inline(_json(meant)))
    others = [file for file in files if file.path != CONFIG]
    return _rewritten((written, *others), read_header, rename)


def medusa_names(layout: str, draft: Draft) -> Callable[[str], str]:
    """Return a renaming of heads' tensors to TGI's (`medusa`) or vLLM's (`blocks`) names."""

    def rename(name: str) -> str:
        place = place_of(TensorInfo(name=name, dtype="", shape=(), size=0, file=""))
        if place is None:
            return name.rpartition(".")[2]
        head, layer, what = place.head, place.layer, place.what
        if layout == "blocks":
            place_name = f"blocks.{head}.layers.{layer}.{what}"
            return f"lm_heads.{head}.weight" if layer < 0 else place_name
        if layer < 0:
            return f"{head}.{draft.head_layers}.weight"
        return f"{head}.{layer}.linear.{what}"

    return rename


def eagle_names(draft: Draft) -> Callable[[str], str]:
    """Return a renaming to the authors' tensor names: EAGLE-3's only layer is `midlayer`."""

    def rename(name: str) -> str:
        plain = plain_name(name)
        if draft.kind == "eagle3" and plain.startswith("layers.0."):
            return f"midlayer.{plain.removeprefix('layers.0.')}"
        return plain

    return rename


def eagle_config(
    config: Mapping[str, Any], draft: Draft, layout: str, model_dir: str
) -> dict[str, Any]:
    """Return a head's config.json for the image, without paths outside of it.

    Returned unchanged if it has none.
    """
    if layout == draft.layout == "speculators":
        return _with_verifier(config, model_dir)
    meant = _with_rope(config) if layout == draft.layout else _flat(config, draft)
    layers = aux_layers(config)
    if not layers:
        return meant
    # vLLM reads the first; SGLang the second, and means the layer before.
    before = [layer - 1 for layer in layers]
    nested = {**mapping(meant.get("eagle_config")), "eagle_aux_hidden_state_layer_ids": before}
    nested.setdefault("use_aux_hidden_state", True)
    return {
        **meant,
        "eagle_aux_hidden_state_layer_ids": list(layers),
        "eagle_config": nested,
    }


def _with_verifier(config: Mapping[str, Any], model_dir: str) -> dict[str, Any]:
    """Replace the verifier's path in the head's config by the model's path at run time."""
    meant = dict(config)
    stated = mapping(config.get("speculators_config"))
    if stated:
        verifier = {**mapping(stated.get("verifier")), "name_or_path": model_dir}
        meant["speculators_config"] = {**stated, "verifier": verifier}
    if layer := mapping(config.get("transformer_layer_config")):
        meant["transformer_layer_config"] = _with_rope(layer)
    return meant


def _flat(config: Mapping[str, Any], draft: Draft) -> dict[str, Any]:
    """Convert the config of a speculators head into its authors' format."""
    flat = _with_rope(mapping(config.get("transformer_layer_config")))
    flat |= {"architectures": [ARCHITECTURES[draft.kind]], "model_type": "llama"}
    if draft.kind == "eagle3":
        flat["draft_vocab_size"] = draft.vocab_size
    for key in ("target_hidden_size", "norm_before_residual", "torch_dtype", *NORMS):
        if config.get(key) is not None:
            flat[key] = config[key]
    flat.setdefault(
        "torch_dtype", {"fp16": "float16", "fp32": "float32"}.get(draft.dtype, "bfloat16")
    )
    flat["tie_word_embeddings"] = False
    return flat


def _with_rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Add the rotary embedding settings as transformers 4 reads them.

    Engines with that version ignore `rope_parameters`: they would silently use theta 10000 for
    every head, and few of its proposals would be accepted.
    """
    rope = mapping(config.get("rope_parameters"))
    if "rope_theta" not in rope or config.get("rope_theta") is not None:
        return dict(config)
    scaling = {name: value for name, value in rope.items() if name != "rope_theta"}
    scaled = scaling.get("rope_type", "default") != "default"
    earlier = {"rope_theta": rope["rope_theta"], **({"rope_scaling": scaling} if scaled else {})}
    return {**config, **earlier}


def _rewritten(
    files: Sequence[ModelFile],
    read_header: ReadHeader,
    rename: Callable[[str], str],
    *,
    named: str = "",
) -> tuple[ModelFile, ...]:
    weights = [file for file in files if file.role == "weights"]
    renames = rename is not _unchanged
    found: list[ModelFile] = []
    for file in files:
        if file.role == "weights":
            file = rename_tensors(file, read_header, rename) if renames else file
            file = replace(file, path=named) if named and len(weights) == 1 else file
        elif renames and file.path == INDEX:
            file = replace(
                file, content=Inline(_renamed_index(weights, read_header, rename)), sha256=""
            )
        found.append(file)
    return tuple(sorted(found, key=lambda file: file.path))


def _renamed_index(
    weights: Sequence[ModelFile], read_header: ReadHeader, rename: Callable[[str], str]
) -> bytes:
    headers = {file.path: read_header(file).tensors for file in weights}
    weight_map = {
        rename(tensor.name): path for path, tensors in headers.items() for tensor in tensors
    }
    total_size = sum(tensor.size for tensors in headers.values() for tensor in tensors)
    return _json({"metadata": {"total_size": total_size}, "weight_map": weight_map})


def _unchanged(name: str) -> str:
    return name


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, ensure_ascii=True, indent=2, sort_keys=True) + "\n").encode()
