"""Sizes for people. Model sizes are decimal (GB), device memory is binary (GiB)."""

from __future__ import annotations

import re

MIB = 1024**2
GIB = 1024**3


def gib(size_bytes: float) -> str:
    """Write a memory size: `22.4 GiB`."""
    return (
        f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB / 10 else f"{size_bytes / MIB:.1f} MiB"
    )


def decimal(size_bytes: float) -> str:
    """Write a file or transfer size: `141.1 GB`, `8.4 MB`, `512 B`."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= unit * 0.99995:  # else 999,990 bytes were `1000.0 kB`
            return f"{size_bytes / unit:.1f} {name}"
    return f"{int(size_bytes)} B"


def percent(share: float, digits: int = 0) -> str:
    """Write a share: `20 %`."""
    return f"{100 * share:.{digits}f} %"


def usd(amount: float) -> str:
    """Write an amount of US dollars without its sign, with its significant digits."""
    return f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.4f}"


def dollars(amount: float) -> str:
    """Write an amount of money: `$0.98`, `< $0.01`."""
    return f"${amount:,.2f}" if amount >= 0.005 else "< $0.01"


def parse_size(written: object) -> object:
    """Parse `4GiB`, `500 MB` or `1048576` into bytes; returns other types unchanged."""
    if not isinstance(written, str):
        return written
    found = _SIZE.fullmatch(written.strip())
    if found is None:
        raise ValueError(f"{written!r} is not a size; write it as 4GiB, 500MB or bytes")
    return int(float(found["number"]) * _UNITS[(found["unit"] or "b").lower()])


def parse_time(written: str) -> float:
    """Parse `90s`, `30m`, `2h`, `7d`, `1w` or seconds into seconds."""
    found = _TIME.fullmatch(written.strip())
    if found is None:
        raise ValueError(f"{written!r} is not a time; write it as 90s, 30m, 2h or 7d")
    return float(found["number"]) * _SECONDS[found["unit"]]


_TIME = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,6})?)\s*(?P<unit>s|m|min|h|d|w)?", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400, None: 1}

_SIZE = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,9})?)\s*(?P<unit>[kmgt]i?b|b)?", re.IGNORECASE)
_UNITS = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}


def parse_rate(written: str) -> float:
    """Parse `10Gbit`, `125MiB` or `1GB` into bytes a second; `/s` may stand behind it."""
    text, rate = written.strip(), 0.0
    if found := _BITS.fullmatch(text):
        rate = float(found["number"]) * 1000 ** ("kmgt".index(found["unit"].lower()) + 1) / 8
    elif (size := _SIZE.fullmatch(text.removesuffix("/s"))) and size["unit"]:
        rate = float(size["number"]) * _UNITS[size["unit"].lower()]
    if rate <= 0:
        raise ValueError(f"{written!r} is not a speed; write it as 10Gbit or 125MiB")
    return rate


_BITS = re.compile(
    r"(?P<number>\d{1,9}(?:\.\d{1,9})?)\s*(?P<unit>[kmgt])(?:bit(?:/s)?|bps)", re.IGNORECASE
)


def counted(number: int, what: str) -> str:
    """Return `1 layer`, `2 layers`: a number with a word that takes an `s`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
