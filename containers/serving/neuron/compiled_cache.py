"""What was compiled for NeuronCores ahead of time, made ready for the engine before it starts.

    neuronxcc-<version>/MODULE_…/model.neff …   the compiler's own cache, copied: it writes there
    model/                                      the traced model, where the image brings one
    manifest.json                               digests; graphs of other tools come without

`neuron.json` beside this file says where the model is, and for servers that serve nothing
but an exported model how to export it: with the graphs at hand that compiles nothing.

The compiler looks graphs up by the hash of what it is asked to compile: a graph that does
not fit is never used, but one that was cut short could be, so each is looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COPY = Path("/tmp/packager-compiled")  # the rendered environment points below it
CACHE = "cache"
MODEL = "model"
MANIFEST = "manifest.json"
SETTINGS = Path(__file__).resolve().with_name("neuron.json")
SCHEMA = 1

# Of an exported model: what was compiled.  All else is the served model's own.
TRACED = re.compile(r"neuron_config\.json|model(_[a-z0-9_]+)?\.pt")

NEFF_HEADER_BYTES = 1024
NEFF_START = struct.Struct("<QQQQ")
NEWEST_NEFF = 2


class Unusable(Exception):
    """The compiled files are not for this image, or not what they were."""


def take_compiled(
    compiled: Path, environment: Mapping[str, str], copy: Path = COPY, settings: Path = SETTINGS
) -> str:
    """Put the compiled files where the engine looks for them; say what was done.

    Never raises: without them the engine compiles, which is slow and right.
    """
    told = json.loads(settings.read_text(encoding="utf-8"))
    try:
        make_place(copy)
        said = f"{take_files(compiled, copy)} files compiled ahead of time are in place"
    except (Unusable, OSError) as error:
        with contextlib.suppress(OSError):
            empty(copy)
        said = f"what was compiled ahead of time is not used: {error}; the engine compiles"
    if told["export"]:
        said += export(told, environment, copy)
    return said


def take_files(compiled: Path, copy: Path) -> int:
    """Copy the compiler's cache and link the traced model, as far as they are sound."""
    digests = read_manifest(compiled)
    files = sorted(path for path in compiled.rglob("*") if path.is_file() and path.name != MANIFEST)
    names = {path.relative_to(compiled).as_posix() for path in files}
    if lost := sorted(set(digests) - names):
        raise Unusable(f"{lost[0]} is missing")
    refuse_other_compiler(names)
    for path in files:
        name = path.relative_to(compiled).as_posix()
        if digests and digests.get(name) != digest_of(path):
            raise Unusable(f"{name} is not what was compiled")
        if path.suffix == ".neff":
            check_neff(path)
        traced = name.startswith(f"{MODEL}/")
        if traced and not TRACED.fullmatch(path.name):
            continue  # such as another model's config.json
        target = copy / name if traced else copy / CACHE / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if traced:
            target.symlink_to(path)
        else:
            shutil.copyfile(path, target)
    if not files:
        raise Unusable(f"nothing is in {compiled}")
    return len(files)


def read_manifest(compiled: Path) -> dict[str, str]:
    """Give the digests of all files; none where another tool compiled them."""
    path = compiled / MANIFEST
    if not path.is_file():
        return {}
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["schema"] != SCHEMA:
            raise Unusable(f"its manifest has schema {manifest['schema']}, not {SCHEMA}")
        return {name: entry["sha256"] for name, entry in manifest["files"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unusable(f"its manifest cannot be read: {error}") from error


def refuse_other_compiler(names: set[str]) -> None:
    """Raise where the graphs are another compiler's: it would look elsewhere, and compile."""
    found = {name.partition("/")[0].removeprefix("neuronxcc-") for name in names if "/" in name}
    versions = {name.partition("+")[0] for name in found - {MODEL}}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        here = importlib.metadata.version("neuronx-cc").partition("+")[0]
        if versions and here not in versions:
            raise Unusable(f"neuronx-cc {', '.join(sorted(versions))} made it, this is {here}")


def check_neff(path: Path) -> None:
    """Raise unless a graph's header is sound and the file is as long as it says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(NEFF_HEADER_BYTES)
    if len(head) < NEFF_HEADER_BYTES:
        raise Unusable(f"{path.parent.name} was cut short")
    package, header, data, version = NEFF_START.unpack_from(head)
    if package not in (1, 2) or header != NEFF_HEADER_BYTES or version > NEWEST_NEFF:
        raise Unusable(f"{path.parent.name} holds no graph")
    if data != size - NEFF_HEADER_BYTES:
        raise Unusable(f"{path.parent.name} was cut short")


def make_place(copy: Path) -> None:
    """Make an empty directory of our own."""
    if copy.is_symlink() or copy.exists():
        if copy.is_symlink() or copy.stat().st_uid != os.geteuid():
            raise Unusable(f"{copy} is there already and is not ours")
        shutil.rmtree(copy)  # of an earlier start of this container
    copy.mkdir(mode=0o700)
    (copy / CACHE).mkdir()


def empty(copy: Path) -> None:
    """Leave a place to compile into, and nothing in it."""
    if copy.is_symlink() or copy.stat().st_uid != os.geteuid():
        return
    shutil.rmtree(copy)
    make_place(copy)


def export(told: Mapping[str, Any], environment: Mapping[str, str], copy: Path) -> str:
    """Give the server an exported model: the traced one beside the weights, or export it now."""
    exported = copy / MODEL
    if (exported / "neuron_config.json").exists():
        for path in Path(told["model"]).iterdir():
            if not (exported / path.name).exists():
                (exported / path.name).symlink_to(path)
        return ""
    command = [*told["export"], str(exported)]
    say("the model is exported before it is served")
    try:
        subprocess.run(command, env=dict(environment), check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"; it could not be exported: {error}"
    return "; the model was exported"


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def say(text: str) -> None:
    print(f"packager: {text}", file=sys.stderr, flush=True)
