"""Techniques as the planner decides them: quantization, draft, compilation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from packager.core.model import ModelRef
from packager.core.references import ModelReference
from packager.core.samples import CALIBRATION_TOKENS

DraftKind = Literal[
    "draft_model", "eagle", "eagle3", "peagle", "dflash", "medusa",
    "mtp", "ngram", "ngram_gpu", "suffix",
]  # fmt: skip
# Kinds without files of their own: an MTP head is among the model's (or is named), the others
# need none.
WITHOUT_FILES: frozenset[DraftKind] = frozenset({"mtp", "ngram", "ngram_gpu", "suffix"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A quantized format, with what its scales cost."""

    name: str  # `W4A16`, as in `Quantization.scheme`
    needs: str  # word of `Instance.formats`
    word: str  # for tables: `w4a16`
    bits: int
    group_size: int = 0  # 0: one scale for each output of a matrix
    scale_bytes: int = 2
    zero_bits: int = 0  # zero points beside each scale
    capabilities: tuple[float, float] | None = None  # first and last of GPUs; None: any has it
    option: str = ""  # of the method, that selects it; "": the method's only one


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """A quantized format of the weights, and how it comes about."""

    method: str  # how reached: `awq`, `gptq`, `fp8`, `smoothquant`
    scheme: str  # what results: `W4A16`, `W8A8-FP8`, `W8A16-FP8`, `W8A8-INT8`
    bits: int  # of a weight
    group_size: int = 0  # weights that share a scale; 0: a whole channel or tensor
    checkpoint_format: str = ""  # `compressed-tensors`, `awq`, `gptq`, `fp8`
    existing: bool = False  # the checkpoint is already quantized
    layout: Scheme | None = None  # what a weight will cost; None for an existing checkpoint
    options: tuple[tuple[str, str], ...] = ()  # of the method, as requested, sorted
    parameters_left_out: int = 0  # of matrices that our ignore list keeps whole
    experts_left_out: bool = False  # no routed expert is quantized; False of a dense model
    groups: tuple[LayerGroup, ...] = ()  # of a model with several schemes: all of them, in order

    @property
    def scales_cache(self) -> bool:
        """Whether scales of an FP8 KV cache are measured, too."""
        return any(
            not one.existing and (one.method == "kv" or "kv" in dict(one.options))
            for one in self.parts
        )

    @property
    def parts(self) -> tuple[Quantization, ...]:
        """What is done to parts of the model: itself, or of several schemes each once."""
        found = [one.quantization for one in self.groups if one.quantization is not None]
        return tuple(dict.fromkeys(found)) or (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizingOptions:
    """What a request says of quantizing beside what the plan makes of it."""

    method: str = ""  # as written: `awq,group=64`
    ignored: tuple[str, ...] = ()  # modules to leave whole, as written
    layers: tuple[str, ...] = ()  # `TARGET=METHOD`, as written
    tokens: int = CALIBRATION_TOKENS  # that each text is cut to
    seed: int = 0


def cache_option(quantization: Quantization | None) -> str:
    """Return what makes a KV cache FP8, as hints name it: measured scales do without kv_dtype."""
    measured = quantization is not None and quantization.scales_cache
    return "`kv` of --quantize and kv_dtype" if measured else "kv_dtype"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """The modules of a model that one target is the first to match."""

    target: str  # `re:.*\\.mlp\\..*`, as requested; `Linear` for the rest
    quantization: Quantization | None  # None: they stay as they are
    parameters: int  # of their matrices
    modules: int
    head: bool = False  # it is the head, outside of the layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Draft, with the figures that memory and checks need. Sizes in bytes."""

    kind: DraftKind
    reference: str = ""  # as the user named it; "" for kinds without files
    speculative_tokens: int
    weight_bytes: int = 0
    replicated: bool = False  # whole on every device (Medusa v1 heads in TGI), not split
    kv_bytes_per_token: int = 0
    kv_heads: int = 0  # that the cache is split by; 0: whole on every device
    version: str = ""  # of Medusa heads: `v1`, `v2`
    heads: int = 0  # Medusa heads, or MTP layers that the engine runs; 0 when unknown
    head_layers: int = 0  # Medusa only: residual layers of each head
    biased: bool = False  # Medusa only: whether those layers have a bias
    ref: ModelRef | None = None  # where its files are pinned; None where it has none
    license: str = ""  # as the catalog states it; "" when it does not
    layout: str = ""  # of its files: `transformers`, `eagle`, `speculators`, `dflash`, `medusa`,
    # `blocks`
    dtype: str = ""  # that most of its weights have
    attention_heads: int = 0  # that must divide among the devices; 0: none
    intermediate_size: int = 0
    vocab_size: int = 0  # that it proposes from; 0: the model's
    aux_layers: tuple[int, ...] = ()  # of EAGLE-3 and DFlash: the model's layers that feed it
    method: str = ""  # MTP only: what the engine calls it; "" where that goes without saying

    @property
    def has_files(self) -> bool:
        """Whether it has files beside the model's."""
        return self.kind not in WITHOUT_FILES or bool(self.reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRequest:
    """A draft as the user wrote it, parsed."""

    kind: DraftKind
    reference: str | None = None  # where its files are, as written; None for kinds without
    tokens: int | None = None  # written in the draft itself: `ngram:4`
    model: ModelReference | None = None  # the reference, parsed; None before it is looked up


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Option that the planner rejected, with its reason."""

    what: str  # `tp 2`, `quantize awq`, `family tgi`
    code: str  # a finding code
    reason: str
    instead: str = ""  # the way out: `use --family vllm`, `tp 4`
