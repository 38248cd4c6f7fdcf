"""What a version of vLLM for processors was compiled with: `data/processors/vllm-*`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from packager.core.processors import Extension, Kernel, ProcessorKernels
from packager.core.share import read_shipped
from packager.core.versions import newest_until

PROCESSORS = Path(__file__).parents[1] / "data" / "processors"


def processor_kernels(version: str) -> ProcessorKernels:
    """Return the table of a version, or the newest one there is of an older version, or the oldest.

    Messages name the version whose table it is.
    """
    return _read(newest_until(_tables(), version))


@cache
def _tables() -> tuple[str, ...]:
    return tuple(path.stem.removeprefix("vllm-") for path in PROCESSORS.glob("vllm-*.json"))


@cache
def _read(version: str) -> ProcessorKernels:
    built = json.loads((PROCESSORS / f"vllm-{version}.json").read_text(encoding="utf-8"))
    rows = read_shipped(PROCESSORS / f"vllm-{version}.toml")["kernel"]
    return ProcessorKernels(
        who=f"vLLM {version}",
        extensions=tuple(
            Extension(
                machine=one["machine"],
                name=one["name"],
                chosen_by=frozenset(one["chosen_by"]),
                needs=frozenset(one["needs"]),
                operators=frozenset(one["operators"]),
            )
            for one in built["extensions"]
        ),
        kernels=tuple(
            Kernel(
                format=row["format"],
                name=row["name"],
                flags=frozenset(row["flags"]),
                operators=frozenset(row["operators"]),
            )
            for row in rows
        ),
    )
