"""Tasks of models, and the refusal of models that neither generate text nor give vectors or scores.

Figures of tokens have no meaning for them, and the engines that packager plans for do not have
them, or serve them on interfaces that nothing here measures or checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from packager.catalog.served_architectures import GENERATIVE, Kind, kind_of
from packager.core.findings import Finding
from packager.core.model import ModelFiles

# Files of sentence-transformers, which say what an architecture of a decoder does not.
POOLING = re.compile(
    r"(?:.*/)?(?:modules\.json|sentence_bert_config\.json|\d+_\w*Pooling/config\.json"
    r"|config_sentence_transformers\.json)",
    re.ASCII,
)

_TEI = "text-embeddings-inference"
# What each kind is, and where to go with it.
REFUSED: Mapping[Kind, tuple[str, str]] = {
    "encoder-decoder": (
        "an encoder-decoder, which turns one text, or a picture of it, into another",
        "packager plans decoders; transformers or CTranslate2 serve this model",
    ),
    "speech": (
        "a model that writes down speech",
        "packager plans decoders of text; vLLM's own image serves /v1/audio/transcriptions",
    ),
    "draft": (
        "a draft head, which only proposes tokens to another model",
        "name the model that it drafts for, and give this one with --draft",
    ),
    "tagger": (
        "a tagger, which gives every token a label of its own",
        "vLLM's own image serves it on /pooling, with --runner pooling; packager plans one answer "
        "for a text",
    ),
    "reader": (
        "a model that finds an answer in a text or among choices",
        "transformers' question-answering pipeline serves it; here a chat model answers from texts",
    ),
    "many-vector": (
        "a late-interaction model, which gives a vector for every token",
        "vLLM's own image serves it on /pooling and /score, with --runner pooling; PyLate "
        "indexes its vectors",
    ),
    "sparse": (
        "a sparse encoder, which gives weights of words",
        f"{_TEI} serves it with POOLING=splade, on /embed_sparse",
    ),
    "image": (
        "a model of pictures: it classifies, finds or measures what is in them",
        "Triton, TorchServe or transformers' pipelines serve it; packager plans language models",
    ),
    "sound": (
        "a model that hears: it classifies or encodes sound",
        "Triton or transformers' pipelines serve it; packager plans language models",
    ),
    "voice": (
        "a model that speaks or makes music",
        "vLLM-Omni, or the library of the model, serves it on /v1/audio/speech",
    ),
    "time-series": (
        "a model of time series",
        "serve it with its own library, such as AutoGluon or GluonTS; it reads numbers, not tokens",
    ),
    "protein": (
        "a model of proteins or molecules",
        "transformers or NVIDIA's BioNeMo serve it; its letters are no text of a tokenizer here",
    ),
    "agent": (
        "a model that chooses actions of a robot or a game",
        "serve it with its own library, such as LeRobot",
    ),
}

_OF_TIMM = "this model of timm"  # its config.json names no class
TOWERS = ("vision_config", "audio_config", "vision_tower_config", "sound_config")


def sees(config: Mapping[str, Any]) -> bool:
    """Return whether a model reads images or sound beside texts, by its config.json."""
    return any(isinstance(config.get(part), Mapping) for part in TOWERS)


def refuse_kind(architecture: str, model: ModelFiles) -> Finding | None:
    """Refuse a model that is not served as what it is; None for what may be planned."""
    if "chronos_config" in model.config:
        return _not_served(architecture, "time-series")
    if not architecture and isinstance(model.config.get("pretrained_cfg"), Mapping):
        return _not_served(_OF_TIMM, "image")
    if model.config.get("backbone_config") and kind_of(architecture) == "":
        return _not_served(architecture, "image")
    kind = kind_of(architecture)
    if kind in REFUSED:
        return _not_served(architecture, kind)
    if kind in (*GENERATIVE, "") and model.modules is None:
        shows = next((file.path for file in model.files if POOLING.fullmatch(file.path)), "")
        if shows:
            return _incomplete(architecture, shows)
    return None


def _not_served(architecture: str, kind: Kind) -> Finding:
    what, hint = REFUSED[kind]
    return Finding("error", "model-not-generative", f"{architecture} is {what}", hint)


def _incomplete(architecture: str, shows: str) -> Finding:
    message = (
        f"the model has {shows!r}, by which {architecture} gives vectors, and no 'modules.json' "
        "that says how: engines would serve it as a chat model"
    )
    hint = "get all of the model's files, or save it again: `SentenceTransformer(DIR).save(NEW)`"
    return Finding("error", "pooling-incomplete", message, hint)
