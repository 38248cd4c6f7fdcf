"""Directories that are no model for engines here: what they are, and where to go with them.

Names of files alone decide, before a download.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MERGE = (
    "`AutoPeftModelForCausalLM.from_pretrained(DIR).merge_and_unload().save_pretrained(NEW_DIR)`"
)
_CONFIG, _ADAPTER = "config.json", "adapter_config.json"
_ADAPTER_WEIGHTS = "adapter_model.safetensors"
_PICKLED = re.compile(r"pytorch_model[-\w.]*\.bin", re.ASCII)
_EXPORTED = "give the repository or directory that it was exported from"


@dataclass(frozen=True, slots=True)
class _Sign:
    """A file by which a kind of directory is recognised."""

    path: re.Pattern[str]  # of lowered paths
    what: str
    hint: str


def _sign(path: str, what: str, hint: str) -> _Sign:
    return _Sign(re.compile(rf"(?:.*/)?(?:{path})", re.ASCII), what, hint)


# Of directories with weights of another kind beside them, whatever else they have.
_ALWAYS = (
    _sign(
        r"model_index\.json",
        "a pipeline of diffusers, which makes pictures, video or sound",
        "give a language model; vLLM-Omni and SGLang's `multimodal_gen` serve such pipelines",
    ),
    _sign(
        r"gliner_config\.json",
        "a GLiNER model, which finds entities",
        "serve it with its own library: `GLiNER.from_pretrained(DIR)`",
    ),
    _sign(
        r"open_clip_(?:config|model|pytorch_model)\.\w+",
        "an OpenCLIP model, which compares pictures with texts",
        "give the repository that transformers reads (CLIPModel, SiglipModel); text-embeddings-"
        "inference serves neither, infinity-emb does",
    ),
    _sign(
        r"mlc-chat-config\.json|ndarray-cache\.json",
        "a model compiled for MLC LLM",
        "give the model that it was compiled from",
    ),
)
# Of directories without safetensors at their root.
_WITHOUT_WEIGHTS = (
    _sign(
        r".*\.llamafile", "a llamafile: a program with its model", "run it, or give the original"
    ),
    _sign(r"openvino_\w*model\.(?:xml|bin)", "a model exported to OpenVINO", _EXPORTED),
    _sign(
        r"saved_model\.pb|.*\.(?:tflite|keras)|tf_model\.h5",
        "a model of TensorFlow",
        "give its safetensors, or convert it: `AutoModel.from_pretrained(DIR, from_tf=True)`",
    ),
    _sign(r".*\.(?:mlmodel|mlpackage(?:/.*)?|mlmodelc(?:/.*)?)", "a model for Core ML", _EXPORTED),
    _sign(
        r".*\.(?:engine|plan)",
        "an engine of TensorRT, which one GPU and one version of it read",
        "give the model: `--container-version` of LMI's TensorRT-LLM compiles it",
    ),
    _sign(r".*\.nemo", "a NeMo archive", "export it to transformers' files with NeMo first"),
    _sign(r".*\.pte", "a program of ExecuTorch", _EXPORTED),
    _sign(r".*\.pdparams|.*\.pdmodel", "a model of PaddlePaddle", "give its safetensors"),
    _sign(
        r".*\.(?:ftz|fasttext)|lid\.176\.bin",
        "a fastText model",
        "its own library answers from memory, and needs no server of this kind",
    ),
    _sign(
        r".*\.(?:joblib|skops|pkl)",
        "a model of scikit-learn or another pickle",
        "serve it with MLServer or BentoML; pickles run code when they are loaded",
    ),
    _sign(
        r"config\.cfg",
        "a pipeline of spaCy",
        "serve it with its own library: `spacy.load(DIR)`",
    ),
    _sign(
        r"(?:yolo\w*|rtdetr\w*)[-\w.]*\.(?:pt|onnx|engine)",
        "a detector of Ultralytics",
        "serve it with its own library; here language models are packaged",
    ),
    _sign(
        r"shared_vocabulary\.(?:txt|json)|source_vocabulary\.(?:txt|json)",
        "a model converted for CTranslate2",
        "give the model that it was converted from; CTranslate2's own server takes this one",
    ),
    _sign(r".*\.msgpack", "weights of Flax", "give the same model's safetensors"),
    _sign(r"rwkv\S*\.pth", "a RWKV model of its own trainer", "give the `…-HF` repository"),
)


def kind_of_directory(
    weights: tuple[str, ...],
    others: Iterable[str],
    left_out: Mapping[str, str],
    *,
    is_native: bool = False,
    is_draft: bool = False,
) -> tuple[str, str] | None:
    """Describe a directory that engines cannot load as a model, and the remedy.

    `weights` are its safetensors at the root, `others` the other packaged files.
    """
    names = frozenset((*weights, *others, *left_out))
    is_model = _CONFIG in names
    for sign in _ALWAYS:
        if any(sign.path.fullmatch(name.lower()) for name in names if "/" not in name):
            return sign.what, sign.hint
    if "modules.json" in names and not is_model:
        return _sentence_transformer(names)
    if _ADAPTER in names and (not is_model or weights == (_ADAPTER_WEIGHTS,)):
        return ("an adapter, not a model", f"merge it into its base model: {MERGE}")
    if is_draft and is_native:
        return (
            "a draft in Mistral's own format ('params.json' with consolidated weights)",
            "get the files for transformers: 'config.json' and 'model.safetensors'",
        )
    return None if weights else _foreign(names, left_out)


def _sentence_transformer(names: frozenset[str]) -> tuple[str, str]:
    """Describe a model of sentence-transformers without a transformer at its root."""
    what = "a model of sentence-transformers"
    static = next((name for name in names if "StaticEmbedding" in name), "")
    if static:
        return (
            f"{what} with a table of vectors and no transformer ({static!r})",
            "its own library answers from memory faster than a server of this kind",
        )
    inner = next((path for path in sorted(names) if path.endswith("/config.json")), "")
    where = inner.rpartition("/")[0] or "0_Transformer"
    return (
        f"{what} whose transformer is in a directory of its own, {where!r}",
        "save it again, which puts it at the root beside the files that say how to pool: "
        "`SentenceTransformer(DIR).save(NEW_DIR)`",
    )


def _foreign(names: frozenset[str], left_out: Mapping[str, str]) -> tuple[str, str] | None:
    quantized = [name for name in left_out if name.lower().endswith((".gguf", ".ggml"))]
    if quantized:
        example = quantized[0].rpartition("/")[2]
        return (
            f"a model in GGUF ({example!r})",
            "give the repository that it was made from, or write safetensors of it: "
            f"`AutoModelForCausalLM.from_pretrained(DIR, gguf_file={example!r})"
            ".save_pretrained(NEW_DIR)`",
        )
    if any(_PICKLED.fullmatch(name) for name in names):
        return None  # what converts it is said elsewhere
    exported = [name for name in left_out if name.lower().endswith(".onnx")]
    found = ((sign, name) for sign in _WITHOUT_WEIGHTS for name in sorted(names))
    for sign, name in found:
        if sign.path.fullmatch(name.lower()):
            return f"{sign.what} ({name!r})", sign.hint
    return (f"a model exported to ONNX ({exported[0]!r})", _EXPORTED) if exported else None
