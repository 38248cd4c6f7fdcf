"""A model as the planner sees it: where it is pinned, its files, its shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from packager.core.image import Blob, FileRange, Inline, RemoteRange
from packager.core.parsers import ChatTemplate
from packager.core.pooling import Pooling, SentenceModules

FileRole = Literal["weights", "config", "tokenizer", "other"]
FileFormat = Literal["transformers", "mistral"]
ModelOrigin = Literal["local", "hub", "s3", "other"]  # `other`: of a source from outside
KvKind = Literal["full", "sliding", "chunked", "mla", "compressed", "sums", "state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """A model pinned so that another machine finds the same bytes.

    `name` never contains a local path: it goes into labels and cache keys.
    """

    source: ModelOrigin
    name: str  # `org/name` on a hub; the last part of a path elsewhere
    revision: str = ""  # commit on a hub; "" for a local directory

    @property
    def published_name(self) -> str:
        """Return the name under which others know the model; "" where a directory was named."""
        return "" if self.source in ("local", "s3") else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file that goes into the image."""

    path: str  # relative to the model's root, POSIX, NFC
    role: FileRole
    content: FileRange | RemoteRange | Inline | Blob
    executable: bool = False
    sha256: str = ""  # hexadecimal, where the source already proves it
    part_of: str = ""  # the same of the file that all of `content`'s ranges are of
    origin: str = field(default="", compare=False)  # of a file on this disk: where other machines
    # find the same bytes, `hf://…` (see `remote.addresses`) or `cache://KIND/KEY/PATH`

    @property
    def size(self) -> int:
        return self.content.length


class TensorInfo(NamedTuple):
    """One tensor as a safetensors header declares it: a model may have 100 000 of them."""

    name: str
    dtype: str  # safetensors spelling: `BF16`, `F8_E4M3`, `I32`
    shape: tuple[int, ...]
    size: int  # bytes
    file: str  # path of the shard


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsHeader:
    """Header of a safetensors file."""

    tensors: tuple[TensorInfo, ...]  # in the order of their bytes, without a gap
    metadata: Mapping[str, str]  # `__metadata__`
    data_offset: int  # of the first tensor's first byte in the file


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleValues:
    """Statistics of the scales of packed weights. Tensors by name, in the files' order."""

    read_bytes: int
    total_bytes: int  # more than was read where the scales are too many to read them all
    not_finite: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()  # 0 from the first to the last
    some_zero: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadValues:
    """Values of a draft head's own vocabulary, and the tokens that end the model's answers.

    None where the head has no such tensor, or one that is too large for a vocabulary.
    """

    d2t: tuple[int, ...] | None = None  # how far each token of the head is from the model's
    t2d: tuple[int, ...] | None = None  # of each token of the model: 0 where the head lacks it
    token_map: tuple[int, ...] | None = None  # of Medusa heads: the model's tokens themselves
    end_tokens: tuple[int, ...] = ()  # sorted


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """How weights become those that a plan sees, while they are read."""

    held: str  # how the source holds them, in words
    identity: str  # what is computed, with the version of the arithmetic
    source: tuple[ModelFile, ...]  # the source's weights; () where they alone do not decide it


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """Files of a resolved model: everything the planner may look at."""

    ref: ModelRef
    files: tuple[ModelFile, ...]
    config: Mapping[str, Any]  # config.json, or params.json in its words
    tensors: tuple[TensorInfo, ...]
    file_format: FileFormat = "transformers"  # `mistral`: `config` and `tensors` are translated
    left_out: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # path → why the file is not packaged
    chat_template: ChatTemplate | None = None  # None without one, and of drafts
    picture_settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    # of the processor of pictures; {} without one
    modules: SentenceModules | None = None  # of sentence-transformers, None without them
    stated_task: str = ""  # of the model card
    tokenizer_longest: int = 0  # tokens of a text that the tokenizer states; 0: any
    conversion: Conversion | None = None  # of weights that become others while they are read

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.size for tensor in self.tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """Layers that keep the same of a sequence: keys and values, a latent, or a state.

    Engines hand out cache for groups of equal layers, so layers of different kinds, windows
    or sizes are different groups.  Order: as the kinds appear first in the model.
    """

    # `mla`: one latent for all heads; `compressed`: latents of several tokens each; `sums`: what is
    # not compressed yet; `state`: linear attention, Mamba, convolution
    kind: KvKind
    layers: int
    kv_heads: int = 0  # of one layer; of latents 1; of `state` 0
    head_dim: int = 0  # of a key; of latents all of it with its rotary part
    value_dim: int = 0  # of a value; 0: as `head_dim`; `mla` keeps no value of its own
    window_tokens: int = 0  # that it looks back at most; the chunk of `chunked`
    state_bytes: int = 0  # of one sequence in one layer of `state`; does not grow with tokens
    mixed_elements: int = 0  # of a state: of its convolution, whose type an engine's option sets
    recurrent_elements: int = 0  # of the rest of it, if another option sets their type
    entry_tokens: int = 1  # that one entry of `compressed` stands for
    entry_bytes: int = 0  # of an entry whatever type the cache has; 0: as `head_dim` says
    eight_bit_bytes: int = 0  # of an entry in a cache of 8 bits with its scales; 0: half of 16 bits
    block_tokens: int = 0  # of the blocks that the engine gives it out in; 0: as all others


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """The numbers that decide memory and parallelism. Sizes in bytes."""

    architecture: str  # `LlamaForCausalLM`
    parameters: int  # 0 if the quantized layout does not state it
    weight_bytes: int
    dtype: str  # dominant 16- or 32-bit element type of the weights: `bf16`
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    kv_bytes_per_token: int  # all layers, K and V, at the KV dtype
    quantization: str = ""  # method of an already quantized checkpoint: `awq`
    weight_format: str = ""  # its format in the words of `Instance.formats`; "" when unknown
    group_size: int = 0  # weights that share a scale; 0 when they do not come in groups
    other_formats: tuple[str, ...] = ()  # of further parts, where each has its own
    quantization_options: tuple[str, ...] = ()  # that matter to engines: `static`, `block`, `kv`
    known: bool = True  # the architecture is in our table; False: estimated as a Llama
    attention: Literal["heads", "mla"] = "heads"  # `mla`: one latent, whole on every device
    attention_size: int = 0  # inputs of the output projection; 0: heads times head_dim
    window_tokens: int = 0  # that `window_layers` of the cached layers look back at most
    window_layers: int = 0
    cached_layers: int = 0  # layers that keep K and V; 0: all
    state_bytes: int = 0  # of one sequence, all layers with linear attention; constant
    split_counts: tuple[int, ...] = ()  # further head counts that tp_degree must divide
    experts: int = 0  # of one layer; 0: dense
    experts_per_token: int = 0
    expert_size: int = 0  # intermediate size of one expert
    active_parameters: int = 0  # that one token meets; equal to `parameters` when dense
    linear_parameters: int = 0  # in the layers that quantizers pack, still in 16 or 32 bits
    outside_bytes: int = 0  # weights outside the layers: embeddings, head, vision
    tower_bytes: int = 0  # of them, what reads images or sound
    tower_patch_bytes: int = 0  # of activations, for a patch of an image at the tower's peak
    tower_patches: int = 0  # of an image that become one token; 0: unknown
    tower_attention: int = 0  # its hidden size times its layers
    expert_bytes: int = 0  # weights of the routed experts, scales included
    unserved_bytes: int = 0  # of an MTP head: loaded only where it drafts
    model_type: str = ""  # of config.json: the class that reads it
    kv_groups: tuple[KvGroup, ...] = ()  # (): one group, as the fields above say
    unknown_cache: tuple[str, ...] = ()  # keys of config.json that leave the cache's size open
    pooling: Pooling | None = None  # of models that give vectors or scores; None: it writes text
