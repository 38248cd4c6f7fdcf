"""Traits of a serving container's version: what it can start, read and report.

Differences between engines are read from these values, never derived from a name, so that a
family of another package is treated like ours.  Each default is that of an unknown engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from packager.core.pooling import PoolingTask
from packager.core.processors import ProcessorKernels
from packager.core.split import Split
from packager.core.stopping import Stopping

MORE_WAIT = "more wait in a queue"  # what every server does with requests beyond its batch

MedusaLayout = Literal["medusa", "blocks"]  # names of the heads' tensors: TGI's, or vLLM's
AnswersAs = Literal["name", "directory", "nothing"]
# What an engine does with a draft whose rotary table is shorter than the longest sequence: reads
# past its end, drafts nothing beyond, limits all sequences to it, or does not start.
Beyond = Literal["reads-past", "skips", "limits", "refuses"]
AdapterLayout = Literal["modules", "paths", "variable", "directory"]
DraftOptions = Literal["", "speculative-config", "speculative-algorithm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedDtypes:
    """The element type that an engine computes quantized weights with, where it decides that."""

    half: frozenset[str]  # formats computed in float16, whatever the model is
    asked: frozenset[str]  # formats beside which it computes in the configured type
    wide: frozenset[str]  # models, by type, computed in bfloat16 in every other format

    def of(self, weight_format: str, model_type: str) -> str:
        """Return `fp16` or `bf16`; "" if the requested type is used."""
        if not weight_format or weight_format in self.asked:
            return ""
        is_wide = model_type in self.wide and weight_format not in self.half
        return "bf16" if is_wide else "fp16"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTraits:
    """In which files and options an engine takes drafts."""

    medusa_layout: MedusaLayout = "medusa"
    medusa_file: str = ""  # the one file that Medusa heads are read from; "" where any will do
    medusa_is_model: bool = False  # heads are given as the model, and name the model they belong to
    speculators: frozenset[str] = frozenset()  # kinds read in the format of the speculators library
    norm_before_residual: bool = True  # heads whose residual is added after the norm are served
    norms: frozenset[str] = frozenset()  # of EAGLE-3 heads: those of `layouts.NORMS` that are read
    # By kind of draft; `eagle scaled` is one whose rotary scaling a longer table would change.  A
    # kind that is missing gets a longer table.
    beyond: frozenset[tuple[str, Beyond]] = frozenset()
    lengthened_since: str = ""  # the version that makes tables of EAGLE heads longer; "" none
    options: DraftOptions = ""  # the engine's option that configures drafts; "" none that is read
    names_mtp_kinds: bool = False  # older versions call each kind of MTP head by a name of its own
    repeats_mtp_layers: bool = False  # more tokens than MTP layers must be a multiple of them
    suffix_package: str = ""  # Python package that suffix decoding needs; "" without such drafts
    # Kinds of heads that read hidden states of a model that the engine must be able to capture,
    # and how it ends where it cannot.
    captures: frozenset[str] = frozenset()
    uncaptured: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterTraits:
    """How an engine's version serves LoRA adapters, and what it reads of their files."""

    layout: AdapterLayout  # how they are named to the server
    ranks: tuple[int, ...] = ()  # of slots, in order; (): any
    slots: int = 1  # that are kept without being asked for; 0: one for each adapter
    base_takes_slot: bool = False  # requests of the base use one in mixed batches
    # Of PEFT's files: `root` and `patterns` of scales, other `ranks` than the stated one, `regex`
    # as targets, `embeddings`, `experts`.  What is missing is read wrongly or not at all.
    honours: frozenset[str] = frozenset()
    refused: tuple[tuple[str, str], ...] = ()  # fields, with the reason
    without: frozenset[str] = frozenset()  # architectures that take none
    heads: frozenset[str] | None = frozenset()  # those whose embedding and head do; None: all
    stacked: frozenset[str] = frozenset()  # those that take experts of one tensor, and no others
    needs: tuple[tuple[str, ...], ...] = ()  # a module, and the one adapted beside it
    modules: frozenset[str] = frozenset()  # names of those that have slots; (): any linear layer
    split: frozenset[str] = frozenset()  # `Architecture.name` that has none: only its parts do
    most_vocabulary: int = 0  # beside an adapter of the head; 0: any
    wraps_all: bool = True  # slots are for every linear layer; False: for adapted ones
    in_model: bool = False  # they lie in the model's directory
    base_answers: str = ""  # when a request that names none of them meets the base
    answers_unknown: bool = False  # the base answers names that are nobody's
    runtime_variable: str = ""  # that opens loading while it serves
    always_runtime: bool = False  # that cannot be turned off
    stops_compiling: frozenset[str] = frozenset()  # kinds of devices
    no_experts: frozenset[str] = frozenset()  # kinds on which models with experts take none


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTraits:
    """Traits of a serving container's version: what it can start, read and report."""

    who: str = ""  # `vLLM 0.27.1`, as messages name it
    # Layouts over devices.
    pipeline: bool = False
    data_parallel: bool = False  # several copies in one server
    own_experts: bool = False  # such copies of a mixture may each keep all experts
    dp_attention: bool = False  # such copies of a mixture may share one set of experts
    dp_attention_drafts: frozenset[str] | None = None  # that work with it; None: all
    expert_parallel: bool = False
    workers: bool = False  # always starts a server on each group of devices
    copies_kv_heads: bool = True  # more devices than key-value heads are possible
    most_nodes: int = 1
    node_options: str = ""  # that every one of several machines is started with
    # Parsers of answers: names that this version has; () where it takes none, None where its
    # list is not known.
    tool_parsers: tuple[str, ...] | None = ()
    reasoning_parsers: tuple[str, ...] | None = ()
    parses_by_token: bool = False  # looks parsers' marks up in the vocabulary; others search text
    # Requests.
    answers_as: AnswersAs = "name"  # the model in answers; not "name": it cannot be told one
    stopping: Stopping | None = None  # None if unknown
    takes_port: bool = False  # images take `--host` and `--port` as their command
    # Options by which it reads Mistral's `tekken.json` alone, and models in Mistral's own format.
    tekken_options: tuple[tuple[str, str], ...] = ()
    native_options: tuple[tuple[str, str], ...] = ()
    health_path: str = ""  # answers 200 while it serves, requested by Python; "" without it
    when_full: str = MORE_WAIT  # what happens to requests beyond those computed at once
    # Quantized weights.
    quantized_dtypes: QuantizedDtypes | None = None  # None: it computes in the requested type
    awq_format: str = "compressed-tensors"  # checkpoint format in which AWQ's results are read
    # Architectures, each with the end of a module's path that it builds without quantization.
    plain_modules: frozenset[tuple[str, str]] = frozenset()
    loads_ranks: bool = False  # takes weights that a load format of ours split for each rank
    reads_buckets: bool = False  # it takes `s3://…` for the model's directory, and streams weights
    processors: ProcessorKernels | None = None  # of its build for them; None: it has none
    # Work done ahead of time.
    bakes_compile_caches: bool = False  # looks for compiled files where vLLM's variables say
    neuron_toolchain: str = ""  # that compiles for NeuronCores, `optimum`, `nxdi`, `neo`; "" none
    drafts: DraftTraits = DraftTraits()
    adapters: AdapterTraits | None = None  # None: it serves none
    pools: frozenset[PoolingTask] = frozenset()  # of models that give vectors or scores
    pools_hint: str = ""  # what to do where it serves none

    def plain_in(self, architecture: str) -> tuple[str, ...]:
        """Return the ends of paths of modules that it has unquantized in a class of models."""
        return tuple(sorted(path for of, path in self.plain_modules if of == architecture))

    def may_draft(self, split: Split, draft: str) -> bool:
        """Check whether a draft of this kind works in a layout."""
        known = self.dp_attention_drafts
        return not split.dp_attention or known is None or draft in known


UNKNOWN_ENGINE = EngineTraits()
