"""Machines named by their devices: `8xH100-80`, `4xL40S`, `2xMI300X`.

A plan needs no more than number and device: the host's memory, processor and price are unknown,
which refuses no plan.  The name is made canonical for plans, image labels and rankings.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from itertools import chain

from packager.catalog.accelerators import AcceleratorRow, accelerator_rows
from packager.core.errors import UsageError
from packager.core.instance import Instance

MOST_DEVICES = 64  # of one machine; more than any server has

SPELLING = re.compile(r"(\d{1,9})\s*[x\u00d7]\s*(\S.{0,60})", re.IGNORECASE)
VENDORS = frozenset({"nvidia", "tesla", "amd", "instinct", "blackwell", "edition", "gpu"})
SIZE = re.compile(r"^(\d+)(?:gb|g)$")
SOCKET = re.compile(r"^sxm\d$")


class UnknownDevice(UsageError):
    """A machine is named by devices that the catalog does not have, or by several."""

    def __init__(self, name: str, device: str, nearest: tuple[str, ...], known: str) -> None:
        guess = f"did you mean {' or '.join(map(repr, nearest))}? " if nearest else ""
        super().__init__(
            f"{name!r} names a machine by its devices, and {device!r} is none of the catalog's",
            hint=f"{guess}known: {known}",
        )


class AmbiguousDevice(UsageError):
    """Several devices of the catalog go by the name."""

    def __init__(self, name: str, device: str, meant: tuple[str, ...]) -> None:
        super().__init__(
            f"{device!r} of {name!r} is one of several devices",
            hint=f"say which: {' or '.join(meant)}",
        )
        self.meant = meant


def device_count(name: str) -> UsageError:
    """Return an error: a machine with no device, or with more than one machine holds."""
    return UsageError(
        f"{name!r} is not a machine: a machine has 1 to {MOST_DEVICES} devices",
        hint="name one machine; several of them are `--nodes`",
        code="DeviceCount",
    )


def bare_machine(name: str) -> Instance | None:
    """Return the machine that `8xH100-80` names; None where the name has another form.

    Raises `UnknownDevice`, `AmbiguousDevice` or `device_count`.
    """
    match = SPELLING.fullmatch(name.strip())
    if match is None:
        return None
    devices, device = int(match[1]), match[2]
    row = find_device(name, device)
    if not 1 <= devices <= MOST_DEVICES:
        raise device_count(name)
    return Instance(
        name=f"{devices}x{row.spelled}",
        kind=row.kind,
        device_name=row.name,
        devices=devices,
        device_bytes=row.memory_bytes,
        host_bytes=None,
        vcpus=None,
        compute_capability=row.compute_capability,
        formats=row.formats,
        price_basis="none: say it with --usd-per-hour",
        source=f"named by its devices; {row.source}",
        date=row.date,
        link=row.link if devices > 1 else "",
        machine=row.machine or None,
        cloud="bare",
    )


def machines_of(device: str) -> tuple[str, ...]:
    """Return the names of machines with one of a device, such as `1xL4`; none for other words."""
    try:
        machine = bare_machine(f"1x{device}")
    except AmbiguousDevice as error:
        return tuple(f"1x{spelled}" for spelled in error.meant)
    except UnknownDevice:
        return ()
    return (machine.name,) if machine is not None else ()


def find_device(name: str, device: str) -> AcceleratorRow:
    """Find the device of the catalog that a spelling means: `h100-sxm5-80gb`, `A100 80GB PCIe`."""
    rows = [row for row in accelerator_rows().values() if row.spelled]
    words = words_of(device)
    found = [row for row in rows if row.must <= words <= row.must | row.may]
    if len(found) == 1:
        return found[0]
    lacking = [row.spelled for row in rows if words and words <= row.must | row.may]
    if lacking:
        raise AmbiguousDevice(name, device, tuple(lacking))
    spelled = {row.spelled.casefold(): row.spelled for row in rows}
    near = difflib.get_close_matches(device.casefold(), spelled, n=2, cutoff=0.5)
    raise UnknownDevice(
        name, device, tuple(spelled[one] for one in near), ", ".join(spelled.values())
    )


def words_of(device: str) -> frozenset[str]:
    """Split a device's name into its distinctive parts: `NVIDIA H10080GB` gives h100 and 80."""
    parts = (_joined(part) for part in re.split(r"[^a-z0-9]+", device.casefold()) if part)
    return frozenset(chain.from_iterable(parts)) - VENDORS


@cache
def _joined(part: str) -> tuple[str, ...]:
    """Return the words that a spelling without dashes joins, as few as can be; else itself."""
    known = _known_words()
    if word := _word(part, known):
        return (word,)
    for size in range(len(part) - 1, 0, -1):
        first, rest = _word(part[:size], known), _joined(part[size:])
        if first and all(word in known for word in rest):
            return (first, *rest)
    return (part,)


def _word(text: str, known: frozenset[str]) -> str:
    """Return the known word that a text is: `80gb` is 80, `sxm5` is sxm; "" for others."""
    word = SOCKET.sub("sxm", SIZE.sub(r"\1", text))
    return word if word in known else ""


@cache
def _known_words() -> frozenset[str]:
    rows = accelerator_rows().values()
    return VENDORS.union(*(row.must | row.may for row in rows))
