"""Request of a build, as written. Also the schema of a request file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.fields import CommandOption
from packager.core.suggestions import nearest
from packager.core.units import MIB, parse_size
from packager.core.validation import all_faults

# Files below 1 MiB share a layer, so limits near that would not be kept.
LARGEST = 2**31 - 1  # what engines take for a number; beyond it is a typing error

MOST_GPUS, MOST_THREADS = 64, 1024  # of one machine
MOST_NAMED = 20  # unknown fields in one message
MOST_ADAPTERS = 1024  # slots of an engine: beyond any device's memory
MOST_NODES = 4  # that serve one copy together; more is untested

Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
YAML_SUFFIXES = (".yaml", ".yml")  # of request files; others are JSON or TOML
Reference = Annotated[str, Field(max_length=4096)]  # as long as paths are
Data = Annotated[Reference, CommandOption(metavar="DATA")]

Parser = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]

LayerSize = Annotated[int, BeforeValidator(parse_size), Field(ge=2 * MIB, le=2**60)]


class BuildRequest(BaseModel):
    """One build: a model for an instance, and where the image shall go.

    Fields left at None are chosen by the planner, which says what it chose.
    """

    # The command line's options are made from these fields: a description is the help text, too.
    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        str_min_length=1,
        str_max_length=65536,
        allow_inf_nan=False,
    )

    model: Reference = Field(
        description="model to serve: a directory, a hub id `org/name[@revision]`, `hf://…` or "
        "`s3://…`"
    )
    instance: Annotated[Reference, CommandOption(metavar="TYPE")] = Field(
        description="instance type such as `ml.g5.xlarge`, devices such as `8xH100-80`, or `local`"
    )
    family: str | None = Field(
        default=None, description="serving container family; chosen for the model by default"
    )
    base: Annotated[Reference, CommandOption(metavar="IMAGE")] | None = Field(
        default=None,
        description="base image: registry reference, `oci:DIR`, `docker:NAME`, `embedded:NAME` or "
        "`scratch`",
    )
    outputs: Annotated[tuple[Reference, ...], CommandOption(flag="--output", metavar="OUT")] = (
        Field(
            default=(),
            description="where the image goes: `oci:DIR[:TAG]`, `docker:NAME:TAG` or "
            "`REGISTRY/REPOSITORY:TAG`; or the model's files alone: `dir:DIR` or "
            "`s3://BUCKET/PREFIX`",
        )
    )
    served_name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$",
        description="the model's name for clients, which they send as `model`",
    )
    tp_degree: Positive | None = Field(default=None, description="tensor-parallel degree")
    pp_degree: Positive | None = Field(default=None, description="pipeline-parallel degree")
    dp_degree: Positive | None = Field(
        default=None, description="data-parallel degree: copies inside one server"
    )
    ep: bool | None = Field(
        default=None, description="expert parallelism: each device has whole experts"
    )
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] | None = Field(
        default=None, description="machines that serve one copy of the model together"
    )
    max_batch: Positive | None = Field(default=None, description="concurrent requests at most")
    max_input_tokens: Positive | None = Field(default=None, description="prompt tokens at most")
    max_total_tokens: Positive | None = Field(
        default=None, description="tokens of a prompt and its answer at most"
    )
    max_prefill_tokens: Positive | None = Field(
        default=None, description="prompt tokens that the engine computes at once"
    )
    kv_dtype: Literal["auto", "fp8"] | None = Field(
        default=None, description="element type of the KV cache"
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] | None = Field(
        default=None,
        description="element type that the engine computes with; `auto`, the default: "
        "as the checkpoint",
    )
    gpu_memory_utilization: (
        Annotated[float, Field(gt=0, lt=1), CommandOption(metavar="SHARE")] | None
    ) = Field(
        default=None,
        description="share of each GPU's memory that the engine takes for weights, cache and all "
        "else; 0.9 by default",
    )
    quantize: Annotated[str, CommandOption(metavar="METHOD[,OPTION]")] | None = Field(
        default=None,
        description="quantization of the weights: `none`, `auto` for the goal's best, or a method "
        "such as `fp8` or `awq,group=64`; `QUANTIZER:METHOD` names who quantizes",
    )
    quantize_ignore: Annotated[tuple[str, ...], CommandOption(metavar="MODULE")] | None = Field(
        default=None, description="modules to leave unquantized, by name or `re:PATTERN`"
    )
    quantize_layer: Annotated[tuple[str, ...], CommandOption(metavar="TARGET=METHOD")] | None = (
        Field(
            default=None,
            description="quantization of a part of the model, `TARGET=METHOD[,OPTION…]` or "
            "`TARGET=none`: a target is a module, `Linear` or `re:PATTERN`, and the first that "
            "matches counts",
        )
    )
    try_untested: bool | None = Field(
        default=None,
        description="quantize architectures that a method was never tried with, too",
    )
    calibration: Data | None = Field(
        default=None,
        description="texts to quantize with: a file, a directory, "
        "`s3://BUCKET/PREFIX`, `hf://datasets/ORG/NAME@REVISION`, or `default`: those that "
        "packager brings along",
    )
    calibration_samples: Positive | None = Field(
        default=None, description="how many texts are taken to quantize with; 256 by default"
    )
    calibration_tokens: Positive | None = Field(
        default=None, description="tokens that each text to quantize with is cut to"
    )
    calibration_seed: Count | None = Field(
        default=None, description="seed that decides which texts are taken to quantize with"
    )
    evaluate: Data | None = Field(
        default=None,
        description="texts to measure the effect of quantization on: a file, a directory, "
        "`s3://BUCKET/PREFIX`, `hf://datasets/ORG/NAME@REVISION`, or `default`: those that "
        "packager brings along",
    )
    evaluate_samples: Positive | None = Field(
        default=None, description="how many texts are taken to measure on; 64 by default"
    )
    evaluate_tokens: Annotated[int, Field(ge=2, le=LARGEST)] | None = Field(
        default=None, description="tokens that each text to measure on is cut to; 512 by default"
    )
    evaluate_seed: Count | None = Field(
        default=None, description="seed that decides which texts are taken to measure on"
    )
    max_kld: Annotated[float, Field(ge=0), CommandOption(metavar="NATS")] | None = Field(
        default=None,
        description="mean KL divergence, in nats, above which nothing is built; 1 by default",
    )
    min_top1: Annotated[float, Field(ge=0, le=1), CommandOption(metavar="SHARE")] | None = Field(
        default=None,
        description="share of equal first choices below which nothing is built, such as 0.95; 0.5 "
        "by default",
    )
    max_ppl_increase: Annotated[float, Field(ge=-1), CommandOption(metavar="SHARE")] | None = Field(
        default=None, description="growth of perplexity above which nothing is built: 0.02 is 2 %"
    )
    draft: Reference | None = Field(
        default=None,
        description="what proposes tokens: `auto`, `none`, a model, `mtp[:N]`, `eagle:REF`, "
        "`eagle3:REF`, `peagle:REF`, `dflash:REF`, `medusa:REF`, `mtp:REF`, `ngram[:N]`, "
        "`ngram_gpu[:N]` or `suffix[:N]`",
    )
    speculative_tokens: Positive | None = Field(
        default=None, description="tokens that the draft proposes at a time"
    )
    adapters: (
        Annotated[dict[str, Reference], CommandOption(flag="--adapter", metavar="NAME=REF")] | None
    ) = Field(
        default=None,
        description="LoRA adapter beside the model, by the name that clients send as `model`: a "
        "directory, a hub id or `s3://…`, as a model's",
    )
    adapters_dir: Annotated[Reference, CommandOption(flag="--adapters", metavar="DIR")] | None = (
        Field(
            default=None,
            description="directory of LoRA adapters, each in a directory of its name",
        )
    )
    merge_adapter: Annotated[str, CommandOption(metavar="NAME")] | None = Field(
        default=None,
        description="name of an adapter that is folded into the model's weights while they are "
        "read, in place of being served beside them",
    )
    max_adapters: Annotated[int, Field(ge=1, le=MOST_ADAPTERS)] | None = Field(
        default=None,
        description="LoRA adapters on the devices at once; all of them by default, at most 4; the "
        "others wait in the host's memory",
    )
    allow_runtime_adapters: bool | None = Field(
        default=None,
        description="let whoever reaches the server load adapters from any directory there",
    )
    compile: Annotated[str, CommandOption(metavar="COMPILER")] | None = Field(
        default=None, description="compilation ahead of time: `auto`, `off`, or a compiler's name"
    )
    gpus: (
        Annotated[
            Annotated[int, Field(ge=0, le=MOST_GPUS)] | Literal["auto"], CommandOption(metavar="N")
        ]
        | None
    ) = Field(
        default=None,
        description="GPUs that steps run on: a number, 0 for the processor, or `auto`, the "
        "default: those that help and are there",
    )
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None = Field(
        default=None,
        description="threads that steps compute with; by default one for small models, else one "
        "for each core",
    )
    goal: Literal["cost", "latency", "throughput"] | None = Field(
        default=None, description="what the planner chooses for, where the request leaves room"
    )
    workload: Annotated[Reference, CommandOption(metavar="NAME|IN:OUT[:N]|FILE")] | None = Field(
        default=None,
        description="requests to plan for: a name such as `chat`, tokens in and out with how many "
        "at once, or a file of requests; question answering, `622:250`, by default",
    )
    images: Annotated[str, CommandOption(metavar="NxWxH")] | None = Field(
        default=None,
        pattern=r"^[1-9][0-9]{0,2}x[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$",
        description="pictures in each request beside the workload's tokens: how many, and their "
        "width and height, such as `1x1024x1024`; the server takes so many",
    )
    ttft_limit_ms: (
        Annotated[
            float,
            Field(gt=0),
            CommandOption(flag="--ttft-ms", earlier="--ttft-limit-ms", metavar="MS"),
        ]
        | None
    ) = Field(
        default=None, description="time to first token at most, by which concurrency is chosen"
    )
    tpot_limit_ms: (
        Annotated[
            float,
            Field(gt=0),
            CommandOption(flag="--tpot-ms", earlier="--tpot-limit-ms", metavar="MS"),
        ]
        | None
    ) = Field(
        default=None,
        description="time per output token at most, by which concurrency is chosen; 100 by default",
    )
    load_format: Annotated[str, CommandOption(metavar="FORMAT[,threads=N]")] | None = Field(
        default=None,
        description="how the engine reads the weights: `auto` for what is known to be fastest "
        "here, a format of the engine's such as `runai_streamer,threads=16`, or `sharded_state`: "
        "split ahead of time into the files of each rank",
    )
    weights: Literal["baked", "mounted"] = Field(
        default="baked", description="where the weights are at run time; `baked` by default"
    )
    max_layer_size: LayerSize | None = Field(
        default=None,
        description="size above which a safetensors file is split: bytes, or text such as `4GiB`; "
        "5 GiB by default",
    )
    layer_order: Literal["base-first", "weights-first"] | None = Field(
        default=None,
        description="order of layers; `weights-first`: a new base image leaves the weights on the "
        "nodes",
    )
    compression: Literal["none", "zstd", "auto"] | None = Field(
        default=None,
        description="compression of added layers; `none` by default; `auto` compresses those of "
        "which samples shrink",
    )
    layer_format: Literal["plain", "erofs"] | None = Field(
        default=None,
        description="form of added layers; `plain` by default; `erofs` writes them as file systems "
        "too, which nodes mount instead of unpacking",
    )
    base_files: Literal["read", "skip"] | None = Field(
        default=None,
        description="whether the files of the base image are looked at, which reads its layers "
        "once; `read` by default; `skip` puts the model over whatever is there",
    )
    container_version: str | None = Field(
        default=None, description="version of the serving container; the newest by default"
    )
    tool_call_parser: Parser | None = Field(
        default=None,
        description="how the engine reads tool calls: a parser by the engine's own name, `off`, "
        "or `auto`, the default: by the chat template",
    )
    reasoning_parser: Parser | None = Field(
        default=None,
        description="how the engine tells reasoning from the answer: a parser by the engine's own "
        "name, `off`, or `auto`, the default: by the chat template",
    )
    engine_options: (
        Annotated[dict[str, str], CommandOption(flag="--engine-option", metavar="KEY=VALUE")] | None
    ) = Field(default=None, description="settings of the engine itself, by its own names")
    platform: Literal["linux/amd64", "linux/arm64"] | None = Field(
        default=None, description="platform of the image; that of the instance by default"
    )
    region: str | None = Field(default=None, description="AWS region of images and prices")
    trust_roots: (
        Annotated[tuple[Reference, ...], CommandOption(flag="--trust-root", metavar="DIR")] | None
    ) = Field(
        default=None,
        description="directory that links of the model may lead into, such as an older download's "
        "cache",
    )
    executor: Literal["local", "docker", "ray"] | None = Field(
        default=None,
        description="where steps run: in an environment made here (`local`, the default), in a "
        "container, or on a node of a Ray cluster",
    )
    address: Annotated[Reference, CommandOption(metavar="HOST:PORT")] | None = Field(
        default=None,
        description="address of the Ray cluster that runs steps; by default `RAY_ADDRESS`, else "
        "one found here",
    )

    @property
    def quantizing(self) -> str | None:
        """The value that says who quantizes: the method of a layer where the rest stays whole."""
        if self.quantize not in (None, "none"):
            return self.quantize
        methods = (split_layer(one)[1] for one in self.quantize_layer or ())
        return next((one for one in methods if one not in ("", "none")), self.quantize)

    @property
    def evaluation(self) -> str | None:
        """The texts to measure quality with; the shipped ones where only a limit is given."""
        limits = (self.max_kld, self.min_top1, self.max_ppl_increase)
        asked = any(value is not None for value in (*limits, self.evaluate_samples))
        return self.evaluate or ("default" if asked else None)


# A pattern may have `=`; what follows the first one that a method and its options follow is those.
LAYER = re.compile(
    r"(?P<target>.+?)=(?P<method>[\w:.-]+(?:,[\w.-]+(?:=[^=,]*)?)*)\Z", re.DOTALL | re.ASCII
)


def split_layer(text: str) -> tuple[str, str]:
    """Split an entry of `quantize_layer` in target and method; ("", "") where it is neither."""
    found = LAYER.match(text)
    return (found["target"], found["method"]) if found else ("", "")


def unknown_fields(names: Sequence[str], where: str, known: Sequence[str]) -> UsageError:
    """Return an error: a request has fields that no request has.

    All are named, so that one look mends them.
    """
    named = names[:MOST_NAMED]
    meant = {name: nearest(name[:60].replace("-", "_").lower(), known) for name in named}
    alone = len(names) == 1
    guesses = [
        f"{right!r}" if alone else f"{right!r} for {shorten(name)}"
        for name, right in meant.items()
        if right
    ]
    fields = f"fields of a request: {', '.join(known)}"
    kinds = "an unknown field" if alone else "unknown fields"
    more = f" and {len(names) - len(named):,} more" if len(names) > len(named) else ""
    return UsageError(
        f"{where} has {kinds} {', '.join(map(shorten, named))}{more}",
        hint=f"did you mean {', '.join(guesses)}?" if guesses else fields,
        code="UnknownFields",
    )


class InvalidFields(UsageError):
    """Fields of a request have values that they cannot have. All are named."""

    def __init__(self, error: ValidationError, where: str) -> None:
        faults = all_faults(error, where)
        names = [name for name in BuildRequest.model_fields if name in _names(error)]
        self.names = frozenset(names)
        descriptions = [f"{name}: {BuildRequest.model_fields[name].description}" for name in names]
        super().__init__("; ".join(faults), hint="; ".join(descriptions) or f"correct {where}")


def refuse_unknown(fields: Iterable[str], where: str = "the request") -> None:
    """Raise `UsageError` for the names that no request has."""
    known = tuple(BuildRequest.model_fields)
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise unknown_fields(unknown, where, known)


def trusting_nothing(request: BuildRequest) -> BuildRequest:
    """Return an untrusted request without its trusted roots."""
    return request.model_copy(update={"trust_roots": None}) if request.trust_roots else request


def parse_request(fields: Mapping[str, Any]) -> BuildRequest:
    """Validate the fields of a request; raise `UsageError` that names all that are wrong."""
    refuse_unknown(fields)
    try:
        return BuildRequest.model_validate(dict(fields))
    except ValidationError as error:
        raise InvalidFields(error, "the request") from error


def _names(error: ValidationError) -> set[str]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return {str(fault["loc"][0]) for fault in found if fault["loc"]}
