"""Traits of a version of vLLM, in any container and with its own server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from packager.core.facts import ContainerFacts
from packager.core.request import MOST_NODES
from packager.core.stopping import DRAIN_S, Stopping
from packager.core.traits import Beyond, DraftTraits, EngineTraits
from packager.core.versions import is_before, known_since
from packager.engines.plain_modules import plain_modules
from packager.engines.schema import EngineSchema
from packager.engines.vllm.processors import processor_kernels

# Lets running requests end after SIGTERM; by default vLLM's server aborts them at once.
# The option came with 0.18.0.
SHUTDOWN_OPTION = "shutdown-timeout"
SHUTDOWN_S = DRAIN_S

TOOLS, TOOL_PARSER = "enable-auto-tool-choice", "tool-call-parser"
REASONING_PARSER = "reasoning-parser"

# The compressed-tensors loader takes zero points of 4-bit weights since then: vllm#14211.
ZERO_POINTS_SINCE = "0.8.5"

# The oldest version that is known to read heads of the speculators library, by kind of head.
SPECULATORS_SINCE = {"eagle": "0.10.2", "eagle3": "0.10.2", "dflash": "0.10.2", "peagle": "0.22.0"}

# Norms of EAGLE-3 heads, and the first version in whose models/llama_eagle3.py and
# speculators/algos.py they are, of 0.14.0 to 0.33.0; others pass by what they do not know.
NORMS_SINCE = {"norm_before_fc": "0.19.0", "fc_norm": "0.22.1", "norm_output": "0.22.1"}

# Rotary tables of EAGLE heads are as long as the model's sequences since then (vllm#49343); of
# every draft but a draft model, where scaling allows it, since 0.33.0.  Both read in its source.
LENGTHENED_SINCE, ALL_LENGTHENED_SINCE = "0.27.0", "0.33.0"
SECOND_RUNNER_SINCE = "0.29.0"  # which reads past a DFlash head's table where the first skips
EAGLES = ("eagle", "eagle3", "peagle")

SUFFIX_PACKAGE = "arctic-inference==0.1.1"  # as vLLM's own message names it, 0.11.1 to 0.32.0

# What has it read Mistral's tokenizers, and params.json with consolidated weights.
TEKKEN_OPTION = ("tokenizer-mode", "mistral")
NATIVE_OPTIONS = (("config-format", "mistral"), ("load-format", "mistral"), TEKKEN_OPTION)

# It takes load formats of plug-ins, and its second engine loads what was split for each rank.
RANKS_SINCE = "0.10.2"


def beyond_table(version: str) -> Mapping[str, Beyond]:
    """Return what a version does with drafts for shorter sequences, by kind."""
    if not is_before(version, ALL_LENGTHENED_SINCE):
        limited: dict[str, Beyond] = {"draft_model": "limits", "draft_model scaled": "limits"}
        return limited | {f"{kind} scaled": "limits" for kind in (*EAGLES, "dflash")}
    block: Beyond = "skips" if is_before(version, SECOND_RUNNER_SINCE) else "reads-past"
    found: dict[str, Beyond] = {"draft_model": "skips", "draft_model scaled": "skips"}
    found |= {"dflash": block, "dflash scaled": block}
    found |= {f"{kind} scaled": "reads-past" for kind in EAGLES}
    if is_before(version, LENGTHENED_SINCE):
        found |= dict.fromkeys(EAGLES, "reads-past")
    return found


def vllm_traits(version: str) -> EngineTraits:
    """Return what holds of a version of vLLM in whatever container it is."""
    older = is_before(version, ZERO_POINTS_SINCE)
    return EngineTraits(
        parses_by_token=True,
        tekken_options=(TEKKEN_OPTION,),
        when_full="more wait in a queue; when the cache is full, the latest is preempted and "
        "computed again",
        awq_format="awq" if older else "compressed-tensors",
        processors=processor_kernels(version),
        plain_modules=plain_modules("vllm", version),
        loads_ranks=not is_before(version, RANKS_SINCE),
        drafts=DraftTraits(
            medusa_layout="blocks",
            speculators=known_since(SPECULATORS_SINCE, version),
            norms=known_since(NORMS_SINCE, version),
            beyond=frozenset(beyond_table(version).items()),
            lengthened_since=LENGTHENED_SINCE,
            options="speculative-config",
            names_mtp_kinds=True,
            repeats_mtp_layers=True,
            suffix_package=SUFFIX_PACKAGE,
            captures=frozenset({"eagle3", "peagle", "dflash"}),
            uncaptured="'Model does not support EAGLE3 interface'",
        ),
    )


def server_traits(
    container: ContainerFacts, schema: EngineSchema, engine: EngineTraits
) -> EngineTraits:
    """Add the layouts that vLLM's own server can start on GPUs, by the options it has.

    Each rank of data parallelism is an engine of its own behind one port.  The ranks of a
    mixture share one set of experts, whole ones with `enable-expert-parallel`, else cut.
    """
    has = schema.options.keys() if schema.is_for(container.engine_version) else ()
    return replace(
        engine,
        who=f"vLLM {container.engine_version}".strip(),
        pipeline="pipeline-parallel-size" in has,
        data_parallel="data-parallel-size" in has,
        dp_attention="data-parallel-size" in has,
        expert_parallel="enable-expert-parallel" in has,
        most_nodes=MOST_NODES if "nnodes" in has else 1,
        node_options="`--nnodes N --node-rank K --master-addr HOST`, all but the first "
        "with `--headless` (no Ray)",
        tool_parsers=parsers_of(schema, TOOL_PARSER) if TOOLS in has else (),
        reasoning_parsers=parsers_of(schema, REASONING_PARSER),
        stopping=stopping_of(container, schema),
    )


def native_options(schema: EngineSchema) -> tuple[tuple[str, str], ...]:
    """Return the options for models in Mistral's own format; () where a version lacks one."""
    found = ((schema.options.get(name), value) for name, value in NATIVE_OPTIONS)
    has = all(one is not None and value in (*one.values, *one.choices) for one, value in found)
    return NATIVE_OPTIONS if has else ()


def stopping_of(container: ContainerFacts, schema: EngineSchema) -> Stopping:
    """Return what vLLM's own server does with running requests after SIGTERM."""
    source = "vllm-project/vllm#36666"
    if schema.is_for(container.engine_version) and SHUTDOWN_OPTION in schema.options:
        return Stopping(drain_s=SHUTDOWN_S, option=SHUTDOWN_OPTION, source=source)
    return Stopping(drain_s=0, source=source)


def parsers_of(schema: EngineSchema, option: str) -> tuple[str, ...] | None:
    """Return the names that an option takes; () without the option, None where none is listed."""
    found = schema.options.get(option)
    if found is None:
        return ()
    return found.values or found.choices or None
