"""Sizes as people write them."""

from __future__ import annotations

import pytest

from packager.core.units import GIB, MIB, parse_size


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("4GiB", 4 * GIB),
        ("1.5 GiB", 3 * GIB // 2),
        ("500MB", 500_000_000),
        ("64mib", 64 * MIB),
        ("1048576", MIB),
        ("7B", 7),
        (MIB, MIB),
    ],
)
def test_a_size_is_read(written: object, expected: int) -> None:
    assert parse_size(written) == expected


@pytest.mark.parametrize("written", ["", "GiB", "4 GiBs", "-1GiB", "1e9", "4G", "9" * 40])
def test_what_is_no_size_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(written)
