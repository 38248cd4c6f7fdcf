"""Goes on where an interrupted quantization ended, with the same bytes.

llm-compressor (0.14) cuts a model into blocks and works through them in order, once for
each modifier that looks at data.  After a block we keep the tensors that its modifier
changed, and what the next block reads: the activations and the states of the generators of
random numbers.  The loop stays the library's.  It is handed the blocks that are left.

What a modifier changes is known for those in `CHANGES`; passes of others start anew.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from compressed_tensors.offload import update_offload_parameter
from intermediates import Activations, CannotKeep, read_activations
from keeping import Kept, Note, Stage
from library import PRIVATE
from llmcompressor.core import LifecycleCallbacks, active_session
from llmcompressor.core.events import EventType
from llmcompressor.pipelines.cache import IntermediatesCache
from private_names import find
from safetensors import safe_open

SEQUENTIAL = "llmcompressor.pipelines.sequential.pipeline"
DATA_FREE = "llmcompressor.pipelines.data_free.pipeline"
CACHE = "llmcompressor.pipelines.cache"

SHARE = 19  # of working to keeping: a twentieth of the time is for keeping
REDONE = 10  # one in so many blocks is done again at most
PATIENCE_S = 60.0  # what takes less without data is sooner done again than kept

HOST = torch.device("cpu")

Names = Iterator[tuple[torch.nn.Module, str]]
Skip = Callable[[int], None]


@contextmanager
def resuming(kept: Kept, note: Note, skip: Skip) -> Iterator[None]:
    """Keep the library's work below, and go on with what is kept; `skip` hears of blocks passed."""
    passes = _Passes(kept, note, skip)
    load = passes.activations(IntermediatesCache.from_dataloader)
    blocks = passes.blocks(find(SEQUENTIAL, "trace_subgraphs"))
    with (
        PRIVATE.replaced(SEQUENTIAL, "trace_subgraphs", blocks),
        PRIVATE.replaced(CACHE, "IntermediatesCache.from_dataloader", load),
        PRIVATE.replaced(DATA_FREE, "LifecycleCallbacks", _Rounding(passes)),
    ):
        yield


class _Passes:
    """The passes over the model, in the order in which the library begins them."""

    def __init__(self, kept: Kept, note: Note, skip: Skip) -> None:
        self._kept = kept
        self._note = note
        self._skip = skip
        self._count = 0
        self._now: _Pass | None = None

    def blocks(self, trace: Callable[..., Any]) -> Callable[..., Any]:
        """Return a stand-in for tracing: it returns the blocks that are left of a pass."""

        def left(model: torch.nn.Module, *arguments: Any, **settings: Any) -> Any:
            return self.begin(model, lambda: trace(model, *arguments, **settings))

        return left

    def begin(
        self, model: torch.nn.Module, cut: Callable[[], list[Any]], patience_s: float = 0
    ) -> list[Any]:
        """Begin a pass: restore what is kept of it, and return the blocks that are left."""
        modifiers = list(active_session().lifecycle.recipe.modifiers)
        number, self._count = self._count, self._count + 1
        stages = self._kept.progress.stages
        self._now = None
        if any(type(modifier).__name__ not in CHANGES for modifier in modifiers):
            del stages[number:]
            stages.append(Stage(name="", blocks=0))
            return cut()
        name = "+".join(type(modifier).__name__ for modifier in modifiers)
        if number < len(stages) and stages[number].is_finished:
            stage, blocks = stages[number], []
        else:
            blocks = cut()
            stage = Stage(name=name, blocks=len(blocks))
            if number < len(stages) and stages[number].blocks == len(blocks):
                stage = stages[number]
            else:
                del stages[number:]
                stages.append(stage)
        if stage.done:
            self._note(f"going on after block {stage.done} of {stage.blocks}: {name}")
            _restore(model, self._kept, stage)
            self._skip(stage.done)
        self._now = _Pass(self._kept, self._note, model, modifiers, stage, blocks, patience_s)
        return self._now

    def activations(self, load: Callable[..., Any]) -> Any:
        """Return a stand-in for loading: it returns the activations that the next block reads."""

        def loaded(
            dataloader: Any,
            model_device: torch.device = HOST,
            offload_device: torch.device | None = HOST,
        ) -> IntermediatesCache:
            now = self._now
            if now is None or not now.stage.done:
                cache = load(dataloader, model_device, offload_device)
            elif now.stage.is_finished:
                cache = IntermediatesCache([], offload_device)
            else:
                cache = read_activations(self._kept, model_device, offload_device)
            if now is not None:
                now.cache = cache
            return cache

        return staticmethod(loaded)


class _Rounding:
    """Stands for the library's events in passes without data: has them round layer by layer."""

    def __init__(self, passes: _Passes) -> None:
        self._passes = passes

    def __getattr__(self, name: str) -> Any:
        return getattr(LifecycleCallbacks, name)

    def sequential_epoch_end(self, modules: list[torch.nn.Module]) -> None:
        """Raise the event for a layer at a time, where the library does for the whole model."""
        model = modules[0]
        for block in self._passes.begin(model, lambda: layers_of(model), PATIENCE_S):
            LifecycleCallbacks.event(EventType.SEQUENTIAL_EPOCH_END, modules=block.modules)


@dataclass(frozen=True)
class Layer:
    """Modules that are rounded together: what shares a scale is in one layer."""

    modules: list[torch.nn.Module]

    def submodules(self, _model: torch.nn.Module) -> list[torch.nn.Module]:
        """Return the modules, as blocks of the library do."""
        return self.modules


def layers_of(model: torch.nn.Module) -> list[Layer]:
    """Group modules by the first number in their names; the others come last."""
    found: dict[str, list[torch.nn.Module]] = {}
    rest = []
    for name, module in model.named_modules():
        numbered = re.match(r".*?\.\d+(?=\.|$)", name)
        (found.setdefault(numbered[0], []) if numbered else rest).append(module)
    return [Layer(modules) for modules in (*found.values(), rest)]


class _Pass(list[Any]):
    """The blocks that are left of a pass; each is kept when the library asks for the next."""

    def __init__(
        self,
        kept: Kept,
        note: Note,
        model: torch.nn.Module,
        modifiers: list[Any],
        stage: Stage,
        blocks: list[Any],
        patience_s: float,
    ) -> None:
        super().__init__(blocks[stage.done :])
        self.stage = stage
        self.cache = IntermediatesCache([])
        self._kept = kept
        self._note = note
        self._model = model
        self._modifiers = modifiers
        self._activations = Activations(kept)
        self._unkept: list[Any] = []
        self._patient_till = time.monotonic() + patience_s
        self._next = 0.0
        self._keeps = True

    def __iter__(self) -> Iterator[Any]:
        progress = self._kept.progress
        begun = [stage for stage in progress.stages if stage.done]
        if begun and self.stage is begun[-1]:
            _set_random(progress.random)
        total, done = self.stage.blocks, self.stage.done
        for number, block in enumerate(list(super().__iter__()), done + 1):
            yield block
            self._unkept.append(block)
            # One more is lost with the block that is worked on when the end comes.
            must = number == total or len(self._unkept) >= max(1, total // REDONE - 1)
            now = time.monotonic()
            if self._keeps and now >= self._patient_till and (must or now >= self._next):
                self._keep(number)

    def _keep(self, number: int) -> None:
        began = time.monotonic()
        progress, last = self._kept.progress, number == self.stage.blocks
        try:
            activations = {} if last else self._activations.write(self.cache)
        except CannotKeep as error:
            self._keeps = False
            self._note(f"an interruption would start this over: {error} is not kept")
            return
        for block in self._unkept:
            if tensors := dict(_changed(self._model, self._modifiers, block)):
                self.stage.files.append(self._kept.write(tensors, {}))
        self._unkept.clear()
        self.stage.done = number
        progress.activations = activations
        progress.random = _random()
        self._kept.publish()
        now = time.monotonic()
        self._next = now + SHARE * (now - began)


def _of_mappings(modifier: Any, modules: set[torch.nn.Module]) -> Names:
    """Weights and biases between which AWQ and SmoothQuant move scales."""
    of_awq = hasattr(modifier, "_resolved_mappings")
    for mapping in modifier._resolved_mappings if of_awq else modifier.resolved_mappings_:
        touched = [mapping.smooth_layer, *mapping.balance_layers]
        if not modules.isdisjoint(touched):
            for module in touched:
                yield module, "weight"
                yield module, "bias"


def _of_schemes(_modifier: Any, modules: set[torch.nn.Module]) -> Names:
    """All tensors of modules that are quantized: GPTQ corrects weights."""
    for module in modules:
        if hasattr(module, "quantization_scheme"):
            for name in (*module._parameters, *module._buffers):
                yield module, name


def _of_scales(modifier: Any, modules: set[torch.nn.Module]) -> Names:
    """Scales and zero points alone: rounding leaves the weights for later."""
    for module, name in _of_schemes(modifier, modules):
        if name not in ("weight", "bias"):
            yield module, name


CHANGES: dict[str, Callable[[Any, set[torch.nn.Module]], Names]] = {
    "AwqFolding": _of_mappings,
    "SmoothQuantFolding": _of_mappings,
    "GPTQModifier": _of_schemes,
    "QuantizationModifier": _of_scales,
}


def _changed(
    model: torch.nn.Module, modifiers: list[Any], block: Any
) -> Iterator[tuple[str, torch.Tensor]]:
    modules = set(block.submodules(model))
    names = {module: name for name, module in model.named_modules()}
    for modifier in modifiers:
        for module, name in CHANGES[type(modifier).__name__](modifier, modules):
            tensor = getattr(module, name, None)
            if tensor is not None:
                yield f"{names[module]}.{name}", tensor.detach().to("cpu")


def _restore(model: torch.nn.Module, kept: Kept, stage: Stage) -> None:
    for file in stage.files:
        with safe_open(kept.path(file), framework="pt") as opened:
            names = opened.keys()
            for whole in names:
                module, _, name = whole.rpartition(".")
                update_offload_parameter(
                    model.get_submodule(module), name, opened.get_tensor(whole)
                )


def _random() -> list[Any]:
    """Return the states of all generators of random numbers, as JSON has them."""
    version, values, gauss = random.getstate()
    name, keys, place, has_gauss, cached = numpy.random.get_state()
    devices = [state.tolist() for state in torch.cuda.get_rng_state_all()]
    return [
        [version, list(values), gauss],
        [name, keys.tolist(), place, has_gauss, cached],
        torch.get_rng_state().tolist(),
        devices,
    ]


def _set_random(states: list[Any]) -> None:
    (version, values, gauss), (name, keys, *rest), own, devices = json.loads(json.dumps(states))
    random.setstate((version, tuple(values), gauss))
    numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), *rest))
    torch.set_rng_state(torch.tensor(own, dtype=torch.uint8))
    if devices and len(devices) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([torch.tensor(one, dtype=torch.uint8) for one in devices])
