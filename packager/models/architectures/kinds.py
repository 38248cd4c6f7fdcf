"""Tasks of models, and the refusal of models that generate no text.

Engines serve most of them through other interfaces than packager plans for, where figures of
generated tokens have no meaning.
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

WORDS = {
    "encoder-decoder": "an encoder-decoder, which translates one text into another",
    "speech": "a model that writes down speech",
    "classifier": "a classifier or reranker, which gives scores",
    "embedding": "an encoder or embedding model, which gives vectors",
    "draft": "a draft head, which only proposes tokens to another model",
}
HINTS = {
    "encoder-decoder": "packager plans decoders; transformers or CTranslate2 serve this model",
    "speech": "packager plans decoders of text; vLLM's own image serves /v1/audio/transcriptions",
    "classifier": "packager plans models that write text; serve this one with text-embeddings-"
    "inference, or with vLLM's own image and --runner pooling",
    "embedding": "packager plans models that write text; serve this one with text-embeddings-"
    "inference, or with vLLM's own image and --runner pooling",
    "draft": "name the model that it drafts for, and give this one with --draft",
}


TOWERS = ("vision_config", "audio_config", "vision_tower_config", "sound_config")


def sees(config: Mapping[str, Any]) -> bool:
    """Return whether a model reads images or sound beside texts, by its config.json."""
    return any(isinstance(config.get(part), Mapping) for part in TOWERS)


def check_kind(architecture: str, model: ModelFiles) -> Finding | None:
    """Refuse a model that does not write text, as what it is."""
    kind: Kind = kind_of(architecture)
    if kind in (*GENERATIVE, ""):
        shows = next((file.path for file in model.files if POOLING.fullmatch(file.path)), "")
        if not shows:
            return None
        message = f"the model has {shows!r}: {architecture} is used as {WORDS['embedding']}"
        return Finding("error", "model-not-generative", message, HINTS["embedding"])
    message = f"{architecture} is {WORDS[kind]}"
    return Finding("error", "model-not-generative", message, HINTS[kind])
