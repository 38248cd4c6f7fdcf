"""Make a model's layers ready on a node: mounting them against unpacking them, in one run.

The same layers of a layout are mounted where they lie (`packager mount`), and unpacked with `tar`
and synced, as a container engine does.  Then, once each: the first mount, which hashes the
layers, and a node cache, without and with hash trees.

Needs root, and a kernel with EROFS.  The last line of stdout is one JSON object with every figure.

    python benchmarks/mounting.py --gb 4
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from measuring import Run, call, median_wall, say, timed

# Of the design: over unpacking the same layers.
TARGETS = {"ratio_mount": 0.05, "written_share": 0.01}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gb", type=float, default=4.0, help="size of the weights (decimal GB)")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="where to work (default: a new directory)")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("only root may mount")
    with tempfile.TemporaryDirectory(prefix="packager-bench-", dir=arguments.work) as work:
        figures = measure(Path(work), arguments)
    print(json.dumps(figures))
    missed = [name for name, most in TARGETS.items() if figures[name] > most]
    for name in missed:
        say(f"missed: {name} is {figures[name]:.3f}, the target {TARGETS[name]}")
    return 1 if missed else 0


def measure(work: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Build the image once, then take turns."""
    size = int(arguments.gb * 1e9)
    # In a process of its own: a child's peak memory starts at its parent's.
    script = str(Path(__file__).with_name("bf16_model.py"))
    call([sys.executable, script, str(work / "model"), str(size), str(arguments.shards)])
    environment = {**os.environ, "XDG_STATE_HOME": str(work / "state")}
    image, mounted = f"oci:{work}/out", work / "mnt"

    def packager(*words: str) -> str:
        return call([sys.executable, "-m", "packager", *words], environment)

    packager(
        *("build", "--model", str(work / "model"), "--instance", "ml.g5.xlarge"),
        *("--base", "scratch", "--output", image, "--quiet"),
    )
    shutil.rmtree(work / "model")
    layers = layers_of(work / "out")
    mounted.mkdir()

    def mount(*words: str) -> Run:
        run = timed(lambda: packager("mount", image, str(mounted), "--quiet", *words), ())
        packager("unmount", str(mounted))
        return run

    hashing = mount()
    compare(image, mounted, layers, work, packager)
    mounts, unpacks = [], []
    for number in range(arguments.rounds):
        say(f"round {number + 1} of {arguments.rounds}")
        mounts.append(mount("--no-verify"))
        unpacks.append(unpack(layers, work / "unpacked"))
    caches = {}
    for name, words in {"cache": (), "cache_verity": ("--dm-verity",)}.items():
        caches[name] = timed(
            lambda words=words: packager("node-cache", image, f"{work}/cache", "--quiet", *words),
            (),
        )
        shutil.rmtree(work / "cache")
    return {
        "gb": size / 1e9,
        "layers": len(layers),
        "mount_s": median_wall(mounts),
        "unpack_s": median_wall(unpacks),
        "ratio_mount": median_wall(mounts) / median_wall(unpacks),
        "written_share": max(run.written_bytes for run in mounts) / size,
        "hashing_mount_s": hashing.wall_s,
        **{f"{name}_s": run.wall_s for name, run in caches.items()},
        "peak_rss_mb": max(run.peak_rss_bytes for run in (hashing, *mounts)) / 1e6,
        "cache_peak_rss_mb": max(run.peak_rss_bytes for run in caches.values()) / 1e6,
    }


def layers_of(layout: Path) -> list[Path]:
    """Return the tars of the layout's only image."""
    (entry,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    manifest = json.loads(blob(layout, entry["digest"]).read_bytes())
    return [blob(layout, layer["digest"]) for layer in manifest["layers"]]


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def unpack(layers: list[Path], place: Path) -> Run:
    """Unpack the layers, and wait until they are on the disk."""
    place.mkdir()

    def work() -> None:
        for layer in layers:
            call(["tar", "-xf", str(layer), "-C", str(place)])
        call(["sync", "-f", str(place)])

    try:
        return timed(work, ())
    finally:
        shutil.rmtree(place)


def compare(image: str, mounted: Path, layers: list[Path], work: Path, packager: object) -> None:
    """Compare what is mounted with what `tar` unpacks, file by file."""
    assert callable(packager)
    packager("mount", image, str(mounted), "--quiet")
    place = work / "unpacked"
    place.mkdir()
    for layer in layers:
        call(["tar", "-xf", str(layer), "-C", str(place)])
    shown, unpacked = digests(mounted), digests(place)
    packager("unmount", str(mounted))
    shutil.rmtree(place)
    if shown != unpacked or not shown:
        raise SystemExit("what is mounted differs from what is unpacked")


def digests(place: Path) -> dict[str, str]:
    found = {}
    for path in place.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                found[str(path.relative_to(place))] = hashlib.file_digest(
                    file, "sha256"
                ).hexdigest()
    return found


if __name__ == "__main__":
    sys.exit(main())
