"""Wheels for a machine with torch and without a network: collected here, unpacked there.

`collect` needs pip and a package index; it brings packager's own dependencies and what the tools
of a campaign ask for at the versions of their locks, less what the machine has.  `bring` makes
tool environments of them around the torch that is there.  Their versions are not those of the
locks throughout, so they stand as "not verified": results have keys of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks.campaign.stages import Failure

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("llmcompressor", "draft-heads")  # `evaluate` runs in the first
MOST_BYTES = 60_000_000
LISTING = "wheels.json"
# torch, what it asks for, and NumPy, without which few have it.  torch is never brought.
WITH_TORCH = (
    *("torch", "triton", "filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx"),
    *("numpy", "setuptools", "sympy", "typing-extensions"),
)
OLDEST, NEWEST = 5, 39  # manylinux_2_N: pip compares N exactly
PIN = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:==|@|\s)?\s*(?P<version>\S*)")


def collect(
    into: Path, python: str, has: Path | None = None, most_bytes: int = MOST_BYTES
) -> dict[str, Any]:
    """Download the wheels for Python `3.12` on x86-64 Linux; nothing is left where they are over.

    `has` lists what the machine has, as `pip list` or `pip freeze` prints it.
    """
    sys.path.insert(0, str(ROOT))
    from packager.optimize.steps.tools.locks import pinned_versions

    requirements = [ROOT / "containers/tools" / tool / "requirements/lock.txt" for tool in TOOLS]
    pins = pinned_versions((path.read_text(encoding="utf-8") for path in requirements), python)
    there = read_list(has.read_text(encoding="utf-8")) if has else dict.fromkeys(WITH_TORCH, "")
    if into.exists() and any(into.iterdir()):
        raise Failure(f"{into} is not empty", "name another directory")
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wheels-", dir=into.parent) as work:
        place = Path(work) / "wheels"
        place.mkdir(mode=0o755)
        wanted = missing(pins | own_packages(pins, python, Path(work)), there, exact_packages())
        download(wanted, python, place)
        sizes = {path.name: path.stat().st_size for path in place.iterdir()}
        check_size(sizes, most_bytes)
        files = {name: _sha256(place / name) for name in sorted(sizes)}
        (place / LISTING).write_text(json.dumps({"python": python, "files": files}, indent=2))
        if into.exists():
            into.rmdir()
        place.rename(into)
    return {"wheels": len(sizes), "bytes": sum(sizes.values()), "python": python}


def read_list(text: str) -> dict[str, str]:
    """Read names and versions from what `pip list` or `pip freeze` prints; "" is any version."""
    lines = (line.strip() for line in text.splitlines())
    found = (PIN.match(line) for line in lines if line and not line.startswith(("#", "-")))
    return {_normal(one["name"]): one["version"] for one in found if one}


def missing(
    wanted: Mapping[str, str], there: Mapping[str, str], exact: Iterable[str]
) -> dict[str, str]:
    """Leave out what a machine has; of `exact` packages only the very version will do."""
    exact = set(exact)
    return {
        name: version
        for name, version in sorted(wanted.items())
        if name != "torch"
        and (name not in there or (name in exact and there[name] not in ("", version)))
    }


def exact_packages() -> set[str]:
    """List the packages whose versions reach a tool's result."""
    files = (ROOT / "containers/tools" / tool / "tool.toml" for tool in TOOLS)
    tables = (tomllib.loads(path.read_text(encoding="utf-8"))["packages"] for path in files)
    return {_normal(name) for table in tables for name in table}


def check_size(sizes: Mapping[str, int], most_bytes: int) -> None:
    """Refuse wheels that are more than a machine takes along, with the size of each."""
    total = sum(sizes.values())
    if total <= most_bytes:
        return
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    listed = "\n".join(f"  {size / 1e6:6.1f} MB  {name}" for name, size in largest)
    raise Failure(
        f"the wheels are {total / 1e6:.1f} MB, more than {most_bytes / 1e6:.0f} MB:\n{listed}",
        "name what the machine has besides torch: `pip list` there into a file, --has FILE",
    )


def own_packages(pins: Mapping[str, str], python: str, work: Path) -> dict[str, str]:
    """Ask pip which packages packager itself needs, beside the versions of the tools' locks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    constraints, report = work / "constraints.txt", work / "report.json"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
    pip(
        "install", "--dry-run", "--ignore-installed", "--target", str(work / "nowhere"),
        "--report", str(report), *for_machine(python), "-c", str(constraints),
        *project["dependencies"],
    )  # fmt: skip
    found = (one["metadata"] for one in json.loads(report.read_bytes())["install"])
    return {_normal(one["name"]): one["version"] for one in found}


def download(wanted: Mapping[str, str], python: str, into: Path) -> None:
    """Download a wheel of each package, and nothing that these ask for."""
    names = [f"{name}=={version}" for name, version in wanted.items()]
    pip("download", "--no-deps", "-d", str(into), *for_machine(python), *names)


def for_machine(python: str) -> list[str]:
    """Return pip's options for wheels of Linux on x86-64."""
    tags = [f"manylinux_2_{minor}_x86_64" for minor in range(OLDEST, NEWEST + 1)]
    tags += ["manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64", "linux_x86_64"]
    platforms = [word for tag in tags for word in ("--platform", tag)]
    return ["--only-binary=:all:", "--python-version", python, "--implementation", "cp", *platforms]


def pip(*arguments: str) -> None:
    """Run the pip of this Python, or the first that works."""
    for python in (sys.executable, shutil.which("python3", path=_own_path())):
        if python and not subprocess.run([python, "-m", "pip", "--version"], **QUIET).returncode:
            done = subprocess.run([python, "-m", "pip", "-q", *arguments], **QUIET)
            if done.returncode:
                raise Failure(f"pip failed:\n{done.stderr.decode(errors='replace')[-2000:]}")
            return
    raise Failure("no pip is here", "run this with a Python that has pip")


QUIET: dict[str, Any] = {"capture_output": True, "check": False}


def _own_path() -> str:
    """Return PATH without the directory of this Python: an environment may have no pip."""
    here = str(Path(sys.executable).parent)
    return os.pathsep.join(p for p in os.get_exec_path() if p != here)


def unpack(wheels: Path, site: Path) -> int:
    """Unpack wheels into a directory for `sys.path`; count them. Damaged ones are refused."""
    try:
        listing = json.loads((wheels / LISTING).read_bytes())
    except (OSError, ValueError):
        raise Failure(f"{wheels} has no {LISTING}", "collect wheels: --collect DIR") from None
    here = ".".join(platform.python_version_tuple()[:2])
    if listing["python"] != here:
        raise Failure(
            f"the wheels are for Python {listing['python']}, this is {here}",
            f"collect them again: --collect DIR --for-python {here}",
        )
    damaged = [
        name
        for name, digest in listing["files"].items()
        if not (wheels / name).is_file() or _sha256(wheels / name) != digest
    ]
    if damaged:
        raise Failure(f"missing or damaged: {', '.join(damaged[:5])}", "collect the wheels again")
    part = site.with_name(f"{site.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name in listing["files"]:
        _unpack_wheel(wheels / name, part)
    shutil.rmtree(site, ignore_errors=True)
    part.rename(site)
    return len(listing["files"])


def _unpack_wheel(wheel: Path, site: Path) -> None:
    """Unpack what is imported; programs and headers that a wheel brings are left out."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            parts = PurePosixPath(entry.filename).parts
            if parts and parts[0].endswith(".data"):
                if len(parts) < 3 or parts[1] not in ("purelib", "platlib"):
                    continue
                parts = parts[2:]
            target = site.joinpath(*parts)
            if entry.is_dir() or not target.resolve().is_relative_to(site.resolve()):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)


def bring(site: Path, tools: Path, places: Iterable[Path] = ()) -> dict[str, str]:
    """Make the environments of the tools from `site` and this Python; return their versions.

    `places` are further directories of packages; this Python's own count already.
    """
    environments = _environments(tools)
    own = [path for path in sys.path if path and Path(path).name.endswith("-packages")]
    lines = [str(site), *map(str, places), *own]
    versions: dict[str, str] = {}
    for name in TOOLS:
        for build in environments.tool(name).builds:
            tool, place = environments.tool(name, build), environments.place(name, build)
            if (place / "made.json").exists():
                versions |= json.loads((place / "made.json").read_bytes())["versions"]
                continue
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
            (packages,) = place.glob("lib/python*/site-packages")
            (packages / "brought.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
            versions |= (found := _versions_in(place / "bin/python"))
            lower = {_normal(one) for one in found}
            if lacking := [one for one in tool.file.packages if _normal(one) not in lower]:
                raise Failure(
                    f"{name} lacks {', '.join(lacking)}",
                    "the Python that runs this needs torch; collect the rest without them in --has",
                )
            document = {
                "tool": name, "versions": found, "bytes": 0, "hashes": tool.hashes,
                "requirements": tool.requirements_digest, "build": build,
            }  # fmt: skip
            (place / "made.json").write_text(json.dumps(document, sort_keys=True))
    return dict(sorted(versions.items()))


def _environments(tools: Path) -> Any:
    sys.path.insert(0, str(ROOT))
    from packager.cli.wiring.settings import Settings
    from packager.cli.wiring.techniques import environments_for
    from packager.optimize.steps.tools.environments import ALLOW_UNHASHED

    told = {**os.environ, ALLOW_UNHASHED: "1", "PACKAGER_TOOLS": str(tools)}
    return environments_for(Settings(environment=told))


def _versions_in(python: Path) -> dict[str, str]:
    """List the packages that an environment sees; of two of a name, the one that is imported."""
    text = (
        "import importlib.metadata as m, json, platform\n"
        "found = {}\n"
        "for one in m.distributions():\n"
        "    found.setdefault(one.metadata['Name'], one.version)\n"
        "found.pop(None, None)\n"
        "print(json.dumps({**found, 'python': platform.python_version()}))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", text], capture_output=True, check=True, env=environment
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
