"""AWQ's search for scales, on all cores: the library's numbers bit by bit, in another order.

The library (0.14) tries some twenty scales for each fold.  For each it multiplies the weights,
rounds them, divides them again, and passes all texts through, one after the other.  Two things
keep cores waiting there, and are done otherwise on a processor:

- A dozen operations read and write a whole matrix each, which does not fit into caches.  Here the
  same operations, with the same roundings between them, are done to a few rows after the other.
- Threads wait for each other after every operation on a text.  Here texts pass beside each other.

Everything else, and whatever is not as it is known to be, is left to the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from compressed_tensors.offload.dist_utils import is_distributed
from compressed_tensors.quantization import QuantizationArgs, QuantizationStatus
from compressed_tensors.quantization.quant_args import QuantizationStrategy, QuantizationType
from compressed_tensors.quantization.utils import calculate_qparams, calculate_range
from library import search_is_known
from packager_worker import WorkerFailed
from torch.utils._pytree import tree_leaves

IN_CACHE = 1 << 19  # elements of a matrix that are worked on at a time: 4 MiB in 64 bits
PIECES = 4  # of a matrix for each thread, so that none waits long for another
MOST_ROUNDING = 8  # threads: more would wait for the interpreter
BESIDE = (2, 3)  # texts at a time: each holds its activations


class Workers:
    """Threads of Python beside each other, each with an equal part of PyTorch's threads."""

    def __init__(self, count: int, threads: int) -> None:
        self._pool = ThreadPoolExecutor(
            count, initializer=torch.set_num_threads, initargs=[threads]
        )
        self.count = count

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Call for each item without gradients, and return the results in their order."""

        def call(item: Any) -> Any:
            with torch.no_grad():  # which is a thread's own setting
                return function(item)

        waiting = [self._pool.submit(call, item) for item in items]
        try:
            return [one.result() for one in waiting]
        finally:
            for one in waiting:
                one.cancel()

    def close(self) -> None:
        """End the threads, after what they are at."""
        self._pool.shutdown()


class Cores:
    """The processor's threads: to round with, and for texts beside each other."""

    def __init__(self) -> None:
        self._threads = torch.get_num_threads()
        beside = next((count for count in BESIDE if self._threads % count == 0), 1)
        rounding = min(self._threads, MOST_ROUNDING)
        self._rounding = Workers(rounding, 1) if rounding > 1 else None
        self._texts = Workers(beside, self._threads // beside) if beside > 1 else None

    def __enter__(self) -> Cores:
        return self

    def __exit__(self, *_: object) -> None:
        for workers in (self._rounding, self._texts):
            if workers is not None:
                workers.close()
        torch.set_num_threads(self._threads)  # what threads to come begin with

    def round(self, matrices: list[Matrix], scales: torch.Tensor) -> None:
        """Set weights to what is left of them when they were scaled, rounded and unscaled."""
        count = self._rounding.count * PIECES if self._rounding else 1
        pieces = [piece for matrix in matrices for piece in matrix.pieces(count)]

        def run(piece: tuple[Matrix, int, int]) -> None:
            matrix, first, end = piece
            matrix.round(scales, first, end)

        if self._rounding is not None:
            self._rounding.map(run, pieces)
            return
        for piece in pieces:
            run(piece)

    def outputs(self, module: torch.nn.Module, batches: Any) -> list[torch.Tensor] | None:
        """Return what a module gives for each batch; None where it has to be one by one."""
        if self._texts is None or len(batches) < 2 or not _is_here(module):
            return None
        free = [_replica(module, {}) for _ in range(self._texts.count)]
        if None in free:
            return None

        def run(batch: Mapping[str, Any]) -> torch.Tensor:
            mine = free.pop()
            try:
                output = mine(**batch)
            finally:
                free.append(mine)
            return output[0] if isinstance(output, tuple) else output

        given = list(batches)
        # The longest first, so that all threads end together.
        order = sorted(range(len(given)), key=lambda at: -_size(given[at]))
        found = dict(zip(order, self._texts.map(run, [given[at] for at in order]), strict=True))
        return [found[at] for at in range(len(given))]


@dataclass(frozen=True)
class Matrix:
    """A matrix whose columns are scaled, and how it is rounded."""

    weight: torch.Tensor  # what the module multiplies by
    original: torch.Tensor
    args: QuantizationArgs
    scale: torch.Tensor
    zero_point: torch.Tensor | None  # None where the module has none

    def pieces(self, count: int) -> list[tuple[Matrix, int, int]]:
        """Cut the rows into about so many pieces: the matrix, the first row and the end."""
        rows = self.weight.shape[0]
        step = -(-rows // count)
        return [(self, row, min(row + step, rows)) for row in range(0, rows, step)]

    def round(self, scales: torch.Tensor, first: int, end: int) -> None:
        """Do what the library does to these rows, operation by operation."""
        columns = self.weight.shape[1]
        count = max(1, IN_CACHE // columns)
        exact = torch.empty(
            count, columns, dtype=torch.promote_types(scales.dtype, self.weight.dtype)
        )
        rounded = torch.empty(count, columns, dtype=self.weight.dtype)
        least, most = (float(bound) for bound in calculate_range(self.args, "cpu"))
        for at in range(first, end, count):
            rows = slice(at, min(at + count, end))
            wide, narrow = exact[: rows.stop - at], rounded[: rows.stop - at]
            narrow.copy_(wide.copy_(self.original[rows]).mul_(scales))
            groups = narrow.unflatten(-1, (-1, self.args.group_size))
            scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), self.args)
            self.scale[rows] = scale
            groups.div_(scale[..., None])
            if self.zero_point is None:
                groups.clamp_(least, most).round_()
            else:
                self.zero_point[rows] = zero
                zero = zero[..., None].to(narrow.dtype)
                groups.add_(zero).clamp_(least, most).round_().sub_(zero)
            groups.mul_(scale[..., None])
            self.weight[rows] = wide.copy_(narrow).div_(scales)


def can_search(mapping: Any, originals: Mapping[Any, torch.Tensor]) -> bool:
    """Return whether a fold's scales can be searched for here, or the library has to do it."""
    if not search_is_known() or is_distributed() or not _is_here(mapping.parent):
        return False
    layers = _rounded(mapping)
    return bool(layers) and all(_is_plain(layer, originals[layer]) for layer in layers)


def search(
    modifier: Any,
    mapping: Any,
    before: list[torch.Tensor],
    originals: Mapping[Any, torch.Tensor],
    cores: Cores,
) -> torch.Tensor:
    """Return the best scales of a fold, as `AWQModifier._compute_best_scale` finds them."""
    total, count = modifier._smooth_activation_stats[mapping.smooth_name]
    mean = total / count
    weights = modifier._compute_layer_means(mapping.balance_layers) if modifier.duo_scaling else 0
    matrices = [_matrix(layer, originals[layer]) for layer in _rounded(mapping)]
    first = least = None
    best = mean
    for ratio, duo in modifier._get_grid_search_params():
        if duo:
            scales = (mean.pow(ratio) / (weights.pow(1 - ratio) + 1e-4)).clamp(min=1e-4)
        else:
            scales = mean.pow(ratio).clamp(min=1e-4).view(-1)
        scales = scales / (scales.max() * scales.min()).sqrt()
        scales[torch.isinf(scales)] = 1
        scales[torch.isnan(scales)] = 1
        cores.round(matrices, scales.view(1, -1))
        loss = modifier._compute_loss(before, modifier._run_samples(mapping.parent))
        first = loss if first is None else first
        if loss < (math.inf if least is None else least):
            least, best = loss, scales
    if least is None:
        raise WorkerFailed(f"no scales of {mapping.smooth_name} gave a finite loss")
    modifier._error_metrics.append(
        {
            "layer_name": mapping.smooth_name,
            "parent_name": mapping.parent_name,
            "initial_error": first,
            "best_error": least,
            "reduction": least / first if first > 0 else 1.0,
        }
    )
    return best.detach()


def _rounded(mapping: Any) -> list[Any]:
    return [layer for layer in mapping.balance_layers if hasattr(layer, "quantization_scheme")]


def _is_plain(layer: Any, original: torch.Tensor) -> bool:
    """Whether a matrix is rounded to integers by groups, and nothing else is done to it."""
    args = layer.quantization_scheme.weights
    return (
        args is not None
        and args.strategy == QuantizationStrategy.GROUP
        and args.type == QuantizationType.INT
        and args.dynamic is False
        and args.scale_dtype is None
        and layer.quantization_status < QuantizationStatus.COMPRESSED
        and getattr(layer, "weight_global_scale", None) is None
        and original.ndim == 2
        and original.numel() > 0
        and original.is_contiguous()
        and original.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and original.shape[1] % args.group_size == 0
    )


def _matrix(layer: Any, original: torch.Tensor) -> Matrix:
    """Return a layer's matrix, with new tensors as the library makes for each scale it tries."""
    args = layer.quantization_scheme.weights
    shape = original.shape[0], original.shape[1] // args.group_size
    layer.weight.data = torch.empty_like(original)
    scale, zero_point = original.new_empty(shape), None
    if hasattr(layer, "weight_scale"):
        layer.weight_scale.data = scale
    if hasattr(layer, "weight_zero_point"):
        zero_point = original.new_empty(shape, dtype=args.zp_dtype)
        layer.weight_zero_point.data = zero_point
    return Matrix(layer.weight.data, original, args, scale, zero_point)


def _is_here(module: torch.nn.Module) -> bool:
    """Whether all tensors of a module are where the processor reads them."""
    return all(one.device.type == "cpu" for one in (*module.parameters(), *module.buffers()))


def _replica(module: torch.nn.Module, made: dict[torch.nn.Module, Any]) -> Any:
    """Return a module of the same tensors; None where its `forward` is somebody else's.

    A quantized Linear sets its weight while it multiplies: another thread must not see that.
    """
    if module in made:
        return made[module]
    forward = vars(module).get("forward")
    if forward is not None and getattr(forward, "__self__", None) is not module:
        return None
    copy = made[module] = module.__new__(type(module))
    vars(copy).update(vars(module))
    if forward is not None:
        copy.forward = MethodType(forward.__func__, copy)
    copy._parameters = {
        name: one if one is None else torch.nn.Parameter(one.data, requires_grad=False)
        for name, one in module._parameters.items()
    }
    copy._buffers = dict(module._buffers.items())
    copy._modules = dict(module._modules)
    for name, part in module._modules.items():
        if part is not None:
            copy._modules[name] = _replica(part, made)
            if copy._modules[name] is None:
                return None
    return copy


def _size(value: Any) -> int:
    """Count the elements of the tensors of a batch."""
    return sum(tensor.numel() for tensor in tree_leaves(value) if torch.is_tensor(tensor))
