"""Rounding of matrices: written-out bytes, and what is refused.

That the bytes are the libraries' is asked for real in `tests/live/test_stream_arithmetic.py`.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from packager.optimize.quantize.stream import arithmetic
from packager.optimize.quantize.stream.formats import Format

FP8 = Format(kind="fp8")


def bf16(*values: float) -> bytes:
    """Write numbers that bfloat16 holds exactly."""
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def rounded(form: Format, rows: bytes, shape: tuple[int, int], dtype: str = "BF16") -> list[bytes]:
    largest = arithmetic.largest_magnitude(rows, dtype)
    return [bytes(one) for one in arithmetic.round_rows(form, rows, shape, dtype, largest)]


def test_fp8_rounds_ties_to_even_and_keeps_signs() -> None:
    row = bf16(448, 1, -1, 1.0625, 1.1875, -0.0, 2.0**-10, -(2.0**-11))

    codes, scales = rounded(FP8, row, (1, 8))

    assert codes == bytes([0x7E, 0x38, 0xB8, 0x38, 0x3A, 0x00, 0x00, 0x80])
    assert scales == bf16(1)


def test_a_row_of_zeros_has_the_smallest_step_for_a_scale() -> None:
    codes, scales = rounded(FP8, bf16(0, 0, 448, 448), (2, 2))

    assert codes == bytes([0, 0, 0x7E, 0x7E])
    assert scales == bf16(2.0**-7, 1)


def test_blocks_share_a_scale_and_the_last_ones_are_smaller() -> None:
    form = Format(kind="fp8", blocks=True)
    rows = bf16(*([448.0] * 129 + [0.0] * 128 + [896.0]))

    codes, scales = rounded(form, rows, (2, 129))

    assert scales == bf16(1, 2)
    assert codes[:128] == bytes([0x7E]) * 128
    assert (codes[128], codes[-1]) == (0x76, 0x7E)  # 224 and 448


def test_four_bits_are_packed_the_first_lowest() -> None:
    form = Format(kind="int4", group_size=8, packed=True)

    packed, shape, scales = rounded(form, bf16(7.5, 0, 1, -1, 2, -2, 3, -7.5), (1, 8))

    assert packed == bytes([0x8F, 0x79, 0x6A, 0x0B])
    assert (shape, scales) == (b"", bf16(1))


def test_zero_points_of_eight_rows_are_a_word() -> None:
    form = Format(kind="int4", group_size=8, packed=True, symmetric=False)
    rows = bf16(*([15.0] + [0.0] * 7) * 8)

    packed, _, zeros, scales = rounded(form, rows, (8, 8))

    assert zeros == bytes([0] * 4)
    assert packed == bytes([0x0F, 0, 0, 0]) * 8
    assert scales == bf16(*[1] * 8)


def test_scales_of_mx_are_powers_of_two() -> None:
    codes, scales = rounded(
        Format(kind="mxfp4", group_size=32), bf16(*[6.0] * 16 + [-1.0] * 16), (1, 32)
    )

    assert scales == bytes([127])
    assert codes == bytes([0x77] * 8 + [0xAA] * 8)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("dtype", "kind"), [("F32", np.float32), ("F16", np.float16)])
def test_what_is_no_number_is_refused(value: float, dtype: str, kind: type) -> None:
    rows = np.array([1, 2, value, 4], kind).tobytes()

    with pytest.raises(arithmetic.NotFinite):
        arithmetic.round_rows(FP8, rows, (2, 2), dtype, 0.0)
    with pytest.raises(arithmetic.NotFinite):
        arithmetic.largest_magnitude(rows, dtype)


def test_sizes_are_known_before_the_bytes() -> None:
    form = Format(kind="nvfp4", group_size=16)

    assert [
        (one.name, one.dtype, one.shape, one.size) for one in form.outputs((4, 32), "BF16")
    ] == [
        ("weight_packed", "U8", (4, 16), 64),
        ("weight_global_scale", "F32", (1,), 4),
        ("weight_scale", "F8_E4M3", (4, 2), 8),
    ]


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 33), "BF16"), ((4,), "BF16"), ((0, 32), "BF16"), ((4, 32), "F64")]
)
def test_other_shapes_and_types_do_not_fit(shape: tuple[int, ...], dtype: str) -> None:
    assert not Format(kind="mxfp4", group_size=32).fits(shape, dtype)


@pytest.mark.parametrize(
    ("dtype", "names"),
    [
        ("BF16", ["weight_packed", "weight_shape", "weight_zero_point", "weight_scale"]),
        ("F32", ["weight_packed", "weight_shape", "weight_scale", "weight_zero_point"]),
    ],
)
def test_larger_elements_come_first_and_equal_ones_by_name(dtype: str, names: list[str]) -> None:
    form = Format(kind="int4", group_size=8, packed=True, symmetric=False)
    rows = np.ones((16, 8), np.float32 if dtype == "F32" else np.uint16).tobytes()

    parts = rounded(form, rows, (16, 8), dtype)

    outputs = form.outputs((16, 8), dtype)
    assert [one.name for one in outputs] == names
    sizes = [one.size for one in outputs if one.name != "weight_shape"]
    assert [len(part) for part in parts if part] == sizes
