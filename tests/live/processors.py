"""Lesser processors than this one, for tests whose numbers depend on kernels.

oneDNN and PyTorch choose kernels by what the processor can do, and each adds in its own order.
Where the suite itself runs under caps, containers that it starts get them too.
"""

from __future__ import annotations

import os

AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
NATIVE: dict[str, str] = {}
PROCESSORS = {"native": NATIVE, "avx2": AVX2}


def caps() -> dict[str, str]:
    """Return the caps that this run of the suite is under, as variables."""
    return {name: os.environ[name] for name in AVX2 if name in os.environ}


def cap_words() -> tuple[str, ...]:
    """Return the same as options of commands that start containers."""
    return tuple(word for name, value in caps().items() for word in ("--env", f"{name}={value}"))
