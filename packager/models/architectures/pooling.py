"""Models that give vectors or scores: which task, pooled from which tokens, by class and files.

Engines recognise them in other ways than sentence-transformers does, and fall back to a way of
pooling of their own unasked: what is read here is rendered outright.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from packager.catalog.served_architectures import GENERATIVE, kind_of
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.pooling import PooledFrom, Pooling, PoolingTask, SentenceModules
from packager.models.architectures.reading import text_config

RANKS = "text-ranking"  # a model card's task
# Classes that write text, whose published rerankers judge by the logits of `yes` and `no`.
JUDGES = frozenset(("Qwen3ForCausalLM",))
JUDGED = ("query", "document")  # roles of the messages that a reranker's template is filled with

_SCORES = re.compile(r"For(Sequence)?Classification|ForRanking$", re.ASCII)
_REWARDS = re.compile(r"RewardModel", re.ASCII)
_BOTH_WAYS = re.compile(r"Bidirec", re.ASCII)
# Types of models whose tokens see all others; of others, config.json says so.
_ENCODERS = re.compile(
    r".*(bert|roberta|electra|mpnet|ernie|xlm|t5|camembert)(?!.*decoder).*|new|gte.*|nomic.*"
    r"|clip.*|siglip.*",
    re.ASCII,
)
# Modes of pooling of sentence-transformers that an engine has.
_MODES: Mapping[str, PooledFrom] = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
_KNOWN = frozenset(
    ("Transformer", "Pooling", "Dense", "Normalize", "Dropout", "LogitScore", "Activation")
)
_OWN = "sentence_transformers."
_POSITIONS = "position_embedding_type"  # which transformers 5 no longer writes
# Positions that are kept for padding before the first token.
_SHIFTED = frozenset(("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"))


def read_pooling(architecture: str, model: ModelFiles) -> Pooling | None:
    """Return how a model gives vectors or scores; None for one that writes text."""
    kind, modules, config = kind_of(architecture), model.modules, model.config
    if kind in (*GENERATIVE, ""):
        if modules is None and not (model.stated_task == RANKS and architecture in JUDGES):
            return None
        task: PoolingTask = "rerank" if modules is None or modules.judged_by else "embed"
    elif _REWARDS.search(architecture):
        task = "reward"
    elif kind == "classifier" or _SCORES.search(architecture):
        task = "rerank" if labels_of(config) == 1 else "classify"
    else:
        task = "embed"
    text = text_config(config)
    judges = task == "rerank" and kind in (*GENERATIVE, "")
    return Pooling(
        task=task,
        pooled=_pooled(modules) if task == "embed" else "",
        normalizes=modules.normalizes if modules is not None else None,
        is_causal=_is_causal(architecture, text),
        labels=0 if task == "embed" else 1 if task == "rerank" else labels_of(config),
        size=_size(text, modules) if task == "embed" else 0,
        truncates=modules.truncates if modules is not None else 0,
        truncations=_truncations(config),
        is_truncatable=config.get("is_matryoshka") is True or bool(_truncations(config)),
        is_converted=kind in (*GENERATIVE, ""),
        is_linear=modules is not None and modules.activation == "Identity",
        judges=judges,
        template=_template(model) if judges else "",
        instruction=modules.prompts.get(modules.default_prompt, "") if judges and modules else "",
        lacks_positions=str(text.get("model_type")) in _SHIFTED and _POSITIONS not in text,
        modules=modules,
    )


def longest_of(pooling: Pooling, model: ModelFiles, positions: int) -> int:
    """Return the longest text in tokens: positions, and what the model's files limit it to.

    vLLM limits an encoder to its tokenizer's length, sentence-transformers every model.
    """
    stated = text_config(model.config)
    if str(stated.get("model_type")) in _SHIFTED:
        padding = stated.get("pad_token_id", 1)
        positions -= padding + 1 if type(padding) is int and 0 <= padding < positions else 0
    limits = (pooling.modules.longest if pooling.modules else 0, model.tokenizer_longest)
    return min((positions, *filter(None, limits)))


def labels_of(config: Mapping[str, Any]) -> int:
    """Return the scores that a classifier gives: two where config.json states none."""
    for key in ("num_labels", "_num_labels"):
        if type(config.get(key)) is int:
            return max(1, int(config[key]))
    named = config.get("id2label")
    return len(named) if isinstance(named, Mapping) and named else 2


def check_pooling(architecture: str, pooling: Pooling, model: ModelFiles) -> Iterator[Finding]:
    """Find what no engine does with a model's vectors as its files state it."""
    if isinstance(model.config.get("vision_config"), Mapping):
        message = f"{architecture} gives vectors of pictures beside those of texts"
        hint = "vLLM's own image serves it with --runner pooling; packager plans vectors of texts"
        yield Finding("error", "pooling-unsupported", message, hint)
        return
    modules = pooling.modules
    if modules is None:
        yield from _check_unstated(architecture, pooling)
        return
    for one in modules.types:
        name = one.rpartition(".")[2]
        if name in _KNOWN and one.startswith(_OWN):
            continue
        message = f"'modules.json' names {one[:80]!r}, which engines do not have"
        hint = "sentence-transformers itself serves it; engines would leave this module out"
        yield Finding("error", "pooling-unsupported", message, hint)
    if pooling.task == "embed" and len(set(modules.pooled)) > 1:
        modes = " and ".join(modules.pooled)
        message = f"vectors are pooled in several ways at once ({modes}), and engines take one"
        hint = "sentence-transformers itself serves it"
        yield Finding("error", "pooling-unsupported", message, hint)
    elif modules.pooled and not _MODES.get(modules.pooled[0]):
        message = f"vectors are pooled by {modules.pooled[0]!r}; engines have cls, mean, lasttoken"
        hint = "sentence-transformers itself serves it"
        yield Finding("error", "pooling-unsupported", message, hint)


def _check_unstated(architecture: str, pooling: Pooling) -> Iterator[Finding]:
    if pooling.task != "embed":
        return
    if architecture.endswith("ForMaskedLM"):
        message = f"{architecture} fills in masked words, and nothing says how it gives vectors"
        hint = "take a model that is trained for vectors, with 'modules.json', or a fine-tune of it"
        yield Finding("error", "model-not-generative", message, hint)
        return
    message = (
        "no 'modules.json' says how vectors are pooled: the mean of all tokens is planned, as "
        "sentence-transformers does, and not the engine's own way"
    )
    hint = "if the model's card says otherwise, save it with those modules first"
    yield Finding("warning", "pooling-unstated", message, hint)


def _template(model: ModelFiles) -> str:
    """Return the model's own template where it writes a query and a document; "" of a chat."""
    text = model.chat_template.text if model.chat_template else ""
    return text if all(re.search(rf"[\"']{role}[\"']", text) for role in JUDGED) else ""


def _pooled(modules: SentenceModules | None) -> PooledFrom:
    if modules is None:
        return "mean"
    return _MODES.get(modules.pooled[0], "") if modules.pooled else ""


def _is_causal(architecture: str, config: Mapping[str, Any]) -> bool:
    if _BOTH_WAYS.search(architecture) or config.get("is_causal") is False:
        return False
    if config.get("use_bidirectional_attention") in (True, "all"):
        return False
    model_type = config.get("model_type")
    return not (isinstance(model_type, str) and _ENCODERS.fullmatch(model_type.lower()))


def _size(config: Mapping[str, Any], modules: SentenceModules | None) -> int:
    if modules is not None and modules.projections:
        return modules.projections[-1][1]
    stated = config.get("hidden_size", config.get("dim"))
    return stated if type(stated) is int and stated > 0 else 0


def _truncations(config: Mapping[str, Any]) -> tuple[int, ...]:
    stated = config.get("matryoshka_dimensions")
    if not isinstance(stated, list):
        return ()
    return tuple(sorted({size for size in stated[:64] if type(size) is int and size > 0}))
