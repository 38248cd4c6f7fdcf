"""What was compiled ahead of time, made ready for the engine before it starts.

`manifest.json` in the image's directory of compiled files says for which processor or GPU
they are, and what each file holds.  The engine wants to write into its caches, so they are
copied to a directory of this container; each file is compared with its digest on the way:
machine code that was cut short kills the process that loads it.

Code for a processor is compiled for exactly the instructions of the machine that compiled it.
On another one it may compute other numbers or die: then the caches are left alone, this
says so, and the engine compiles as it would without them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

COPY = Path("/tmp/packager-compiled")  # the rendered environment points below it
MANIFEST = "manifest.json"
SCHEMA = 1
SWITCH = "PACKAGER_COMPILED"  # the directory of compiled files, or "off"

# What the image sets for the sake of its files.  An engine that compiles is faster with torch's
# precompiled header, one that finds everything compiled would make it at each start for nothing.
FOR_THE_FILES = ("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS",)

# Instructions that compilers choose by themselves when told to compile for this machine.
ISA = re.compile(
    r"avx\w*|amx\w*|sse4\w*|ssse3|fma|f16c|bmi[12]|abm|adx|movbe|popcnt"  # x86
    r"|asimd\w*|sve\w*|bf16|i8mm|fphp|atomics|dotprod|flagm\w*"  # Arm
)


class Unusable(Exception):
    """The compiled files are not for this machine, or not what the manifest says."""


def prepare(environment: MutableMapping[str, str]) -> None:
    """Put in place what the environment names, or drop what is of no use without it."""
    if (compiled := environment.get(SWITCH, "off")) == "off":
        drop(environment)
    else:
        say(take_compiled(Path(compiled), environment))


def drop(environment: MutableMapping[str, str]) -> None:
    """Leave out what the image sets for its compiled files alone."""
    for name in FOR_THE_FILES:
        environment.pop(name, None)


def take_compiled(compiled: Path, environment: MutableMapping[str, str], copy: Path = COPY) -> str:
    """Copy the compiled files to where the engine looks for them; say what was done.

    Never raises: without them the engine compiles, which is slow and right.  Where there are
    none yet, what it compiles is to be found again by an engine that has them.
    """
    if not (compiled / MANIFEST).is_file():
        return f"nothing is compiled ahead of time in {compiled}; the engine compiles"
    try:
        manifest = read_manifest(compiled)
        refuse_other_machine(manifest, describe_machine(environment))
        files = copy_files(compiled, manifest, copy)
    except (Unusable, OSError) as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(copy)
        drop(environment)
        return f"what was compiled ahead of time is not used: {error}; the engine compiles"
    return f"{files} files compiled ahead of time are in place"


def describe_machine(environment: Mapping[str, str]) -> dict[str, Any]:
    """Say what compiled code depends on, as it is here."""
    return {
        "machine": platform.machine(),
        "isa": instructions(Path("/proc/cpuinfo")),
        "threads": threads(environment),
        "gpus": gpus(Path("/proc/driver/nvidia/gpus")),
    }


def instructions(cpuinfo: Path) -> list[str]:
    """List the processor's instruction sets that compiled code makes use of."""
    for line in cpuinfo.read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in {"flags", "features"}:  # x86, Arm
            return sorted({word for word in value.split() if ISA.fullmatch(word)})
    return []


def threads(environment: Mapping[str, str]) -> int:
    """Count the threads that the engine's libraries start with; loops are cut for them."""
    first = environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else len(os.sched_getaffinity(0))


def gpus(directory: Path) -> list[str]:
    """Name the GPUs that the driver shows, in order."""
    names = []
    for information in sorted(directory.glob("*/information")):
        for line in information.read_text(errors="replace").splitlines():
            if line.startswith("Model:"):
                names.append(line.partition(":")[2].strip())
    return names


def read_manifest(compiled: Path) -> dict[str, Any]:
    """Read the manifest; refuse one that this program cannot understand."""
    try:
        manifest = json.loads((compiled / MANIFEST).read_text(encoding="utf-8"))
        if manifest["schema"] != SCHEMA:
            raise Unusable(f"its manifest has schema {manifest['schema']}, not {SCHEMA}")
        for name, entry in manifest["files"].items():
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise Unusable(f"its manifest names {name!r}")
            entry["sha256"], entry["size"]
        manifest["for"]["machine"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unusable(f"its manifest cannot be read: {error}") from error
    return manifest


def refuse_other_machine(manifest: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise where the machine differs in what the compiled code depends on.

    Code for a processor names its instructions and threads, code for a GPU the GPU.
    """
    wanted = manifest["for"]
    for name, value in wanted.items():
        if name not in here:
            raise Unusable(f"it depends on {name!r}, which nobody here can tell")
        fits = here[name] and {*here[name]} <= {*value} if name == "gpus" else value == here[name]
        if not fits:
            raise Unusable(f"it is for another {name}: {differing(value, here[name])}")


def differing(wanted: Any, found: Any) -> str:
    """Say briefly in what two values differ."""
    if isinstance(wanted, list) and isinstance(found, list):
        lacking = [f"-{word}" for word in wanted if word not in found]
        besides = [f"+{word}" for word in found if word not in wanted]
        return " ".join((lacking + besides)[:8])
    return f"{wanted} there, {found} here"


def copy_files(compiled: Path, manifest: Mapping[str, Any], copy: Path) -> int:
    """Copy what the manifest names, comparing digests; give the number of files."""
    if copy.is_symlink() or copy.exists():
        if copy.is_symlink() or copy.stat().st_uid != os.geteuid():
            raise Unusable(f"{copy} is there already and is not ours")
        shutil.rmtree(copy)  # of an earlier start of this container
    copy.mkdir(mode=0o700)
    for name, entry in manifest["files"].items():
        target = copy / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (compiled / name).open("rb") as source, target.open("xb") as out:
            digest = hashlib.sha256()
            for block in blocks(source):
                digest.update(block)
                out.write(block)
        if digest.hexdigest() != entry["sha256"]:
            raise Unusable(f"{name} is not what was compiled")
        target.chmod(0o700 if entry.get("executable") else 0o600)
    return len(manifest["files"])


def blocks(source: Any) -> Iterator[bytes]:
    while block := source.read(1 << 20):
        yield block


def say(text: str) -> None:
    print(f"packager: {text}", file=sys.stderr, flush=True)
