"""Which tensors of a base an adapter's products are added to, and which rows of them.

Names in a checkpoint and PEFT's paths of modules differ by wrappers, by the names that experts have
and by what is in one tensor: what is left after that must be equal, and be there once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from packager.core.adapters import AdaptedModule, Adapter
from packager.core.documents import shorten
from packager.core.errors import ModelRefused
from packager.core.model import ModelFiles, TensorInfo
from packager.optimize.merge.segments import WIDTHS, Factor, Update

WRAPPERS = frozenset(
    ("model", "language_model", "vision_model", "transformer")
)  # around modules, by release
RENAMED = {"block_sparse_moe": "mlp", "w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
TRANSPOSED = frozenset(("gpt_oss", "llama4", "llama4_text"))  # experts: inputs by outputs
EXPERT = re.compile(r"(?P<path>.*\.experts|experts)\.(?P<number>\d+)\.(?P<part>\w+)")
COPIED = re.compile(r"\.base_layer\.weight$")
HALVES = ("gate_proj", "up_proj")  # of `gate_up_proj`, in this order
HEADS = ("lm_head", "embed_tokens", "wte", "embed_out", "embed_in", "word_embeddings")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTarget:
    """A tensor of the base, the adapter's tensors that change it, and how.

    The sources of `updates` are the base's tensor and then `factors`, in their order.
    """

    tensor: TensorInfo
    factors: tuple[TensorInfo, ...]
    updates: tuple[Update, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Return rows and columns: all dimensions but the last are rows."""
        return _rows(self.tensor), self.tensor.shape[-1]


def find_targets(model: ModelFiles, adapter: Adapter) -> tuple[MergeTarget, ...]:
    """Return what is changed, in the order of the base's tensors; raise `ModelRefused`.

    Every module of the adapter is in one of them: what is left out would be another model.
    """
    _refuse_special(adapter)
    base = _Base(model)
    base.refuse_resized(adapter)
    found: dict[str, list[tuple[Update, AdaptedModule]]] = {}
    for module in adapter.modules:
        _refuse_tied(module, model)
        for tensor, update in base.updates_of(module, adapter):
            found.setdefault(tensor.name, []).append((update, module))
    return tuple(_target(base.by_name[name], found[name]) for name in base.by_name if name in found)


def _target(tensor: TensorInfo, parts: list[tuple[Update, AdaptedModule]]) -> MergeTarget:
    ordered = sorted(parts, key=lambda part: part[0].row)
    end = 0
    for update, module in ordered:
        if update.row < end:
            raise _refusal(f"two of its modules change {tensor.name}, {module.path} one of them")
        end = update.row + update.rows
    factors = list(dict.fromkeys(one for _, module in ordered for one in (module.a, module.b)))
    updates = []
    for update, module in ordered:
        a = replace(update.a, source=1 + factors.index(module.a))
        b = replace(update.b, source=1 + factors.index(module.b))
        updates.append(replace(update, a=a, b=b))
    return MergeTarget(tensor=tensor, factors=tuple(factors), updates=tuple(updates))


class _Base:
    """Tensors of a base by what their names have in common with an adapter's paths."""

    def __init__(self, model: ModelFiles) -> None:
        self.by_name = {tensor.name: tensor for tensor in model.tensors}
        self._turned = any(
            isinstance(one, Mapping) and one.get("model_type") in TRANSPOSED
            for one in (model.config, model.config.get("text_config"))
        )
        self._by_path: dict[str, list[TensorInfo]] = {}
        for tensor in model.tensors:
            path = _common(tensor.name.removesuffix(".weight"))
            self._by_path.setdefault(path, []).append(tensor)

    def refuse_resized(self, adapter: Adapter) -> None:
        """Raise where the base's own weights beside a pair have another shape: it was resized."""
        for tensor in adapter.others:
            path = _common(COPIED.sub("", tensor.name.removeprefix("base_model.model.")))
            own = self._by_path.get(path, [])
            if any(one.shape != tensor.shape for one in own) or not own:
                raise _refusal(f"{shorten(tensor.name)} is not of the base's size")

    def updates_of(
        self, module: AdaptedModule, adapter: Adapter
    ) -> Iterator[tuple[TensorInfo, Update]]:
        """Yield the tensors that a module's product changes; raise where there is none."""
        path = _common(module.path.removesuffix(".base_layer"))
        if module.form == "experts":
            yield from self._experts(path, module)
            return
        whole = self._one(path, module)
        if whole is not None:
            is_embedding = module.form == "embedding"
            turned = bool(adapter.config.get("fan_in_fan_out")) or is_embedding
            rounded = is_embedding or _is_parameter(module, adapter)
            yield whole, self._whole(whole, module, turned=turned, rounded=rounded)
            return
        expert = EXPERT.fullmatch(path)
        if expert is None or (stacked := self._stacked(expert, module)) is None:
            raise _refusal(f"the base has no weights of its module {shorten(module.path)}")
        yield stacked

    def _whole(
        self, tensor: TensorInfo, module: AdaptedModule, *, turned: bool, rounded: bool
    ) -> Update:
        """Return the sum of a matrix, as it is or with inputs by outputs."""
        _check_type(tensor)
        straight = (module.outputs, module.inputs)
        shapes = (straight[::-1], straight) if turned else (straight, straight[::-1])
        if tensor.shape not in shapes:
            raise _unlike(tensor, module)
        is_turned = tensor.shape == shapes[0] if turned else tensor.shape != straight
        return _update(module, rows=tensor.shape[0], transposed=is_turned, rounded=rounded)

    def _experts(self, path: str, module: AdaptedModule) -> Iterator[tuple[TensorInfo, Update]]:
        """Yield the sums of a parameter that has all experts, in one tensor or in one for each."""
        count = module.a.shape[0] // module.rank
        for name, parts in (("gate_up_proj", HALVES), ("down_proj", ("down_proj",))):
            stacked = self._one(f"{path}.{name}", module)
            if stacked is not None and len(stacked.shape) == 3 and stacked.shape[0] == count:
                turned = self._is_turned(stacked, module)
                if turned is not None:
                    _check_type(stacked)
                    for number in range(count):
                        yield (
                            stacked,
                            _update(
                                module,
                                row=number * stacked.shape[1],
                                rows=stacked.shape[1],
                                transposed=turned,
                                expert=(number, count),
                            ),
                        )
                    return
            single = [
                [self._one(f"{path}.{number}.{part}", module) for part in parts]
                for number in range(count)
            ]
            if any(one is None for row in single for one in row):
                continue
            if self._one(f"{path}.{count}.{parts[0]}", module) is not None:
                raise _refusal(f"it has {count} experts at {shorten(module.path)}, the base more")
            height = module.outputs // len(parts)
            first = single[0][0]
            if first is None or first.shape != (height, module.inputs):
                continue
            for number, row in enumerate(single):
                for part, tensor in enumerate(row):
                    assert tensor is not None
                    _check_type(tensor)
                    if tensor.shape != (height, module.inputs):
                        raise _unlike(tensor, module)
                    yield (
                        tensor,
                        _update(module, rows=height, b_row=part * height, expert=(number, count)),
                    )
            return
        raise _refusal(f"the base has no experts that its module {shorten(module.path)} fits")

    def _is_turned(self, tensor: TensorInfo, module: AdaptedModule) -> bool | None:
        """Return whether experts are stored as inputs by outputs; None where they do not fit."""
        straight = tensor.shape[1:] == (module.outputs, module.inputs)
        turned = tensor.shape[1:] == (module.inputs, module.outputs)
        if straight and turned:
            return self._turned
        return turned if straight or turned else None

    def _stacked(
        self, expert: re.Match[str], module: AdaptedModule
    ) -> tuple[TensorInfo, Update] | None:
        """Return the rows of one expert's matrix in a tensor of all; None without such a tensor."""
        part, number = expert["part"], int(expert["number"])
        name = "gate_up_proj" if part in HALVES else part
        tensor = self._one(f"{expert['path']}.{name}", module)
        if tensor is None or len(tensor.shape) != 3 or number >= tensor.shape[0]:
            return None
        _check_type(tensor)
        parts = 2 if part in HALVES else 1
        if tensor.shape[1:] != (module.outputs * parts, module.inputs) or self._turned:
            raise _unlike(tensor, module)
        first = number * tensor.shape[1] + (module.outputs if part == HALVES[1] else 0)
        return tensor, _update(module, row=first, rows=module.outputs)

    def _one(self, path: str, module: AdaptedModule) -> TensorInfo | None:
        found = self._by_path.get(path, [])
        if len(found) > 1:
            names = " and ".join(shorten(one.name) for one in found[:2])
            raise _refusal(f"its module {shorten(module.path)} may be {names} of the base")
        return found[0] if found else None


def _update(
    module: AdaptedModule,
    *,
    rows: int,
    row: int = 0,
    b_row: int = 0,
    transposed: bool = False,
    rounded: bool = False,
    expert: tuple[int, int] = (0, 1),
) -> Update:
    number, count = expert
    a, b = (
        Factor(source=0, shape=(one.shape[0], one.shape[1]), dtype=one.dtype)
        for one in (module.a, module.b)
    )
    return Update(
        row=row,
        rows=rows,
        rank=module.rank,
        scale=module.scale,
        a=a,
        b=b,
        transposed=transposed,
        rounded=rounded or module.form == "experts",
        a_row=number * module.rank,
        b_row=b_row,
        b_column=number,
        b_step=count,
    )


def _is_parameter(module: AdaptedModule, adapter: Adapter) -> bool:
    """Return whether PEFT adapted a parameter by its name, which it merges as experts' ones."""
    named = adapter.config.get("target_parameters") or ()
    path = f"{module.path}.weight"
    return isinstance(named, list) and any(
        isinstance(one, str) and (path == one or path.endswith(f".{one}")) for one in named
    )


def _common(path: str) -> str:
    """Return a path without wrappers, with the names of experts that most models have."""
    parts = [part for part in path.split(".") if part not in WRAPPERS]
    in_experts = "experts" in parts
    return ".".join(
        RENAMED.get(part, part) if in_experts or part == "block_sparse_moe" else part
        for part in parts
    )


def _rows(tensor: TensorInfo) -> int:
    rows = 1
    for size in tensor.shape[:-1]:
        rows *= size
    return rows


def _check_type(tensor: TensorInfo) -> None:
    if tensor.dtype not in WIDTHS:
        raise _refusal(
            f"{tensor.name} of the base is {tensor.dtype}: quantized weights take no sums",
            hint="merge into the checkpoint that it was quantized from, and quantize the result "
            "with --quantize",
        )


def _refuse_special(adapter: Adapter) -> None:
    if adapter.flags:
        fields = ", ".join(sorted(adapter.flags))
        raise _refusal(f"its configuration sets {shorten(fields)}, which is more than a product")
    for tensor in adapter.others:
        if not COPIED.search(tensor.name):  # PEFT writes the base's own embedding beside a pair
            raise _refusal(f"it has {shorten(tensor.name)}, which is half of no pair")


def _refuse_tied(module: AdaptedModule, model: ModelFiles) -> None:
    """Raise where the head and the embedding are one tensor: a sum would change both."""
    configs: Iterable[object] = (model.config, model.config.get("text_config"))
    tied = any(isinstance(one, Mapping) and one.get("tie_word_embeddings") for one in configs)
    stored = any(tensor.name.endswith("lm_head.weight") for tensor in model.tensors)
    if module.leaf in HEADS and (tied or not stored):
        raise _refusal(
            f"{shorten(module.path)} is tied: the base's head is its embedding, and the adapter "
            "changes only one of them",
            hint="serve it beside the base: leave --merge-adapter out",
        )


def _unlike(tensor: TensorInfo, module: AdaptedModule) -> ModelRefused:
    shape = "×".join(map(str, tensor.shape))
    return _refusal(
        f"its module {shorten(module.path)} is {module.outputs}×{module.inputs}, and "
        f"{tensor.name} of the base {shape}",
        hint="give the base that it was trained on",
    )


def _refusal(what: str, *, hint: str = "") -> ModelRefused:
    return ModelRefused(
        f"the adapter cannot be merged: {what}",
        hint=hint or "serve it beside the base, or merge it with PEFT: `merge_and_unload()`",
        code="AdapterUnmerged",
    )
