"""A lesser processor than this one: flags of it hidden from packager and from engines.

`PACKAGER_TEST_HIDE_FLAGS` has words that flags of /proc/cpuinfo begin with, `avx512 amx`: a run of
tests with it is one on a processor without AVX-512, or nearly.  Nothing of packager reads it.

- Packager reads /proc/cpuinfo in one function, which commands of tests get replaced before they
  begin (`preloaded_commands`), and tests by `this_machine`.
- vLLM asks PyTorch, `torch.cpu._is_avx512_supported()`.  `without` gives the text of that module
  with other answers, which is mounted into containers; `engine_answers.py` runs its end.

oneDNN and ATen ask the processor itself: `tests/live/processors.py` caps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from packager.catalog import machine
from packager.core.instance import Instance

VARIABLE = "PACKAGER_TEST_HIDE_FLAGS"
AVX512 = "avx512 amx"  # what a processor with AVX2 lacks

# Functions of `torch.cpu` → the flag without which each says no: aten/src/ATen/cpu/Utils.cpp.
ASKED = {
    "_is_avx2_supported": "avx2",
    "_is_avx512_supported": "avx512f",
    "_is_avx512_bf16_supported": "avx512_bf16",
    "_is_vnni_supported": "avx512_vnni",
    "_is_amx_tile_supported": "amx_tile",
    "_is_amx_fp16_supported": "amx_fp16",
}

_read_processor = machine._processor


def hide_from_packager(environment: Mapping[str, str]) -> None:
    """Let packager's reading of this machine in this process leave out what is to be hidden."""
    words = environment.get(VARIABLE, "").split()

    def read(proc: Path) -> tuple[str, frozenset[str]]:
        model, flags = _read_processor(proc)
        return model, frozenset(flag for flag in flags if not _is_hidden(flag, words))

    machine._processor = read if words else _read_processor


def this_machine(environment: Mapping[str, str]) -> Instance:
    """Describe this machine as packager does in commands with that environment."""
    hide_from_packager(environment)
    try:
        return machine.describe_machine()
    finally:
        hide_from_packager({})


def answers(hidden: str) -> str:
    """Return lines of Python that make `torch.cpu` deny what is hidden."""
    words = hidden.split()
    denied = [name for name, flag in ASKED.items() if _is_hidden(flag, words)]
    return "".join(f"\n\ndef {name}() -> bool:\n    return False\n" for name in denied)


def _is_hidden(flag: str, words: list[str]) -> bool:
    return any(flag.startswith(word) for word in words)
