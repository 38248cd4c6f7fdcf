"""What the user asked for, as written. Also the schema of a request file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
)

from packager.core.units import MIB, parse_size

# Files below 1 MiB share a layer, so limits near that would not be kept.
LARGEST = 2**31 - 1  # what engines take for a number; beyond it is a typing error

MOST_GPUS, MOST_THREADS = 64, 1024  # of one machine
MOST_NODES = 4  # that serve one copy together; beyond it nothing was ever tried

Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Reference = Annotated[str, Field(max_length=4096)]  # as long as paths are

Parser = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]

LayerSize = Annotated[int, BeforeValidator(parse_size), Field(ge=2 * MIB, le=2**60)]


class BuildRequest(BaseModel):
    """One build: a model for an instance, and where the image shall go.

    Fields left at None are chosen by the planner, which says what it chose.
    """

    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        str_min_length=1,
        str_max_length=65536,
        allow_inf_nan=False,
    )

    model: Reference = Field(
        description="a directory, a hub id `org/name[@revision]`, `hf://…` or `s3://…`"
    )
    instance: Reference = Field(description="instance type such as `ml.g5.xlarge`, or `local`")
    family: str | None = Field(default=None, description="serving container family")
    base: Reference | None = Field(
        default=None,
        description="base image: registry reference, `oci:DIR`, `docker:NAME`, or `scratch`",
    )
    outputs: tuple[Reference, ...] = Field(
        default=(), description="`oci:DIR`, `docker:NAME:TAG` or `REGISTRY/REPOSITORY:TAG`"
    )
    served_name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$",
        description="the name clients put into `model`",
    )
    tp_degree: Positive | None = Field(default=None, description="tensor-parallel degree")
    pp_degree: Positive | None = Field(default=None, description="pipeline-parallel degree")
    dp_degree: Positive | None = Field(
        default=None, description="data-parallel degree: copies inside one server"
    )
    ep: bool | None = Field(
        default=None, description="expert parallelism: whole experts are spread over devices"
    )
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] | None = Field(
        default=None, description="machines that serve one copy of the model together"
    )
    max_batch: Positive | None = Field(default=None, description="requests at once")
    max_input_tokens: Positive | None = Field(default=None, description="tokens of a prompt")
    max_total_tokens: Positive | None = Field(
        default=None, description="tokens of a prompt and its answer"
    )
    max_prefill_tokens: Positive | None = Field(
        default=None, description="prompt tokens that the engine computes at once"
    )
    kv_dtype: Literal["auto", "fp8"] | None = Field(
        default=None, description="element type of the KV cache"
    )
    dtype: Literal["auto", "bfloat16", "float16"] | None = Field(
        default=None, description="what the engine computes with; `auto`: as the checkpoint"
    )
    gpu_memory_utilization: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="share of each GPU's memory that the engine takes, for weights, cache and all",
    )
    quantize: str | None = Field(
        default=None,
        description="`none`, `auto` for the goal's best, or `[QUANTIZER:]METHOD[,OPTION…]`: awq, "
        "gptq, fp8, smoothquant",
    )
    quantize_ignore: tuple[str, ...] | None = Field(
        default=None, description="modules that are left as they are, by name or `re:PATTERN`"
    )
    calibration: Reference | None = Field(
        default=None,
        description="texts to quantize with: a file, a directory, "
        "`hf://datasets/ORG/NAME@REVISION`, or `default`",
    )
    calibration_samples: Positive | None = Field(
        default=None, description="how many of them are taken"
    )
    calibration_tokens: Positive | None = Field(
        default=None, description="length that each is cut to"
    )
    calibration_seed: Count | None = Field(
        default=None, description="decides which of them are taken"
    )
    evaluate: Reference | None = Field(
        default=None,
        description="texts to measure with what quantizing did: as `calibration`",
    )
    evaluate_samples: Positive | None = Field(
        default=None, description="how many of them are taken"
    )
    evaluate_tokens: Annotated[int, Field(ge=2, le=LARGEST)] | None = Field(
        default=None, description="length that each is cut to"
    )
    evaluate_seed: Count | None = Field(default=None, description="decides which of them are taken")
    max_kld: NonNegativeFloat | None = Field(
        default=None, description="mean KL divergence, in nats, above which nothing is built"
    )
    min_top1: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="share of equal first choices below which nothing is built"
    )
    max_ppl_increase: Annotated[float, Field(ge=-1)] | None = Field(
        default=None, description="growth of perplexity above which nothing is built: 0.02 is 2 %"
    )
    draft: Reference | None = Field(
        default=None,
        description="`auto`, `none`, a model, `mtp[:N]`, `eagle:REF`, `eagle3:REF`, `peagle:REF`, "
        "`dflash:REF`, `medusa:REF`, `mtp:REF`, `ngram[:N]`, `ngram_gpu[:N]`, `suffix[:N]`",
    )
    speculative_tokens: Positive | None = Field(
        default=None, description="tokens that the draft proposes at a time"
    )
    compile: str | None = Field(default=None, description="`auto`, `off`, or a compiler's name")
    gpus: Annotated[int, Field(ge=0, le=MOST_GPUS)] | Literal["auto"] | None = Field(
        default=None, description="GPUs that steps run on: `auto`, or a number; 0 for none"
    )
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None = Field(
        default=None, description="threads that steps compute with; by size and cores if none"
    )
    goal: Literal["cost", "latency", "throughput"] | None = Field(
        default=None, description="what the planner chooses for, where the request leaves room"
    )
    workload: Reference | None = Field(
        default=None,
        description="the requests that are planned for: a name, `IN:OUT[:CONCURRENCY]` in tokens, "
        "or a file of requests",
    )
    ttft_limit_ms: PositiveFloat | None = Field(
        default=None, description="slowest first token that requests at once are chosen by"
    )
    tpot_limit_ms: PositiveFloat | None = Field(
        default=None, description="slowest time per token that requests at once are chosen by"
    )
    weights: Literal["baked", "mounted"] = Field(
        default="baked", description="where the weights are at run time"
    )
    max_layer_size: LayerSize | None = Field(
        default=None,
        description="larger weights files are split: bytes, or a size such as `4GiB`",
    )
    layer_order: Literal["base-first", "weights-first"] | None = Field(
        default=None, description="whether a new base image leaves the weights' layers below it"
    )
    compression: Literal["none", "zstd", "auto"] | None = Field(
        default=None, description="of our layers; `auto` compresses what samples show to shrink"
    )
    container_version: str | None = Field(
        default=None, description="version of the serving container; newest by default"
    )
    tool_call_parser: Parser | None = Field(
        default=None,
        description="how the engine reads tool calls: `auto` by the chat template, `off`, or a "
        "parser by the engine's own name",
    )
    reasoning_parser: Parser | None = Field(
        default=None,
        description="how the engine tells reasoning from the answer: `auto` by the chat "
        "template, `off`, or a parser by the engine's own name",
    )
    engine_options: dict[str, str] | None = Field(
        default=None, description="settings of the engine itself, by its own names"
    )
    region: str | None = Field(default=None, description="AWS region of images and prices")
    executor: Literal["local", "docker", "ray"] | None = Field(
        default=None, description="who runs steps: `local`, `docker`, or a cluster with `ray`"
    )
    address: Reference | None = Field(
        default=None, description="`HOST:PORT` of the Ray cluster that runs steps"
    )

    @property
    def evaluation(self) -> str | None:
        """The texts to measure quality with; the shipped ones where only a limit is given."""
        limits = (self.max_kld, self.min_top1, self.max_ppl_increase)
        asked = any(value is not None for value in (*limits, self.evaluate_samples))
        return self.evaluate or ("default" if asked else None)
