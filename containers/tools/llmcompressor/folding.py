"""SmoothQuant and AWQ with folds of our own, each proven before anything is rounded.

Both divide a module's output by scales and multiply the columns of what reads it.  That
changes nothing only if those columns are all that read it.  The proof, for each layer:

- every consumer's columns were multiplied by one scale for a column, the same in all
- the source times its scale is the source: `norm * scale / norm` is 1, measured on the
  norm's output, so that norms which add 1 to their weight are no special case
- every matrix of the layer gives, for a calibration text, what it gave before
- no other norm or bias of the model has another value

What is as small as the type's last subnormal digit is compared by that digit: float16 loses
it when scales move, and nothing is wrong.  SmoothQuant's scales are kept only where the rounded
matrices are nearer to the whole ones with them than without (`smoothing.py`).

Norms that compute `x * (1 + weight)` are plain ones in 32 bits in between.  Back in 16 bits
`1 + weight` must not be small, or its rounding is coarse: a power of two moves from the
consumers, which changes no digit of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from columns import ROWS, Columns, by_output, scale_between
from compressed_tensors.offload import disable_onloading, update_offload_parameter
from deriving import Fold
from llmcompressor.modifiers.transform.awq import AWQModifier
from llmcompressor.modifiers.transform.awq.base import get_lowest_common_ancestor_with_avoid
from llmcompressor.modifiers.transform.awq.mappings import ResolvedMapping
from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier
from llmcompressor.modifiers.transform.smoothquant.base import SmoothQuantMapping
from llmcompressor.modifiers.utils.hooks import HooksMixin
from norms import PlainNorm, plain_norms
from packager_worker import WorkerFailed
from pydantic import PrivateAttr
from searching import Cores, can_search, search
from smoothing import Rounding, bounded, by_magnitude

# How far a matrix's output may be from what it was, relative to it: scales and weights are
# rounded to the type once more.  Right folds gave at most 1.3 % in bfloat16, over all
# architectures of the table; wrong ones give 13 % and more in the first layer.
CLOSE = {torch.bfloat16: 0.04, torch.float16: 0.01, torch.float32: 1e-3}
# How far a scaled weight may be from the weight times its scale: some units in the last place.
EXACT = {torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9, torch.float32: 2.0**-18}
STEPS = 2  # of the last subnormal digit, that a value may be off besides
LEAST_GAIN = 0.01  # smaller ones do not ask for a larger power of two
MOST_SHIFT = 12  # powers of two


class NotEquivalent(WorkerFailed):
    """Folding changed what the model computes."""

    kind = "rejected"


@dataclass
class _Run:
    """One pass of one text through a layer; what it was called with, and what matrices gave."""

    arguments: tuple[Any, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)


class Proof:
    """Watches a model while scales are folded, and checks every fold."""

    def __init__(self, model: Any, folds: Iterable[Fold]) -> None:
        self.folds = {fold.source: fold for fold in folds}
        self._modules = dict(model.named_modules())
        self._layers = {fold.layer for fold in self.folds.values()}
        self._runs: dict[str, _Run] = {}
        self._current: _Run | None = None
        self._scales: dict[str, torch.Tensor] = {}
        self._moved: set[str] = set()  # layers in which scales moved
        with disable_onloading():  # shapes alone: weights on disk stay there
            norms = [name for name in self.folds if self._module(name).weight.ndim == 1]
            small = [name for name, one in model.named_parameters() if one.ndim == 1]
        self._norms = {name: self._probe(name) for name in norms}
        self._small = {name: _value(model, name).clone() for name in small}

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        """Record the first text's pass through each layer that has folds."""
        self._modules = dict(model.named_modules())
        handles = []
        for layer in self._layers:
            module = self._module(layer)
            handles.append(module.register_forward_pre_hook(self._starter(layer), with_kwargs=True))
            handles.append(module.register_forward_hook(self._stop))
            for name, matrix in self._matrices(layer):
                handles.append(matrix.register_forward_hook(self._recorder(name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def folding(self, name: str) -> Iterator[None]:
        """Check the fold of one source that is made inside; raise `NotEquivalent`."""
        fold, source = self.folds[name], self._module(name)
        self._moved.add(fold.layer)
        consumers = {other: Columns.of(self._module(other).weight) for other in fold.consumers}
        weight, bias = source.weight.detach().clone(), _bias(source)
        yield
        scale = self._check_columns(fold, consumers, weight, bias)
        if scale is None:
            return  # no text reached it
        self._check_source(fold, weight, scale)
        self._scales[name] = scale * self._shift(name)

    def check_layers(self, names: Iterable[str]) -> None:
        """Check that the layers of these sources compute what they did; raise `NotEquivalent`."""
        for layer in dict.fromkeys(self.folds[name].layer for name in names):
            if layer in self._moved:
                self._check_layer(layer)
            self._runs[layer] = _Run()  # texts that come later are not recorded

    def finish(self, model: Any) -> None:
        """Check norms and biases as they will be saved, once offset norms are back."""
        self._modules = dict(model.named_modules())
        for name, scale in self._scales.items():
            if name in self._norms:
                was, now = self._norms[name], self._probe(name) * scale
                close = EXACT[self._module(name).weight.dtype]
                if not torch.allclose(now, was, rtol=close, atol=close * float(was.abs().mean())):
                    worst = float((now - was).abs().max() / was.abs().mean())
                    raise NotEquivalent(f"{name} times its scales is off by {worst:.1%}")
        # Folds of an earlier run, which this one goes on with, were checked then.
        changed = {f"{name}.{part}" for name in self.folds for part in ("weight", "bias")}
        for name, was in self._small.items():
            if name not in changed and not torch.equal(_value(model, name), was):
                raise NotEquivalent(f"{name} changed, and no scale was to move there")

    def _module(self, name: str) -> Any:
        return self._modules[name]

    def _matrices(self, layer: str) -> list[tuple[str, Any]]:
        """List what multiplies by a matrix, but not where the outputs are scaled on purpose."""
        below = [
            (name, module)
            for name, module in self._modules.items()
            if name.startswith(f"{layer}.") and name not in self.folds
        ]
        with disable_onloading():
            return [
                (name, module)
                for name, module in below
                if getattr(getattr(module, "weight", None), "ndim", 0) == 2
            ]

    def _starter(self, layer: str) -> Any:
        def start(_module: Any, arguments: tuple[Any, ...], settings: dict[str, Any]) -> None:
            given = [value for value in (*arguments, *settings.values()) if torch.is_tensor(value)]
            traced = any(value.is_meta for value in given)  # the library looks at the graph first
            if layer not in self._runs and not traced:
                self._current = self._runs[layer] = _Run(arguments, dict(settings))

        return start

    def _stop(self, *_: Any) -> None:
        self._current = None

    def _recorder(self, name: str) -> Any:
        def record(_module: Any, _inputs: Any, output: Any) -> None:
            if self._current is not None and name not in self._current.outputs:
                first = output[0] if isinstance(output, tuple) else output
                rows = first.detach().reshape(-1, first.shape[-1])[:ROWS]
                self._current.outputs[name] = rows.float().cpu()

        return record

    def _probe(self, name: str) -> torch.Tensor:
        """Return what a norm gives for fixed numbers."""
        module = self._module(name)
        size = module.weight.shape[0]
        numbers = torch.linspace(-2, 3, size, device=module.weight.device).sin() + 0.1
        with torch.no_grad():
            return module(numbers[None].to(module.weight.dtype))[0].float().cpu()

    def _check_columns(
        self, fold: Fold, was: dict[str, Columns], weight: torch.Tensor, bias: Any
    ) -> torch.Tensor | None:
        """Return the scale of each column, which all consumers must have got; None for none."""
        now = {name: columns.again(self._module(name).weight) for name, columns in was.items()}
        if all(torch.equal(now[name].rows, columns.rows) for name, columns in was.items()):
            return None
        source = self._module(fold.source)
        pairs = [(columns.largest, now[name].largest) for name, columns in was.items()]
        size = len(pairs[0][0])
        pairs += [
            (by_output(after, size), by_output(before, size))
            for before, after in ((weight, source.weight), (bias, _bias(source)))
            if before is not None
        ]
        scale = scale_between(pairs)
        for name, columns in was.items():
            for before, after in columns.beside(now[name]):
                if not self._is_close(fold, after, before * scale):
                    raise NotEquivalent(f"the columns of {name} were not scaled as others are")
        return scale

    def _check_source(self, fold: Fold, was: torch.Tensor, scale: torch.Tensor) -> None:
        now = self._module(fold.source).weight.detach().float().cpu()[-len(scale) :]
        before = was.float().cpu()[-len(scale) :]
        if not self._is_close(fold, now, before / (scale if now.ndim == 1 else scale[:, None])):
            raise NotEquivalent(f"{fold.source} was not divided by the scales of what it feeds")

    def _is_close(self, fold: Fold, now: torch.Tensor, meant: torch.Tensor) -> bool:
        dtype = self._module(fold.consumers[0]).weight.dtype
        return torch.allclose(now, meant, rtol=EXACT[dtype], atol=STEPS * _least(dtype))

    def _shift(self, name: str) -> float:
        """Move a power of two from the consumers of an offset norm to it; return its inverse."""
        norm = self._module(name)
        if not isinstance(norm, PlainNorm):
            return 1.0
        gains = norm.weight.detach().abs().cpu()
        counted = gains[norm.original_gain.abs() >= LEAST_GAIN]
        least = float(counted.min()) if len(counted) else 1.0
        power = 2.0 ** min(MOST_SHIFT, max(0, math.ceil(-math.log2(max(least, 1e-30)))))
        for part in ("weight", "bias"):
            if (held := getattr(norm, part)) is not None:
                update_offload_parameter(norm, part, held.detach() * power)
        for other in self.folds[name].consumers:
            module = self._module(other)
            update_offload_parameter(module, "weight", module.weight.detach() / power)
        return 1.0 / power

    def _check_layer(self, layer: str) -> None:
        run = self._runs.get(layer)
        if run is None:
            raise NotEquivalent(f"no text passed through {layer}: its folds cannot be checked")
        self._current = again = _Run()
        with torch.no_grad(), HooksMixin.disable_hooks():
            self._module(layer)(*run.arguments, **run.settings)
        self._current = None
        folds = [fold for fold in self.folds.values() if fold.layer == layer]
        types = {self._module(fold.source).weight.dtype for fold in folds}
        for name, was in run.outputs.items():
            now = again.outputs.get(name)
            if now is None or now.shape != was.shape:
                continue  # an expert that other tokens were sent to
            # A router in 32 bits reads what a norm in 16 gives.
            dtype, size = self._module(name).weight.dtype, float(was.norm())
            close = max(CLOSE[dtype], *(CLOSE[one] for one in types))
            error = float((now - was).norm()) / max(size, 1e-30)
            if not error * size <= close * size + STEPS * _least(dtype) * was.numel() ** 0.5:
                raise NotEquivalent(
                    f"after scales moved, {name} gives something else: it is off by {error:.0%}",
                    "use a method that moves no scales, such as `--quantize gptq` or `fp8`",
                )


def _bias(module: Any) -> torch.Tensor | None:
    bias = getattr(module, "bias", None)
    return None if bias is None else bias.detach().clone()


def _least(dtype: torch.dtype) -> float:
    """Return the smallest step between two numbers of a type."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def _value(model: Any, name: str) -> torch.Tensor:
    return model.get_parameter(name).detach().cpu()


class SmoothQuantFolding(SmoothQuantModifier):
    """SmoothQuant where folds were found, and where it makes the rounded layer better."""

    _proof: Proof = PrivateAttr()
    _rounding: Rounding = PrivateAttr()
    _scales: torch.Tensor | None = PrivateAttr(default=None)  # of the fold that is made

    def _infer_mappings_from_model(self, model: Any) -> list[tuple[Any, ...]]:
        del model
        return []

    def _resolve_mappings(self, model: Any) -> list[SmoothQuantMapping]:
        modules = dict(model.named_modules())
        return [
            SmoothQuantMapping(
                fold.source, modules[fold.source], [modules[name] for name in fold.consumers]
            )
            for fold in self._proof.folds.values()
        ]

    def _setup_scale_hooks(self) -> None:
        super()._setup_scale_hooks()
        for mapping in self.resolved_mappings_ or ():
            self.register_hook(
                mapping.balance_layers[0], self._rounding.watch(mapping.smooth_name), "forward_pre"
            )

    def _apply_smoothing(self, model: Any) -> None:
        every, measured = self.resolved_mappings_, self.scales_
        assert every is not None and measured is not None
        now = [mapping for mapping in every if mapping.smooth_name in measured]
        for mapping in now:
            name, layers = mapping.smooth_name, mapping.balance_layers
            largest = by_magnitude(measured[name])
            self._scales = self._calculate_smoothing_scales(layers, 2 * largest)
            if self._rounding.improves(name, layers, self._scales):
                self.resolved_mappings_ = [mapping]
                with self._proof.folding(name):
                    super()._apply_smoothing(model)
            else:
                del measured[name]
            self._scales = None
        self.resolved_mappings_ = every
        self._proof.check_layers(mapping.smooth_name for mapping in now)

    def _calculate_smoothing_scales(
        self, balance_layers: list[Any], activation_scales: torch.Tensor
    ) -> torch.Tensor:
        if self._scales is not None:
            return self._scales  # the library computes them once more
        return bounded(super()._calculate_smoothing_scales(balance_layers, activation_scales))


class AwqFolding(AWQModifier):
    """AWQ where the plan says."""

    _proof: Proof = PrivateAttr()
    _cores: Cores | None = PrivateAttr(default=None)

    def _set_resolved_mappings(self, model: Any) -> None:
        modules = dict(model.named_modules())
        resolved = []
        for fold in self._proof.folds.values():
            names = list(fold.consumers)
            parent_name, parent = get_lowest_common_ancestor_with_avoid(
                names, model, torch.nn.ModuleList
            )
            resolved.append(
                ResolvedMapping(
                    fold.source, modules[fold.source], [modules[name] for name in names],
                    balance_names=names, parent=parent, parent_name=parent_name,
                )
            )  # fmt: skip
        self._resolved_mappings = resolved

    def _apply_smoothing(self, model: Any) -> None:
        every, measured = self._resolved_mappings, self._smooth_activation_stats
        now = [mapping for mapping in every if mapping.smooth_name in measured]
        # What a parent is called with is recorded once: folds inside of it leave that as it is.
        now.sort(key=lambda one: not one.smooth_name.startswith(f"{one.parent_name}."))
        with Cores() as self._cores:
            for place, mapping in enumerate(now):
                name, parent = mapping.smooth_name, mapping.parent
                called = self._parent_args_cache[parent]
                self._resolved_mappings = [mapping]
                self._smooth_activation_stats = {name: measured.pop(name)}
                with self._proof.folding(name):
                    super()._apply_smoothing(model)
                if any(later.parent is parent for later in now[place + 1 :]):
                    self._parent_args_cache[parent] = called
        self._resolved_mappings, self._smooth_activation_stats = every, measured
        self._proof.check_layers(mapping.smooth_name for mapping in now)

    def _compute_best_scale(
        self, mapping: Any, fp16_outputs: list[torch.Tensor], orig_layer_weights: dict[Any, Any]
    ) -> torch.Tensor:
        assert self._cores is not None
        if not can_search(mapping, orig_layer_weights):
            return super()._compute_best_scale(mapping, fp16_outputs, orig_layer_weights)
        return search(self, mapping, fp16_outputs, orig_layer_weights, self._cores)

    def _compute_loss(self, before: list[torch.Tensor], after: list[torch.Tensor]) -> float:
        if before[0].dtype != torch.float16:
            return super()._compute_loss(before, after)
        # The library adds squares in the outputs' own type, and float16 ends at 65504.
        pairs = zip(before, after, strict=True)
        squares = sum(float((was.float() - now.float()).square().sum()) for was, now in pairs)
        return squares / sum(one.numel() for one in before)

    def _run_samples(self, module: Any) -> list[torch.Tensor]:
        assert self._cores is not None
        outputs = self._cores.outputs(module, self._parent_args_cache[module])
        return super()._run_samples(module) if outputs is None else outputs


@contextmanager
def proven(model: Any, folds: Iterable[Fold]) -> Iterator[Proof]:
    """Quantize inside: offset norms are plain ones, folds are watched, and checked at the end."""
    proof = Proof(model, folds)
    with plain_norms(model), proof.watching(model):
        yield proof
    proof.finish(model)


def make_awq(proof: Proof, **settings: Any) -> AwqFolding:
    """Return AWQ's modifier, which proves its folds."""
    modifier = AwqFolding(**settings)
    modifier._proof = proof
    return modifier


def make_smoothquant(proof: Proof, rounding: Rounding, **settings: Any) -> SmoothQuantFolding:
    """Return SmoothQuant's modifier, which proves its folds and measures what they are good for."""
    modifier = SmoothQuantFolding(**settings)
    modifier._proof, modifier._rounding = proof, rounding
    return modifier
