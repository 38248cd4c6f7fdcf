"""What a build of an engine can compute with on a processor, by the processor's flags.

A build has an extension module for each kind of processor.  Which one the engine loads follows
from the flags of /proc/cpuinfo; which formats of weights it can multiply follows from the
operators that this module has.  A format is named as in `Scheme.needs`; beside them are
`plain`, weights that are not quantized, `experts`, quantized experts, `fp8_block`, FP8 with block
scales, `fp8_kv`, an FP8 cache, and `deepseek_v4`, that model's attention and experts.
"""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.instance import Instance

X86 = "x86_64"  # what an instance is that does not say
SETS = {"avx512f": "AVX-512", "amx_tile": "AMX"}  # flag → the set that people know it by


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """One extension module of a build."""

    machine: str  # architecture: `x86_64`
    name: str  # `_C_AVX2`
    chosen_by: frozenset[str]  # flags with which the engine loads it
    needs: frozenset[str]  # flags that its code uses without a check
    operators: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One way in which an engine computes with a format."""

    format: str
    name: str  # as the engine's log names it
    flags: frozenset[str]  # without which the engine takes the next one of the format
    operators: frozenset[str]  # that it calls


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorKernels:
    """A build of an engine for processors: its extensions and its kernels, each in its order."""

    who: str  # `vLLM 0.32.0`
    extensions: tuple[Extension, ...]
    kernels: tuple[Kernel, ...]

    @property
    def formats(self) -> frozenset[str]:
        """Return the formats that some extension can compute with."""
        return frozenset(one.format for one in self.kernels)

    @property
    def everywhere(self) -> frozenset[str]:
        """Return the formats that every extension can compute with, whatever the flags are."""
        return frozenset.intersection(
            *(self._formats(one, one.chosen_by) for one in self.extensions)
        )

    def extension(self, instance: Instance) -> Extension | None:
        """Return what the engine loads; None where the flags or the architecture are not known."""
        flags = known_flags(instance)
        if not flags:
            return None
        machine = instance.machine or X86
        return next(
            (one for one in self.extensions if one.machine == machine and one.chosen_by <= flags),
            None,
        )

    def formats_on(self, instance: Instance) -> frozenset[str]:
        """Return the formats that it computes with there.

        Where the flags are not known: those that need none, and those that the instance names.
        """
        extension = self.extension(instance)
        if extension is None:
            return self.everywhere | (self.formats & instance.formats)
        return self._formats(extension, known_flags(instance))

    def missing_operators(self, wanted: str, instance: Instance) -> tuple[str, ...]:
        """Return the operators that the kernel of a format would call there and that are not."""
        extension = self.extension(instance)
        if extension is None:
            return ()
        kernel = self._kernel(wanted, known_flags(instance))
        return tuple(sorted(kernel.operators - extension.operators)) if kernel else ()

    def wanted_by(self, wanted: str) -> str:
        """Return the set that a processor needs for a format: `AVX-512`, `AMX`, ``."""
        having = [one for one in self.extensions if wanted in self._formats(one, one.chosen_by)]
        least = having[-1].chosen_by if having else self._kernel_flags(wanted)
        return " and ".join(sorted(name for flag, name in SETS.items() if flag in least))

    def _kernel_flags(self, wanted: str) -> frozenset[str]:
        return next((one.flags for one in self.kernels if one.format == wanted), frozenset())

    def _formats(self, extension: Extension, flags: frozenset[str]) -> frozenset[str]:
        chosen = {name: self._kernel(name, flags) for name in self.formats}
        return frozenset(
            name for name, one in chosen.items() if one and one.operators <= extension.operators
        )

    def _kernel(self, wanted: str, flags: frozenset[str]) -> Kernel | None:
        """Return the kernel that the engine takes: it looks at flags, not at its operators."""
        return next(
            (one for one in self.kernels if one.format == wanted and one.flags <= flags), None
        )


def known_flags(instance: Instance) -> frozenset[str]:
    """Return the flags that an instance's processor is known to have; empty if unknown."""
    return frozenset(instance.isa) | frozenset(instance.flags)
