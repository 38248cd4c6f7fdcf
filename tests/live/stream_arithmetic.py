"""Compares the stream's arithmetic with the libraries' on matrices: run in the tool environment.

    python stream_arithmetic.py COUNT SEED [FORMAT]

Makes COUNT matrices for each format and type, random and adversarial (zeros, denormals, ties,
huge and tiny rows, odd sizes), and prints one line of JSON for each format with what differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "containers/tools/common")]
sys.path.insert(0, str(ROOT / "containers/tools/llmcompressor"))

import numpy as np  # noqa: E402
import recipes  # noqa: E402
import torch  # noqa: E402
from compressed_tensors.compressors.base import BaseCompressor  # noqa: E402
from compressed_tensors.compressors.format import infer_module_format  # noqa: E402
from compressed_tensors.entrypoints.convert import FP8BlockDequantizer  # noqa: E402
from compressed_tensors.quantization import (  # noqa: E402
    QuantizationScheme,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.lifecycle.initialize import (  # noqa: E402
    initialize_module_for_quantization,
)
from compressed_tensors.utils.module import get_direct_state_dict  # noqa: E402
from llmcompressor.modifiers.quantization.calibration import (  # noqa: E402
    initialize_observer,
    observe,
    update_qparams,
)
from loguru import logger  # noqa: E402

from packager.optimize.quantize.stream import arithmetic  # noqa: E402
from packager.optimize.quantize.stream.formats import Format  # noqa: E402

TYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
# As recipes.py makes them of a method's settings; INT8 by its preset.
ASKED: dict[str, tuple[Format, dict[str, Any] | str]] = {
    "fp8": (Format(kind="fp8"), {"method": "fp8", "activations": "dynamic"}),
    "fp8-block": (Format(kind="fp8", blocks=True), {"method": "fp8", "activations": "block"}),
    "int8": (Format(kind="int8"), "W8A8"),
    "w8a16": (Format(kind="int8", packed=True, group_size=128), "W8A16"),
    "rtn-128": (
        Format(kind="int4", group_size=128, packed=True),
        {"method": "rtn", "symmetric": True, "group_size": 128},
    ),
    "rtn-32-asymmetric": (
        Format(kind="int4", group_size=32, packed=True, symmetric=False),
        {"method": "rtn", "symmetric": False, "group_size": 32},
    ),
    "w4afp8": (
        Format(kind="int4", group_size=128, packed=True),
        {"method": "w4afp8", "group_size": 128},
    ),
    "mxfp4": (Format(kind="mxfp4", group_size=32), {"method": "mxfp4", "scheme": "MXFP4A16"}),
    "mxfp8": (Format(kind="mxfp8", group_size=32), {"method": "mxfp8", "scheme": "MXFP8"}),
    "nvfp4": (Format(kind="nvfp4", group_size=16), {"method": "nvfp4"}),
}


def scheme_of(name: str) -> QuantizationScheme:
    """Return what the worker would give to the library."""
    asked = ASKED[name][1]
    if isinstance(asked, str):
        return preset_name_to_scheme(asked, ["Linear"])
    return recipes._scheme(asked)


def theirs(matrix: torch.Tensor, scheme: QuantizationScheme) -> dict[str, bytes]:
    """Quantize a matrix alone, as a modifier without data does, and pack it."""
    module = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias=False, dtype=matrix.dtype)
    module.weight.data = matrix
    module.quantization_scheme = scheme
    initialize_module_for_quantization(module)
    initialize_observer(module, "weight")
    observe(module, "weight")
    update_qparams(module, "weight")
    del module.weight_observer
    form = scheme.format or infer_module_format(torch.nn.Linear, scheme)
    compressor = BaseCompressor.get_value_from_registry(getattr(form, "value", form))
    made = compressor.compress(get_direct_state_dict(module), scheme)
    return {name: _bytes(one) for name, one in made.items() if one is not None and one.numel()}


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.detach().reshape(-1))
    return flat.view(torch.uint8).numpy().tobytes()


def ours(matrix: torch.Tensor, form: Format, dtype: str, step: int) -> dict[str, bytes]:
    """Round a matrix by blocks of `step` rows, as the stream does."""
    data = _bytes(matrix)
    shape = tuple(matrix.shape)
    largest = arithmetic.largest_magnitude(data, dtype)
    outputs = form.outputs(shape, dtype)
    made = [[one] for one in arithmetic.whole_outputs(form, shape, dtype, largest)]
    width = len(data) // shape[0]
    for start in range(0, shape[0], step):
        count = min(step, shape[0] - start)
        rows = data[start * width : (start + count) * width]
        parts = arithmetic.round_rows(form, rows, (count, shape[1]), dtype, largest)
        for whole, part in zip(made, parts, strict=False):
            whole.append(bytes(part))
    found = {one.name: b"".join(parts) for one, parts in zip(outputs, made, strict=True)}
    assert all(len(found[one.name]) == one.size for one in outputs), (form, shape, dtype)
    return found


def matrices(dtype: str, count: int, seed: int, form: Format) -> Iterator[torch.Tensor]:
    """Yield random and adversarial matrices."""
    random = np.random.default_rng([seed, len(dtype), sum(dtype.encode())])
    multiple = max(form.group_size, 2)
    for number in range(count):
        rows = int(random.integers(1, 300 if form.blocks else 40))
        columns = multiple * int(random.integers(1, 5))
        if form.blocks:
            columns = int(random.integers(1, 300))
        values = torch.from_numpy(random.standard_normal((rows, columns)).astype(np.float32))
        kind = number % 10
        if kind < 3:
            yield (values * 10.0 ** float(random.uniform(-4, 1))).to(TYPES[dtype])
        elif kind < 6:  # any bits that are finite: denormals, huge, negative zeros
            yield _any_bits(random, rows, columns, dtype)
        elif kind == 6:  # ties of every format, and zeros
            steps = torch.from_numpy(random.integers(-14, 15, (rows, columns)).astype(np.float32))
            yield (steps * 2.0 ** float(random.integers(-12, 8)) / 2).to(TYPES[dtype])
        elif kind == 7:  # rows of very different size, some of zeros
            powers = torch.from_numpy(random.integers(-14, 14, (rows, 1)).astype(np.float32))
            values = values * 2.0**powers
            values[torch.from_numpy(random.random(rows) < 0.2)] = 0
            yield values.to(TYPES[dtype])
        elif kind == 8:  # near the type's end
            finite = torch.finfo(TYPES[dtype]).max
            yield (values.clamp(-1, 1) * finite).to(TYPES[dtype])
        else:  # denormals alone, and zeros of both signs
            yield _any_bits(random, rows, columns, dtype, exponents=3)


def _any_bits(
    random: np.random.Generator, rows: int, columns: int, dtype: str, exponents: int = 0
) -> torch.Tensor:
    width, mantissa = (32, 23) if dtype == "F32" else (16, 7 if dtype == "BF16" else 10)
    whole = (1 << (width - 1 - mantissa)) - 1  # of an infinity
    exponent = random.integers(0, exponents or whole, (rows, columns))
    if random.random() < 0.5 and not exponents:  # near one another
        exponent = exponent[:1, :1] + random.integers(-8, 1, (rows, columns))
        exponent = np.clip(exponent, 0, whole - 1)
    bits = random.integers(0, 1 << mantissa, (rows, columns)) | exponent << mantissa
    bits |= random.integers(0, 2, (rows, columns)) << (width - 1)
    bits[random.random((rows, columns)) < 0.1] &= 1 << (width - 1)
    unsigned = bits.astype(np.uint32 if width == 32 else np.uint16)
    return torch.from_numpy(unsigned).view(TYPES[dtype])


def compare(name: str, count: int, seed: int) -> dict[str, Any]:
    """Return what differs."""
    form, scheme = ASKED[name][0], scheme_of(name)
    differs: list[str] = []
    compared = 0
    for dtype in TYPES:
        for number, matrix in enumerate(matrices(dtype, count, seed, form)):
            expected = theirs(matrix.clone(), scheme)
            step = form.row_multiple * (1 + number % 5)
            found = ours(matrix, form, dtype, step)
            compared += 1
            for part in sorted({*expected, *found}):
                if expected.get(part) != found.get(part):
                    differs.append(f"{dtype} {number} {tuple(matrix.shape)} {part}")
    return {"format": name, "compared": compared, "differs": differs}


def compare_widened(count: int, seed: int) -> dict[str, Any]:
    """Return which matrices in FP8 blocks become another bfloat16 than the library's."""
    random = np.random.default_rng(seed)
    codes = np.array([code for code in range(256) if code & 127 != 127], np.uint8)
    library, differs = FP8BlockDequantizer(), []
    for number in range(3 * count):
        rows, columns = (int(one) for one in random.integers(1, 300, 2))
        given = random.choice(codes, (rows, columns))
        grid = (-(-rows // 128), -(-columns // 128))
        bits = random.integers(0, 0x7F000000 >> (number % 3), grid).astype(np.uint32)
        scales = torch.from_numpy(bits.view(np.float32).copy())
        dtype = ("F32", "BF16")[number % 2]
        scales = scales.to(TYPES[dtype])
        weight = torch.from_numpy(given).view(torch.float8_e4m3fn)
        expected = _bytes(library._create_dequantized_weight(weight, scales))
        if expected != arithmetic.widen_rows(
            given.tobytes(), (rows, columns), _bytes(scales), dtype, (128, 128)
        ):
            differs.append(f"{dtype} {number} {rows}x{columns}")
    return {"format": "widened", "compared": 3 * count, "differs": differs}


def main() -> None:
    count, seed, *names = sys.argv[1:]
    torch.set_num_threads(1)
    logger.remove()
    for name in names or (*ASKED, "widened"):
        given = int(count), int(seed)
        told = compare_widened(*given) if name == "widened" else compare(name, *given)
        sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
