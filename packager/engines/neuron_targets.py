"""Toolchain and architecture that graphs for NeuronCores are compiled with.

Inf2 and Trn1 run the same code.  Graphs depend on the number of cores that work together, not on
the instance size.
"""

from __future__ import annotations

from collections.abc import Iterator

from packager.catalog.neuron import core_of_instance
from packager.core.facts import ContainerFacts, Facts
from packager.core.findings import Finding
from packager.core.plan import Plan

EXPORTED = "neuron_config.json"  # tells optimum-neuron's server that a model is exported


def compiled_by(container: ContainerFacts) -> str:
    """Return the toolchain of an image; "" if no compiled graphs can be baked into it."""
    return container.traits.neuron_toolchain


def neuron_arch(instance: str) -> str:
    """Return the architecture to compile for, of an instance type's cores; "" where none is."""
    core = core_of_instance(instance)
    return core.arch if core and core.compiles else ""


def logical_core_size(instance: str) -> int:
    """Return how many physical cores act as one."""
    core = core_of_instance(instance)
    return (core.joined if core else None) or 1


def serves_only_exported(container: ContainerFacts) -> bool:
    """Return whether the server can only load exported models.

    For any other model it downloads graphs from Hugging Face's hub, which our images cannot reach,
    and exits.
    """
    return compiled_by(container) == "optimum"


def check_exported(facts: Facts, plan: Plan) -> Iterator[Finding]:
    """Yield a finding where such a server would get an unexported checkpoint."""
    if plan.compiler or not serves_only_exported(plan.container):
        return
    if any(file.path == EXPORTED for file in facts.model.files):
        return
    served = f"{plan.container.variant} serves nothing but a model exported by optimum-neuron"
    if plan.weights == "mounted" and not plan.one_mount:
        message = f"{served}; what is mounted must be one, and {facts.model.ref.name} is none"
        hint = "mount what `optimum-cli export neuron` writes, for this shape"
        yield Finding("warning", "neuron-not-exported", message, hint)
        return
    message = f"{served}, and would not start with {facts.model.ref.name}"
    hint = "add `--compile neuron`, or use `--container-version 2.28.0` (vllm-nxdi)"
    yield Finding("error", "neuron-not-exported", message, hint)


def export_command(plan: Plan, model: str) -> list[str]:
    """Return optimum-neuron's command line without the output directory, which comes last."""
    words = {
        "--model": model,
        "--task": "text-generation",
        "--instance_type": neuron_arch(plan.instance.name),
        "--batch_size": str(plan.shape.max_batch),
        "--sequence_length": str(plan.shape.max_total_tokens),
        "--tensor_parallel_size": str(plan.tp_degree),
    }
    return ["optimum-cli", "export", "neuron", *(word for pair in words.items() for word in pair)]
