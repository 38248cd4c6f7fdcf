"""Start the server as the image will, keep what it compiles, and start it again to see it used.

Runs in the serving image itself: the model, the rendered configuration and the result are
at the paths that they have in the finished image.  The second start takes the result
through the same launcher as every later container.  It must compile nothing: no new file
in the caches, and the same answers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine_server import start_and_ask
from packager_worker import Report, Spec, run, versions_of

# Locks, and what a start writes anew by design; never part of a result.
PASSING = re.compile(r"(^|/)(locks|__pycache__|tmp[^/]*)/|\.lock$|\.tmp$|\.log$")
INIT = re.compile(rb"init engine \(.*?\) took ([0-9.]+) s")


def work(spec: Spec, report: Report) -> dict[str, Any]:
    """Compile, keep, verify; the details say what it cost and what it saves."""
    asked = spec.parameters
    serving = Path(asked["serving_dir"])
    sys.path.insert(0, str(serving))  # the launcher's own part, as it is in the image
    import compiled_cache

    refuse_other_engine(asked["engine"])
    here = compiled_cache.describe_machine(asked["env"])
    refuse_other_machine(asked["target"], here)
    first = start(spec, report, "compiling", asked["env"])
    keep(compiled_cache.COPY, spec.output)
    write_manifest(compiled_cache, spec, depends_on(asked["target"], here))
    kept = files_below(spec.output) - {compiled_cache.MANIFEST}
    if not kept:
        raise RuntimeError("the engine left nothing in its caches")
    second = start(spec, report, "verifying", {**asked["env"], **asked["verify_env"]})
    check_reuse(compiled_cache.COPY, spec.output, kept)
    if first["answers"] != second["answers"]:
        raise RuntimeError("the answers are others when the compiled files are used")
    return {
        "files": len(kept),
        "bytes": sum((spec.output / name).stat().st_size for name in kept),
        "ready_seconds_without": first["ready"],
        "ready_seconds": second["ready"],
        "init_seconds_without": first["init"],
        "init_seconds": second["init"],
        "factors": factors(spec.output),
        **here,
    }


def refuse_other_engine(engine: Mapping[str, str]) -> None:
    """Stop where the base image has another engine than the catalog says."""
    found = versions_of((engine["name"],)).get(engine["name"], "none")
    if found.partition("+")[0] != engine["version"]:
        wanted = f"{engine['name']} {engine['version']}"
        raise RuntimeError(f"the plan is for {wanted}, the base image has {found}")


def refuse_other_machine(target: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Stop where this is not the machine of the plan: what came out would be misfiled."""
    for name, wanted in target.items():
        if name == "gpu":
            names = [name.lower() for name in here["gpus"]]
            if not names or any(wanted.lower() not in name for name in names):
                raise RuntimeError(f"the plan is for {wanted}, this machine has {here['gpus']}")
        elif here[name] != wanted:
            raise RuntimeError(f"the plan is for {name} {wanted}, this machine has {here[name]}")


def start(spec: Spec, report: Report, doing: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Start the server, ask it everything that is asked, stop it."""
    asked, log = spec.parameters, spec.work / f"{doing}.log"
    ready, init, answers = start_and_ask(
        report, doing, asked["command"], env, log, asked,
        health="/ping", said=INIT, directory=asked["directory"],
    )  # fmt: skip
    return {"ready": ready, "init": init, "answers": answers}


def keep(caches: Path, output: Path) -> None:
    """Copy the caches, without what passes."""
    for name in sorted(files_below(caches)):
        target = output / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(caches / name, target)
        target.chmod(0o755 if os.access(caches / name, os.X_OK) else 0o644)


def files_below(root: Path) -> set[str]:
    return {
        name
        for path in root.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and not PASSING.search(name := path.relative_to(root).as_posix())
    }


def depends_on(target: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """Choose what the launcher will compare: code for a GPU runs beside any processor."""
    names = ("machine", "gpus") if "gpu" in target else ("machine", "isa", "threads")
    return {name: here[name] for name in names}


def write_manifest(compiled_cache: Any, spec: Spec, target: Mapping[str, Any]) -> None:
    """Say what the files are and for which machine; the launcher compares both."""
    files = {}
    for name in sorted(files_below(spec.output)):
        path = spec.output / name
        files[name] = {
            "size": path.stat().st_size,
            "sha256": digest_of(path),
            "executable": os.access(path, os.X_OK),
        }
    manifest = {
        "schema": compiled_cache.SCHEMA,
        "compiler": "vllm_cache",
        "for": dict(target),
        "versions": versions_of(("vllm", "torch", "triton", "flashinfer-python")),
        "files": files,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    (spec.output / compiled_cache.MANIFEST).write_text(text, encoding="utf-8")


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_reuse(caches: Path, output: Path, kept: set[str]) -> None:
    """Raise unless the second start found everything that it needed."""
    found = files_below(caches)
    if lost := kept - found:
        raise RuntimeError(f"the launcher did not put {sorted(lost)[0]} in place")
    if added := found - kept:
        raise RuntimeError(f"the second start compiled {len(added)} files: {sorted(added)[:3]}")
    changed = [
        name for name in sorted(kept) if digest_of(caches / name) != digest_of(output / name)
    ]
    if changed:
        raise RuntimeError(f"the second start rewrote {len(changed)} files: {changed[:3]}")


def factors(output: Path) -> dict[str, Any]:
    """What vLLM itself made its key of, where it says so: not when it leaves that to torch."""
    found = {}
    for path in sorted(output.rglob("cache_key_factors.json")):
        written = json.loads(path.read_text(encoding="utf-8"))
        found[path.parent.relative_to(output).as_posix()] = written
    return found


if __name__ == "__main__":
    run(work, packages=("torch",))
