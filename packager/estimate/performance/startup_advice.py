"""What to change next so that a server starts sooner: the phase that takes longest, and its remedy.

Of phases that are predicted and of those that were measured alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packager.core.startup import Advice, PhaseName

_LEAST_SHARE = 0.1  # of the start: less is not worth a change


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTraits:
    """What of an image decides which change is left to make."""

    kind: str
    engine: str
    compiler: str = ""  # that compiled ahead of time
    mounted: bool = False


def advise(phases: Mapping[PhaseName, float], image: ImageTraits) -> Advice | None:
    """Return the remedy of the longest phase; None if phases are unknown."""
    total = sum(phases.values())
    if total <= 0:
        return None
    phase = max(phases, key=lambda name: phases[name])
    seconds = phases[phase]
    if seconds / total < _LEAST_SHARE:
        return None
    change, why = _remedy(phase, image)
    return Advice(
        phase=phase,
        seconds=round(seconds, 2),
        share=round(seconds / total, 3),
        change=change,
        why=why,
    )


def _remedy(phase: PhaseName, image: ImageTraits) -> tuple[str, str]:
    if phase == "weights":
        return _of_weights(image)
    if phase == "compile":
        return _of_compiling(image)
    return _REMEDIES[phase]


def _of_weights(image: ImageTraits) -> tuple[str, str]:
    if image.mounted:
        return (
            "bake the weights: --weights baked",
            "what is mounted is brought to the node at every start",
        )
    return (
        "quantize them (--quantize), serve from a faster disk, or try another --load-format",
        "the engine reads every byte of the weights once, from the disk where memory has not kept "
        "it",
    )


def _of_compiling(image: ImageTraits) -> tuple[str, str]:
    if image.compiler:
        return (
            "plan for fewer requests at once: --max-batch",
            "what is compiled is in the image; what is left is profiling and capturing a graph for "
            "each size of batch",
        )
    if image.kind == "neuron":
        return (
            "compile ahead of time: --compile neuron",
            "graphs for NeuronCores are compiled at every start without it",
        )
    return (
        "compile ahead of time: --compile auto",
        "the engine compiles at every start what an image can have in it",
    )


_REMEDIES: Mapping[PhaseName, tuple[str, str]] = {
    "pull": (
        "set nodes up for it: `packager inspect IMAGE --pull-hints`; `packager base slim` makes it "
        "smaller",
        "by default a layer comes over one connection, whatever the network can do",
    ),
    "unpack": (
        "leave unpacking out: `packager node-cache IMAGE DIR`; or set nodes up for it: `packager "
        "inspect IMAGE --pull-hints`",
        "containerd writes each layer, reads it again and unpacks one at a time by default",
    ),
    "container": (
        "see what the engine's host is busy with",
        "creating a container takes a second or two",
    ),
    "import": (
        "keep a warm replica",
        "it is the engine's own start: interpreter, libraries and configuration, whatever the "
        "model",
    ),
    "ready": (
        "keep a warm replica",
        "it is the engine's own start: processes that meet, tokenizer, routes",
    ),
    "first_token": (
        "send a request before traffic comes, as `packager smoke` does",
        "the first request prepares what no start does",
    ),
}
