"""What is compiled for NeuronCores, by which toolchain, for which architecture.

Inf2 and Trn1 run the same code.  Nothing is compiled for a size of instance: only for
the number of cores that work together.
"""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.facts import ContainerFacts, Facts
from packager.core.findings import Finding
from packager.core.plan import Plan

# optimum-neuron's utils/instance.py; its logical_nc_config is 2 for trn2 alone.
ARCHITECTURES = {"inf2": "trn1", "trn1": "trn1", "trn1n": "trn1", "trn2": "trn2"}

# Images of family neuron whose graphs can be baked.  TGI's looks for an exported model of its
# own making; vllm-neuron's files its graphs under a hash that only a started server knows.
TOOLCHAINS = {"hf-vllm-neuronx": "optimum", "vllm-nxdi": "nxdi", "lmi-neuronx": "neo"}

EXPORTED = "neuron_config.json"  # tells optimum-neuron's server that a model is exported


def compiled_by(container: ContainerFacts) -> str:
    """Name the toolchain of an image; "" where nothing can be baked for it."""
    return TOOLCHAINS.get(container.variant, "") if container.family == "neuron" else ""


def neuron_arch(instance: str) -> str:
    """Give the architecture of an instance's cores; "" where there are none."""
    return ARCHITECTURES.get(instance.removeprefix("ml.").partition(".")[0], "")


def logical_core_size(instance: str) -> int:
    """Say how many physical cores act as one."""
    return 2 if neuron_arch(instance) == "trn2" else 1


def serves_only_exported(container: ContainerFacts) -> bool:
    """Say whether a server takes no other model than an exported one.

    For another it asks Hugging Face's hub for graphs, which our images do not reach, and ends.
    """
    return compiled_by(container) == "optimum"


def check_exported(facts: Facts, plan: Plan) -> Iterator[Finding]:
    """Say where such a server would get the checkpoint as it comes."""
    if plan.compiler or not serves_only_exported(plan.container):
        return
    if any(file.path == EXPORTED for file in facts.model.files):
        return
    served = f"{plan.container.variant} serves nothing but a model exported by optimum-neuron"
    if plan.weights == "mounted":
        message = f"{served}; what is mounted must be one, and {facts.model.ref.name} is none"
        hint = "mount what `optimum-cli export neuron` writes, for this shape"
        yield Finding("warning", "neuron-not-exported", message, hint)
        return
    message = f"{served}, and would not start with {facts.model.ref.name}"
    hint = "add `--compile neuron`, or use `--container-version 2.28.0` (vllm-nxdi)"
    yield Finding("error", "neuron-not-exported", message, hint)


def export_command(plan: Plan, model: str) -> list[str]:
    """Give optimum-neuron's command line, but for the place of the result, which comes last."""
    words = {
        "--model": model,
        "--task": "text-generation",
        "--instance_type": neuron_arch(plan.instance.name),
        "--batch_size": str(plan.shape.max_batch),
        "--sequence_length": str(plan.shape.max_total_tokens),
        "--tensor_parallel_size": str(plan.tp_degree),
    }
    return ["optimum-cli", "export", "neuron", *(word for pair in words.items() for word in pair)]
