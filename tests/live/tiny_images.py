"""Images that are made of this machine's Python, so that nothing is pulled: tools and engines."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.commandline import TINY, packager_in
from tests.support.places import ROOT

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


def commit_tiny_engine(engine: Any) -> None:
    """Make the image whose vLLM is `tiny_engine.py`."""
    container = engine.containers.create(PYTHON, "true")
    container.put_archive("/", tiny_vllm())
    container.commit(*TINY_ENGINE.split(":"))
    container.remove()


def tiny_vllm() -> bytes:
    """Return an archive with the engine as the program and the module that images start."""
    library = Path(sys.base_prefix, "lib", interpreter().name, "vllm")
    source = (ROOT / "tests/live/tiny_engine.py").read_bytes()
    files = {
        "usr/bin/vllm": b"#!/usr/bin/python3\n" + source,
        f"{library}/__init__.py": b"",
        f"{library}/entrypoints/__init__.py": b"",
        f"{library}/entrypoints/openai/__init__.py": b"",
        f"{library}/entrypoints/openai/api_server.py": source,
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in files.items():
            file = tarfile.TarInfo(name.lstrip("/"))
            file.size, file.mode = len(data), 0o755
            tar.addfile(file, io.BytesIO(data))
    return packed.getvalue()


def build_tiny_served(place: Path, environment: Mapping[str, str]) -> str:
    """Build TINY_SERVED with packager; return what it printed."""
    done = packager_in(place)(
        *("build", "--model", str(TINY), "--instance", "local", "--base", f"docker:{TINY_ENGINE}"),
        *("--output", f"docker:{TINY_SERVED}", "--quiet"),
        env=dict(environment),
    )
    assert done.status == 0, done.err
    return done.out.strip()
