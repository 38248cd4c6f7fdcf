"""What a model that gives vectors or scores does with the states of its last layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

# `rerank`: one score of a text or of a pair; `classify`: a score for each of several labels
PoolingTask = Literal["embed", "rerank", "classify", "reward"]
# Of the states of all tokens: the first, the mean, the last; "": as the engine has it by class.
PooledFrom = Literal["", "cls", "mean", "last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceModules:
    """What sentence-transformers' files state beside a model: `modules.json` and what it names."""

    types: tuple[str, ...]  # Python classes, in the order in which they are applied
    pooled: tuple[str, ...] = ()  # modes of pooling that are on: `mean`, `lasttoken`
    folders: tuple[str, ...] = ()  # of the modules that have files
    projections: tuple[tuple[int, int], ...] = ()  # sizes in and out of Dense modules
    projection_bytes: int = 0
    longest: int = 0  # tokens, `max_seq_length`; 0: as the model
    prompts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    default_prompt: str = ""  # the name of one of them
    truncates: int = 0  # elements of a vector that are kept; 0: all
    activation: str = ""  # the class by which logits become scores
    judged_by: tuple[int, int] | None = None  # tokens whose logits make a score: yes and no

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the classes' own names."""
        return tuple(one.rpartition(".")[2] for one in self.types)

    @property
    def normalizes(self) -> bool:
        return "Normalize" in self.kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """A pooling model as it is planned."""

    task: PoolingTask
    pooled: PooledFrom = ""
    normalizes: bool | None = None  # None: not stated
    is_causal: bool = False  # tokens see what came before alone: the engine keeps a cache
    labels: int = 0  # of scores
    size: int = 0  # elements of a vector; 0 of scores
    truncates: int = 0  # elements that are kept of them; 0: all
    truncations: tuple[int, ...] = ()  # sizes that the model is trained for
    is_truncatable: bool = False  # config.json lets requests choose a size
    is_converted: bool = False  # its class writes text, and only its files say otherwise
    is_linear: bool = False  # scores are the logits themselves
    judges: bool = False  # by the logits of `yes` and `no` after a template: Qwen3-Reranker
    template: str = ""  # of a judge's query and document, the model's own; "": Qwen's
    instruction: str = ""  # that a judge follows unasked; "": Qwen's
    lacks_positions: bool = False  # config.json does not state the kind of positions
    modules: SentenceModules | None = None
