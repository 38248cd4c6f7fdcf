"""Sizes as people write them."""

from __future__ import annotations

import pytest

from packager.core.units import GIB, MIB, decimal, parse_size


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


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (10**13, "10.0 TB")],
    ids=str,
)
def test_a_size_is_never_a_thousand_of_its_unit(size: int, shown: str) -> None:
    assert decimal(size) == shown
