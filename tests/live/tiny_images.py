"""Images that are made of this machine's Python, so that nothing is pulled: tools and engines."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.live.building import build
from tests.support.commandline import packager_in
from tests.support.places import ROOT
from tests.support.tars import file, tar_of

PYTHON = "packager-test-python:1"
TINY_ENGINE = "packager-test-tiny-engine:1"  # PYTHON with `tiny_engine.py` as vLLM
TINY_SERVED = "packager-test-run:1"  # tiny-llama, built on TINY_ENGINE


def import_python(engine: Any) -> None:
    """Make the image with the interpreter, its libraries and the standard library."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as tar:
        for path in python_files():
            tar.add(path, arcname=str(path).lstrip("/"), recursive=False)
        for name in ("usr/local/bin", "tmp", "run", "proc", "sys", "dev", "etc"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(folder)
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, str(interpreter())
        tar.addfile(link)
    engine.api.import_image_from_data(packed.getvalue(), *PYTHON.split(":"))


def interpreter() -> Path:
    """Return the program that runs this, behind links."""
    return Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}").resolve()


def python_files() -> Iterator[Path]:
    """Yield the interpreter, the libraries it is linked to, and the standard library."""
    library = Path(sys.base_prefix, "lib", f"python3.{sys.version_info.minor}")
    modules = [
        path
        for path in library.rglob("*")
        if not {"site-packages", "test", "__pycache__", "idlelib"} & {*path.parts}
    ]
    binaries = [str(interpreter()), *(str(path) for path in modules if path.suffix == ".so")]
    listed = subprocess.run(["ldd", *binaries], capture_output=True, text=True).stdout
    own = {f"{binary}:" for binary in binaries}  # the headings of several files' lists
    words = {word for line in listed.splitlines() if line not in own for word in line.split()}
    yield interpreter()
    yield from modules
    yield from sorted(Path(one) for one in words if one.startswith("/") and Path(one).is_file())


def commit_files(
    engine: Any,
    name: str,
    files: Mapping[str, bytes],
    *,
    base: str = PYTHON,
    changes: str | None = None,
) -> str:
    """Make an image of another one and more files, which may be run."""
    container = engine.containers.create(base, "true")
    members = (file(path.lstrip("/"), data, mode=0o755) for path, data in files.items())
    container.put_archive("/", tar_of(*members))
    container.commit(*name.split(":"), changes=changes)
    container.remove()
    return name


def commit_tiny_engine(engine: Any) -> None:
    """Make the image whose vLLM, program and module, is `tiny_engine.py`."""
    library = Path(sys.base_prefix, "lib", interpreter().name, "vllm")
    source = (ROOT / "tests/live/tiny_engine.py").read_bytes()
    files = {
        "usr/bin/vllm": b"#!/usr/bin/python3\n" + source,
        f"{library}/__init__.py": b"",
        f"{library}/entrypoints/__init__.py": b"",
        f"{library}/entrypoints/openai/__init__.py": b"",
        f"{library}/entrypoints/openai/api_server.py": source,
    }
    commit_files(engine, TINY_ENGINE, files)


def build_tiny_served(place: Path, environment: Mapping[str, str]) -> str:
    """Build TINY_SERVED with packager; return what it printed."""
    base = f"docker:{TINY_ENGINE}"
    done = build(packager_in(place), f"docker:{TINY_SERVED}", base=base, env=environment)
    return done.out.strip()
