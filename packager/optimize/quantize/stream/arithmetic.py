"""Rounding of matrices, bit by bit as llm-compressor 0.14 and compressed-tensors 0.19 round.

These compute in the source's own type: each operation of PyTorch on a processor gives the float32
result, rounded to that type.  So does this, with NumPy alone.  Matrices come as rows of bytes; what
is computed of some rows depends on no others, except for the largest magnitude where a format
needs it.  `tests/live/test_stream_arithmetic.py` compares all of it with the libraries.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packager.optimize.quantize.stream.formats import BLOCK, Format

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

_HIGHEST = {"fp8": 448.0, "mxfp8": 448.0, "mxfp4": 6.0, "nvfp4": 6.0, "int8": 127.5, "int4": 7.5}
_EPSILON = {"BF16": 2.0**-7, "F16": 2.0**-10, "F32": 2.0**-23}  # in place of a scale of 0
_MANTISSA = {"BF16": 7, "F16": 10, "F32": 23}
_EXPONENT_OFFSET = {"mxfp4": 2, "mxfp8": 8}  # of the largest power of two that the type holds
_LARGEST_FP8 = 448.0
_SMALLEST_NORMAL = {"BF16": 2.0**-126, "F16": 2.0**-14, "F32": 2.0**-126}
_LEAST_F16 = 2.0**-25  # and less is 0 in float16
_BITS = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32}
_INFINITE: dict[str, int] = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000}


class NotFinite(ValueError):
    """A matrix holds a NaN or an infinity."""


def round_rows(
    form: Format, rows: memoryview | bytes, shape: tuple[int, int], dtype: str, largest: float
) -> tuple[bytes | memoryview, ...]:
    """Return the bytes of `form.outputs` for these rows, in their order.

    `shape` is that of the rows given; `largest` the largest magnitude of all that shares a global
    scale, where the format needs it.  What belongs to the whole matrix alone (its shape, its global
    scale) is empty here: `whole_outputs` has it.  Raises `NotFinite`.
    """
    given = np.frombuffer(rows, dtype=_BITS[dtype]).reshape(shape)
    if form.blocks:
        return _blocks(given, dtype)
    grouped = given.reshape(shape[0], -1, form.group_size or shape[1])
    if not form.symmetric:
        return _asymmetric(grouped, dtype)
    most = _magnitudes(grouped, dtype)
    if form.kind == "nvfp4":
        return _nvfp4(grouped, most, dtype, largest)
    if form.kind in _EXPONENT_OFFSET:
        return _mx(form, grouped, most, dtype)
    scales = _or_epsilon(_rounded(most / np.float32(_HIGHEST[form.kind]), dtype), dtype)
    scaled = _divided(_floats(grouped, dtype), scales[..., None], dtype)
    written = _written(scales, dtype)
    if form.packed:
        return _packed(scaled, form.kind), b"", written
    if form.kind == "int8":
        return _integers(scaled).tobytes(), written
    return _look_up(_fp8_codes(), scaled).data, written


def widen_rows(
    rows: memoryview | bytes,
    shape: tuple[int, int],
    scales: bytes,
    scale_type: str,
    block: tuple[int, int],
) -> bytes:
    """Return rows of FP8 in blocks as bfloat16: products in float32, rounded."""
    height, columns = shape
    down, across = block
    wide = _fp8_values()[np.frombuffer(rows, dtype=np.uint8)].reshape(shape)
    given = _floats(np.frombuffer(scales, dtype=_BITS[scale_type]), scale_type)
    own = given.reshape(math.ceil(height / down), -1)
    spread = np.repeat(np.repeat(own, across, axis=1)[:, :columns], down, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply(wide, spread[:height], out=wide)
    return _written(_rounded(wide, "BF16"), "BF16")


def largest_magnitude(rows: memoryview | bytes, dtype: str) -> float:
    """Return the largest magnitude of some numbers; raise `NotFinite`."""
    given = np.frombuffer(rows, dtype=_BITS[dtype])
    return float(_magnitudes(given.reshape(1, -1), dtype)[0]) if given.size else 0.0


def whole_outputs(form: Format, shape: tuple[int, int], dtype: str, largest: float) -> list[bytes]:
    """Return the bytes of the outputs that belong to the whole matrix; b"" for the others."""
    made = []
    for output in form.outputs(shape, dtype):
        match output.name:
            case "weight_shape":
                made.append(np.array(shape, dtype="<i8").tobytes())
            case "weight_global_scale":
                made.append(_global_scale(largest, dtype).tobytes())
            case _:
                made.append(b"")
    return made


def _blocks(given: NDArray[Any], dtype: str) -> tuple[bytes | memoryview, ...]:
    """Round FP8 in blocks of `BLOCK` rows and columns; what the last ones lack counts as 0."""
    rows, columns = given.shape
    down, across = -(-rows // BLOCK), -(-columns // BLOCK)
    padded = given
    if (rows, columns) != (down * BLOCK, across * BLOCK):
        padded = np.zeros((down * BLOCK, across * BLOCK), dtype=given.dtype)
        padded[:rows, :columns] = given
    most = _magnitudes(padded.reshape(down, BLOCK, across, BLOCK), dtype, axis=(1, 3))
    scales = _or_epsilon(_rounded(most / np.float32(_HIGHEST["fp8"]), dtype), dtype)
    spread = np.repeat(scales, BLOCK, axis=1)[:, None, :]
    floats = _floats(padded, dtype).reshape(down, BLOCK, across * BLOCK)
    codes = _look_up(_fp8_codes(), _divided(floats, spread, dtype))
    whole = codes.reshape(padded.shape)[:rows, :columns]
    return np.ascontiguousarray(whole).tobytes(), _written(scales, dtype)


def _asymmetric(grouped: NDArray[Any], dtype: str) -> tuple[bytes | memoryview, ...]:
    """Round integers of 4 bits with a zero point for each group."""
    _magnitudes(grouped, dtype)  # refuses what is no number
    floats = _floats(grouped, dtype)
    least = np.minimum(floats.min(axis=-1), np.float32(0))
    most = np.maximum(floats.max(axis=-1), np.float32(0))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scales = _rounded(_rounded(most - least, dtype) / np.float32(15), dtype)
        zeros = _rounded(np.float32(-8) - _rounded(least / scales, dtype), dtype)
    zeros = np.rint(np.nan_to_num(np.clip(zeros, -8, 7), nan=0.0))
    scales = _or_epsilon(scales, dtype)
    scaled = _divided(floats, scales[..., None], dtype)
    scaled += zeros[..., None]
    _round_in_place(scaled, dtype)
    values = (zeros + 8).astype(np.uint8)
    missing = -len(values) % 8
    values = np.pad(values, ((0, missing), (0, 0)))
    nibbles = values.reshape(-1, 8, values.shape[1]).transpose(0, 2, 1)
    packed = nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)
    beside = (packed.tobytes(), _written(scales, dtype))
    return _packed(scaled, "int4"), b"", *(beside[::-1] if dtype == "F32" else beside)


def _mx(
    form: Format, grouped: NDArray[Any], most: Floats, dtype: str
) -> tuple[bytes | memoryview, ...]:
    """Round with powers of two for scales, stored as exponents.

    A group whose largest magnitude rounds up to an infinity becomes zeros, as in the libraries.
    """
    mantissa = _MANTISSA[dtype]
    bits = _bits_of(most, dtype).astype(np.int64)
    power = (bits + (1 << (mantissa - 2))) >> mantissa  # its biased exponent
    bias = 15 if dtype == "F16" else 127
    exponents = power - bias + 127 - _EXPONENT_OFFSET[form.kind]
    exponents = np.where(power == 0, 0, np.clip(exponents, 0, 255))
    scales = _rounded(np.exp2((exponents - 127).astype(np.float64)).astype(np.float32), dtype)
    scales = np.where(scales == 0, np.float32(1), scales)
    beyond = power > 2 * bias
    scales = np.where(beyond, np.float32(np.inf), scales)
    scaled = _divided(_floats(grouped, dtype), scales[..., None], dtype)
    stored = np.where(beyond, 127, np.frexp(scales)[1] + 126).astype(np.uint8).tobytes()
    if form.kind == "mxfp8":
        return _look_up(_fp8_codes(), scaled).data, stored
    return _paired(_look_up(_fp4_codes(), scaled)), stored


def _nvfp4(
    grouped: NDArray[Any], most: Floats, dtype: str, largest: float
) -> tuple[bytes | memoryview, ...]:
    """Round with scales in FP8 and one in float32 for them all; numbers are float32 from there."""
    whole = _global_scale(largest, dtype)
    scales = whole * _rounded(most / np.float32(6), dtype)
    codes = _look_up(_fp8_codes(), np.minimum(scales, np.float32(_LARGEST_FP8)))
    scales = _fp8_values()[codes]
    scales[scales == 0] = 0.125
    stored = _look_up(_fp8_codes(), scales).tobytes()
    scaled = _divided(_floats(grouped, dtype), (scales / whole)[..., None], "F32")
    return _paired(_look_up(_fp4_codes(), scaled)), b"", stored


def _global_scale(largest: float, dtype: str) -> Floats:
    """Return what makes the scales of a matrix fill the range of FP8."""
    most = np.maximum(np.float32(largest), np.float32(_SMALLEST_NORMAL[dtype]))
    with np.errstate(over="ignore"):
        inverse = _rounded(np.array([np.float32(1) / most], np.float32), dtype)
        scale = _rounded(inverse * np.float32(_LARGEST_FP8 * 6), dtype)
    return np.where(np.isfinite(scale), scale, np.float32(1)).astype(np.float32)


def _magnitudes(given: NDArray[Any], dtype: str, axis: int | tuple[int, int] = -1) -> Floats:
    """Return the largest magnitude along an axis; raise `NotFinite`."""
    sign = given.dtype.type((1 << (8 * given.dtype.itemsize - 1)) - 1)
    most = np.bitwise_and(given, sign).max(axis=axis)
    if most.size and int(most.max()) >= _INFINITE[dtype]:
        raise NotFinite
    return _floats(most, dtype)


def _floats(bits: NDArray[Any], dtype: str) -> Floats:
    """Return numbers of a type as float32, in memory of its own."""
    if dtype == "F32":
        return bits.view(np.float32).copy()
    if dtype == "F16":
        return bits.view(np.float16).astype(np.float32)
    wide = bits.astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)


def _bits_of(floats: Floats, dtype: str) -> NDArray[Any]:
    """Return the bits of numbers that a type holds exactly."""
    if dtype == "F32":
        return floats.view(np.uint32)
    if dtype == "F16":
        return floats.astype(np.float16).view(np.uint16)
    return (floats.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def _written(floats: Floats, dtype: str) -> bytes:
    return _bits_of(np.ascontiguousarray(floats), dtype).tobytes()


def _rounded(floats: Floats, dtype: str) -> Floats:
    """Round to the nearest number of a type, ties to even; exact for every float32."""
    if dtype == "F16":
        with np.errstate(over="ignore"):
            return floats.astype(np.float16).astype(np.float32)
    floats = np.array(floats, dtype=np.float32)
    if dtype == "BF16":
        not_a_number = np.isnan(floats)
        _round_bits(floats, 16)
        floats[not_a_number] = np.nan
    return floats


def _or_epsilon(scales: Floats, dtype: str) -> Floats:
    scales[scales == 0] = _EPSILON[dtype]
    return scales


def _divided(floats: Floats, scales: Floats, dtype: str) -> Floats:
    """Divide in place, and round to the type as far as the formats can tell."""
    with np.errstate(over="ignore"):
        np.divide(floats, scales, out=floats)
    _round_in_place(floats, dtype)
    return floats


def _round_in_place(floats: Floats, dtype: str) -> None:
    """Round to a type; float16 below its normal numbers only to 0 or not: all formats end there."""
    if dtype == "BF16":
        _round_bits(floats, 16)
    elif dtype == "F16":
        floats[np.abs(floats) <= np.float32(_LEAST_F16)] = 0
        _round_bits(floats, 13)


def _round_bits(floats: Floats, dropped: int) -> None:
    """Round the mantissa in place, ties to even."""
    bits = floats.view(np.uint32)
    last = bits >> np.uint32(dropped)
    last &= np.uint32(1)
    last += np.uint32((1 << (dropped - 1)) - 1)
    bits += last
    bits &= np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)


def _look_up(codes: Bytes, floats: Floats) -> Bytes:
    """Return the code of each number, by its upper 16 bits.

    Where a format changes from one code to the next, the lower bits are 0, and so is the last of
    the upper ones: any of the lower ones counts as that.
    """
    bits = floats.view(np.uint32)
    lower = bits & np.uint32(0xFFFF)
    lower += np.uint32(0xFFFF)
    lower >>= np.uint32(16)
    lower <<= np.uint32(16)
    lower |= bits
    upper = lower.view(np.uint16).reshape(*floats.shape, 2)[..., 1]
    return np.take(codes, upper, mode="wrap")


def _integers(scaled: Floats) -> NDArray[np.int8]:
    np.rint(scaled, out=scaled)
    np.clip(scaled, -128, 127, out=scaled)
    return scaled.astype(np.int8)


def _packed(scaled: Floats, kind: str) -> bytes | memoryview:
    """Pack integers into words of 32 bits, row by row, the first one lowest."""
    rows = scaled.reshape(scaled.shape[0], -1)
    if kind == "int8":
        codes = (_integers(rows).view(np.uint8)) ^ np.uint8(0x80)
        return _padded(codes, 4).tobytes()
    return _paired(_padded(_look_up(_int4_codes(), rows), 8))


def _padded(codes: Bytes, multiple: int) -> Bytes:
    missing = -codes.shape[1] % multiple
    return np.pad(codes, ((0, 0), (0, missing))) if missing else codes


def _paired(codes: Bytes) -> memoryview:
    """Pack two codes of 4 bits into each byte, the first one lower."""
    flat = codes.reshape(-1)
    made = flat[1::2] << np.uint8(4)
    made |= flat[0::2]
    return made.data


@cache
def _upper_values() -> Floats:
    """Return the number that each pattern of 16 upper bits is; -0 as 0, since 0 is added to it."""
    values = (np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)).view(np.float32)
    return np.nan_to_num(values, nan=0.0, posinf=3e38, neginf=-3e38) + np.float32(0)


@cache
def _fp8_values() -> Floats:
    """Return the number of each code of FP8 E4M3 below that of a NaN; with the sign above them."""
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    values = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * np.exp2(exponent - 10.0))
    values[(codes & 127) == 127] = np.nan
    return np.where(codes < 128, values, -values).astype(np.float32)


@cache
def _fp8_codes() -> Bytes:
    return _nearest(_fp8_values()[:127], sign=128)


@cache
def _fp4_codes() -> Bytes:
    return _nearest(np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32), sign=8)


@cache
def _int4_codes() -> Bytes:
    return (np.clip(np.rint(_upper_values()), -8, 7) + 8).astype(np.uint8)


def _nearest(values: Floats, *, sign: int) -> Bytes:
    """Return the nearest of some values for each pattern, ties to even codes, bounded."""
    given = _upper_values()
    middles = (values[:-1].astype(np.float64) + values[1:]) / 2
    magnitudes = np.abs(given).astype(np.float64)
    below, upto = (np.searchsorted(middles, magnitudes, side=side) for side in ("left", "right"))
    codes = np.where(below % 2 == 0, below, upto)
    return (codes + np.where(given < 0, sign, 0)).astype(np.uint8)
