"""Packs quantized modules one by one, and goes on after those that an earlier run packed.

Without data to look at, packing is most of the work.  What takes less than a minute is sooner
done again than kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import resuming
import torch
from compressed_tensors.compressors.format import infer_module_format
from compressed_tensors.config import CompressionFormat
from compressed_tensors.quantization import QuantizationStatus
from compressed_tensors.utils.module import get_direct_state_dict, replace_direct_state_dict
from keeping import Kept, Note
from library import PRIVATE
from private_names import find
from safetensors import safe_open

MODULE = "compressed_tensors.compressors.model_compressors.model_compressor"
KEPT_AT_ONCE = 20  # one in so many modules


@contextmanager
def packing(kept: Kept, model: torch.nn.Module, note: Note) -> Iterator[None]:
    """Keep what the library packs below; what is kept already is not packed again."""
    pack = find(MODULE, "compress_module")
    names = {module: name for name, module in model.named_modules()}
    count = sum(hasattr(module, "quantization_scheme") for module in names)
    places = _places(kept)
    if places:
        note(f"{len(places)} of {count} modules are packed already")
    unkept: list[torch.nn.Module] = []
    patient_till = time.monotonic() + resuming.PATIENCE_S

    def packed(module: torch.nn.Module, format: Any = None) -> None:
        nonlocal patient_till
        if names[module] in places:
            _restore(module, format, kept, places[names[module]], names[module])
            return
        pack(module, format)
        unkept.append(module)
        if len(unkept) >= count // KEPT_AT_ONCE and time.monotonic() >= patient_till:
            tensors = {
                f"{names[one]}.{name}": tensor.detach().to("cpu")
                for one in unkept
                for name, tensor in get_direct_state_dict(one).items()
                if tensor is not None
            }
            kept.progress.packed.append(kept.write(tensors, {}))
            kept.publish()
            unkept.clear()
            patient_till = time.monotonic() + resuming.PATIENCE_S

    with PRIVATE.replaced(MODULE, "compress_module", packed):
        yield


def _places(kept: Kept) -> dict[str, str]:
    """Return the file of every module that is packed."""
    found = {}
    for file in kept.progress.packed:
        with safe_open(kept.path(file), framework="pt") as opened:
            names = opened.keys()
            found.update(dict.fromkeys((whole.rpartition(".")[0] for whole in names), file))
    return found


def _restore(module: torch.nn.Module, format: Any, kept: Kept, file: str, name: str) -> None:
    """Set the packed tensors of a module, and the state that the library leaves it in."""
    scheme = module.quantization_scheme
    scheme.format = CompressionFormat(
        format or scheme.format or infer_module_format(type(module), scheme)
    )
    with safe_open(kept.path(file), framework="pt") as opened:
        every = opened.keys()
        names = [whole for whole in every if whole.rpartition(".")[0] == name]
        tensors = {whole.rpartition(".")[2]: opened.get_tensor(whole) for whole in names}
    replace_direct_state_dict(module, tensors)
    module.quantization_status = QuantizationStatus.COMPRESSED
