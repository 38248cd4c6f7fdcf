"""Options that several commands share, and how they become a request."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import ValidationError

from packager import plugins
from packager.adapters.user_files import read_table
from packager.core.image import Platform
from packager.core.request import LARGEST, MOST_GPUS, MOST_NODES, MOST_THREADS, BuildRequest
from packager.core.validation import first_fault
from packager.errors import UsageError
from packager.families.shared import NEVER_PACKAGED, asks_for_code
from packager.planning.presets import PRESETS, TPOT_LIMIT_S

Command = TypeVar("Command", bound=Callable[..., Any])

POSITIVE, COUNT = click.IntRange(1, LARGEST), click.IntRange(0, LARGEST)


class FiniteRange(click.FloatRange):
    """A number. `nan` is in no range, though Python finds none that it is out of."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it as `FloatRange` does."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def _gpu_wish(
    context: click.Context,  # noqa: ARG001
    parameter: click.Parameter,  # noqa: ARG001
    text: str | None,
) -> int | str | None:
    if text is None or text == "auto":
        return text
    if text.isascii() and text.isdecimal() and len(text) < 4 and int(text) <= MOST_GPUS:
        return int(text)
    raise UsageError(
        f"--gpus {text[:20]!r} is not a number from 0 to {MOST_GPUS}",
        hint="use `--gpus auto`, or `--gpus 0` for the processor",
    )


gpus_option = click.option(
    "--gpus",
    metavar="N",
    callback=_gpu_wish,
    help="GPUs that steps run on: auto (what helps and is there; usual), a number, 0 for none.",
)
executor_option = click.option(
    "--executor",
    type=click.Choice(("local", "docker", "ray")),
    help="Where steps run: in an environment made here, the default; in a container; on a node "
    "of a Ray cluster.",
)
address_option = click.option(
    "--address", metavar="HOST:PORT", help="Of the Ray cluster; RAY_ADDRESS, else one found here."
)

threads_option = click.option(
    "--threads",
    type=click.IntRange(1, MOST_THREADS),
    metavar="N",
    help="Threads that steps compute with; one for small models, else all cores, if none.",
)

REQUEST_OPTIONS = (
    click.option(
        "--model", metavar="MODEL", help="A directory, org/name[@revision], hf://… or s3://…."
    ),
    click.option(
        "--instance",
        metavar="TYPE",
        help="Instance type such as ml.g5.xlarge, devices such as 8xH100-80, or local.",
    ),
    click.option("--family", type=click.Choice(tuple(plugins.FAMILIES)), help="Serving container."),
    click.option(
        "--container-version", metavar="VERSION", help="Of the serving container; newest if none."
    ),
    click.option("--served-name", metavar="NAME", help="The model's name for clients."),
    click.option(
        "--goal",
        type=click.Choice(tuple(PRESETS)),
        help="What to choose for, where the request leaves room.",
    ),
    click.option(
        "--workload",
        metavar="NAME|IN:OUT[:N]|FILE",
        help="Requests to plan for: a name such as chat, tokens in and out with how many at once, "
        "or a file of requests. Question answering, 622:250, if none.",
    ),
    click.option(
        "--tpot-limit-ms",
        type=FiniteRange(min=0, min_open=True),
        metavar="MS",
        help=f"Slowest time per token; {TPOT_LIMIT_S * 1e3:.0f} if none.",
    ),
    click.option(
        "--ttft-limit-ms",
        type=FiniteRange(min=0, min_open=True),
        metavar="MS",
        help="Slowest first token.",
    ),
    gpus_option,
    threads_option,
    click.option("--tp-degree", type=POSITIVE, metavar="N", help="Tensor parallelism."),
    click.option("--pp-degree", type=POSITIVE, metavar="N", help="Pipeline parallelism."),
    click.option(
        "--dp-degree", type=POSITIVE, metavar="N", help="Data parallelism: copies in one server."
    ),
    click.option(
        "--ep/--no-ep", default=None, help="Expert parallelism: whole experts on each device."
    ),
    click.option(
        "--nodes", type=click.IntRange(1, MOST_NODES), metavar="N", help="Machines for one copy."
    ),
    click.option("--max-batch", type=POSITIVE, metavar="N", help="Concurrent requests."),
    click.option("--max-input-tokens", type=POSITIVE, metavar="N", help="Prompt length."),
    click.option("--max-total-tokens", type=POSITIVE, metavar="N", help="Prompt and answer."),
    click.option(
        "--max-prefill-tokens", type=POSITIVE, metavar="N", help="Prompt tokens computed at once."
    ),
    click.option(
        "--kv-dtype", type=click.Choice(("auto", "fp8")), help="Element type of the KV cache."
    ),
    click.option(
        "--dtype",
        type=click.Choice(("auto", "bfloat16", "float16")),
        help="What the engine computes with; as the checkpoint if none.",
    ),
    click.option(
        "--gpu-memory-utilization",
        type=FiniteRange(0, 1, min_open=True, max_open=True),
        metavar="SHARE",
        help="Of each GPU's memory, what the engine takes for weights, cache and all; 0.9 if none.",
    ),
    click.option(
        "--quantize",
        metavar="METHOD[,OPTION]",
        help="none, awq, gptq, fp8 or smoothquant for the weights; awq,group=64 and the like; "
        "auto: what is best for the goal.",
    ),
    click.option(
        "--quantize-ignore",
        "quantize_ignore",
        multiple=True,
        metavar="MODULE",
        help="A module to leave as it is, by name or re:PATTERN. Repeatable.",
    ),
    click.option(
        "--calibration", metavar="DATA", help="Texts to quantize with: a file, hf://…, default."
    ),
    click.option(
        "--calibration-samples", type=POSITIVE, metavar="N", help="How many of them; 256 if none."
    ),
    click.option(
        "--calibration-tokens", type=POSITIVE, metavar="N", help="Cut each to so many tokens."
    ),
    click.option(
        "--calibration-seed",
        type=COUNT,
        metavar="N",
        help="Decides which of them are taken.",
    ),
    click.option(
        "--evaluate",
        metavar="DATA",
        help="Measure what quantizing did: on a file, hf://…, or default.",
    ),
    click.option(
        "--evaluate-samples", type=POSITIVE, metavar="N", help="How many texts of it; 64 if none."
    ),
    click.option(
        "--evaluate-tokens",
        type=click.IntRange(2, LARGEST),
        metavar="N",
        help="Cut each to so many tokens; 512 if none.",
    ),
    click.option("--evaluate-seed", type=COUNT, metavar="N", help="Decides which are taken."),
    click.option(
        "--max-kld",
        type=FiniteRange(0),
        metavar="NATS",
        help="Build nothing when the mean KL divergence is larger.",
    ),
    click.option(
        "--min-top1",
        type=FiniteRange(0, 1),
        metavar="SHARE",
        help="Build nothing when fewer first choices are equal: 0.95.",
    ),
    click.option(
        "--max-ppl-increase",
        type=FiniteRange(-1),
        metavar="SHARE",
        help="Build nothing when perplexity grows more: 0.02.",
    ),
    click.option(
        "--draft",
        metavar="DRAFT",
        help="auto, none, a model, mtp[:N], eagle:REF, eagle3:REF, peagle:REF, dflash:REF, "
        "medusa:REF, mtp:REF, ngram[:N], ngram_gpu[:N] or suffix[:N].",
    ),
    click.option(
        "--speculative-tokens", type=POSITIVE, metavar="N", help="Drafted tokens at a time."
    ),
    click.option(
        "--tool-call-parser",
        metavar="PARSER",
        help="auto (by the chat template; usual), off, or a name of the engine's.",
    ),
    click.option(
        "--reasoning-parser",
        metavar="PARSER",
        help="auto (by the chat template; usual), off, or a name of the engine's.",
    ),
    click.option(
        "--engine-option",
        "engine_option",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of the engine itself, by its own name. Repeatable.",
    ),
    click.option("--compile", metavar="COMPILER", help="auto, off, or a compiler's name."),
    click.option(
        "--weights", type=click.Choice(("baked", "mounted")), help="Where weights are at run time."
    ),
    click.option(
        "--max-layer-size",
        metavar="SIZE",
        help="Split larger safetensors files, such as 4GiB. Above 5GiB if none.",
    ),
    click.option(
        "--layer-order",
        type=click.Choice(("base-first", "weights-first")),
        help="weights-first: a new base image leaves the weights on the nodes.",
    ),
    click.option(
        "--compression",
        type=click.Choice(("none", "zstd", "auto")),
        help="Of our layers. none, unless asked; auto compresses what shrinks.",
    ),
    click.option("--region", metavar="REGION", help="AWS region of images and prices."),
    executor_option,
    address_option,
    click.option(
        "--request",
        "request_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Take the request from a TOML or JSON file; options win.",
    ),
)

catalog_option = click.option(
    "--catalog",
    "catalog_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Rows of your own, in TOML; they win over shipped ones.",
)


def _platform(context: click.Context, parameter: click.Parameter, text: str) -> Platform:  # noqa: ARG001
    system, slash, architecture = text.partition("/")
    if not (system and slash and architecture) or "/" in architecture:
        raise UsageError(f"--platform {text!r} is not OS/ARCHITECTURE", hint="such as linux/arm64")
    return Platform(system, architecture)


def container_environment(pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse `--env NAME=VALUE`; refuse what lets a server run code from a model's files."""
    wrong = next((pair for pair in pairs if "=" not in pair), None)
    if wrong is not None:
        raise UsageError(f"--env {wrong!r} has no value", hint=f"write --env {wrong}=VALUE")
    found = dict(pair.split("=", 1) for pair in pairs)
    for name, value in found.items():
        if asks_for_code(name, value):
            raise UsageError(
                f"--env {name[:60]!r} lets the server run code from the model's files",
                hint=NEVER_PACKAGED,
            )
    return found


def registry_options(command: Command) -> Command:
    """Add the options of commands that speak to registries."""
    insecure = click.option(
        "--insecure-registry",
        "insecure_registries",
        multiple=True,
        metavar="HOST[:PORT]",
        help="Speak plain HTTP to this registry. Loopback needs no such leave.",
    )
    authority = click.option(
        "--ca-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Trust registries with certificates of this authority, too; loopback then needs TLS.",
    )
    return insecure(authority(command))


def image_options(command: Command) -> Command:
    """Add the options of commands that open images."""
    platform = click.option(
        "--platform",
        default=str(Platform()),
        show_default=True,
        callback=_platform,
        metavar="OS/ARCH",
        help="Which image, where a name stands for several.",
    )
    return platform(registry_options(command))


def format_option_of(
    *formats: str, help: str = "How the result is printed on stdout."
) -> Callable[[Command], Command]:
    """Let a command print its result in other formats than text."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(("text", *formats)),
        default="text",
        show_default=True,
        help=help,
    )


format_option = format_option_of("json")


def request_options(command: Command) -> Command:
    """Add every option of a request to a command."""
    for option in reversed(REQUEST_OPTIONS):
        command = option(command)
    return command


def make_request(request_file: Path | None, **given: Any) -> BuildRequest:
    """Merge the request file and the options; the options win."""
    fields = _read_file(request_file) if request_file else {}
    if pairs := given.pop("engine_option", ()):
        stated = fields.get("engine_options", {})
        if isinstance(stated, dict):  # what else it is, the request refuses
            given["engine_options"] = {**stated, **_engine_options(pairs)}
    fields.update({name: value for name, value in given.items() if value not in (None, ())})
    for name in ("model", "instance"):
        if name not in fields:
            raise UsageError(
                f"no {name} is given", hint=f"add --{name}, or name a request file with --request"
            )
    try:
        return BuildRequest.model_validate(fields)
    except ValidationError as error:
        raise UsageError(
            first_fault(error, "the request"),
            hint=f"fields of a request: {', '.join(BuildRequest.model_fields)}",
        ) from error


def _engine_options(pairs: tuple[str, ...]) -> dict[str, str]:
    wrong = next((pair for pair in pairs if "=" not in pair), None)
    if wrong is not None:
        raise UsageError(
            f"--engine-option {wrong!r} has no value", hint=f"write --engine-option {wrong}=VALUE"
        )
    return dict(pair.split("=", 1) for pair in pairs)


def _read_file(path: Path) -> dict[str, Any]:
    parsed = read_table(
        path,
        what="request file",
        hint="name a TOML or JSON file with the fields of a request, such as model",
    )
    if isinstance(parsed.get("outputs"), list):
        parsed["outputs"] = tuple(parsed["outputs"])
    return parsed
