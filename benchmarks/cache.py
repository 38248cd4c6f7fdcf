"""What the cache costs: finding an entry, taking a large one out, verifying, fetching, publishing.

Look-ups are timed in a store of many entries, hits with one large entry of incompressible bytes by
hard link, clone (a loop-mounted XFS; root) and copy.  Beside each stands what a bare program needs
for the same bytes: sha256 in as many threads, `cp`, a parallel GET.  Each piece runs in a process
of its own, which reports wall time, CPU and peak memory.  Files are in the page cache.

The last line of stdout is one JSON object with every figure.

    python benchmarks/cache.py
    python benchmarks/cache.py --entries 10000 --gb 1 --s3-mb 64 --rounds 1
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from judging import all_at_most, verdict
from measuring import call, say

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from artifact_cache.cache import ArtifactCache, open_local
from artifact_cache.entry import Entry, Writer, entry_bytes, parse_entry
from artifact_cache.files import HASHING_THREADS, describe, seal
from artifact_cache.gc import GcPolicy, collect
from artifact_cache.index import Index
from artifact_cache.key import KEY_PREFIX, key_of, plain
from artifact_cache.store import address_of
from artifact_cache.stores.local import LocalStore
from packager.optimize.keys.policy import KIND_POLICY
from tests.support.cache_entries import CHECKPOINT, document

TARGETS = {  # at most
    "lookup_p95_ms": 10.0,
    "verify_ratio": 1.10,  # over bare sha256 of the same bytes in as many threads
    "copy_ratio": 1.10,  # over `cp` and sha256 of the same bytes, one after the other
    "s3_ratio": 1.15,  # over a bare parallel GET of the same objects
    "hardlink_hit_s": 1.0,  # by stamp: nothing is read
}
FILES = 4
BLOCK = 64 * 1024 * 1024
RANGE = 8 * 1024 * 1024
S3_FILE = 64 * 1024 * 1024
LOOKUPS = 300
SEED = '"seed":42'  # of the sample's calibration

Figures = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--gb", type=float, default=10.0, help="size of the large entry")
    parser.add_argument("--s3-mb", type=int, default=256, help="size of the entry in the bucket")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default=",".join(PARTS), help="of: %(default)s")
    parser.add_argument("--work", type=Path, help="where to work (default: a new directory)")
    parser.add_argument("--piece", help=argparse.SUPPRESS)
    parser.add_argument("--at", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.piece:
        print(json.dumps(PIECES[arguments.piece](arguments)))
        return 0
    with tempfile.TemporaryDirectory(prefix="packager-bench-", dir=arguments.work) as work:
        figures = measure(Path(work), arguments)
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


def measure(work: Path, arguments: argparse.Namespace) -> Figures:
    """Run every piece and put the figures together."""
    load = os.getloadavg()[0]
    runs: dict[str, list[Figures]] = {}

    def piece(name: str, label: str = "", **options: object) -> Figures:
        command = [sys.executable, __file__, "--piece", name, "--entries", str(arguments.entries)]
        for option, value in options.items():
            command += [f"--{option}", str(value)]
        run: Figures = json.loads(call(command))
        say(f"{label or name}: {run['wall_s']:.3f} s")
        if not name.startswith("write"):
            runs.setdefault(label or name, []).append(run)
        return run

    for part in arguments.parts.split(","):
        at = work / part
        at.mkdir()
        PARTS[part](at, arguments, piece)
        shutil.rmtree(at)
    return report(arguments, runs, load)


Piece = Callable[..., Figures]


def _lookups(at: Path, arguments: argparse.Namespace, piece: Piece) -> None:
    at = at / "cache"
    piece("write-entries", at=at)
    time.sleep(2.1)  # what changed just now may change again unseen, and is not indexed for good
    for _ in range(arguments.rounds):
        (at / "index.sqlite").unlink(missing_ok=True)
        piece("explain", "explain-first", at=at)
        for name in ("explain", "list", "lookup", "gc"):
            piece(name, at=at)


def _large(work: Path, arguments: argparse.Namespace, piece: Piece) -> None:
    """One store of plain files and one of programs: those are never linked, as modes differ."""
    size = int(arguments.gb * 1e9)
    piece("write-files", at=work, size=size, count=FILES)
    for number in range(arguments.rounds):
        options = {"at": work, "into": work / "into"}
        piece("publish", **options)
        shutil.rmtree(work / "into")
        for name in ("stamped-hit", "hashed-hit"):
            piece(name, **options)
            shutil.rmtree(work / "into")
        piece("cp", **options)
        shutil.rmtree(work / "into")
        piece("sha256", **options)
        if number == 0:
            piece("publish-programs", **options)
            shutil.rmtree(work / "into")
        piece("program-hit", "copied-hit", **options)
        shutil.rmtree(work / "into")
        if number < arguments.rounds - 1:
            shutil.rmtree(work / "cache")
    shutil.rmtree(work / "cache")
    shutil.rmtree(work / "programs")
    with xfs(work, size) as mounted:
        if mounted is None:
            return
        options = {"at": mounted, "into": mounted / "into"}
        shutil.move(work / "source", mounted / "source")
        piece("publish-programs", "publish-cloned", **options)
        shutil.rmtree(mounted / "into")
        for _ in range(arguments.rounds):
            piece("program-hit", "cloned-hit", **options)
            shutil.rmtree(mounted / "into")


def _bucket(work: Path, arguments: argparse.Namespace, piece: Piece) -> None:
    count = max(1, arguments.s3_mb * 1_000_000 // S3_FILE)
    piece("write-files", at=work, size=count * S3_FILE, count=count)
    with bucket_server() as url:
        options = {"at": work, "url": url}
        piece("s3-publish", **options)
        for _ in range(arguments.rounds):
            for name in ("s3-get", "s3-fetch"):
                piece(name, into=work / "into", **options)
                shutil.rmtree(work / "into")


PARTS = {"lookup": _lookups, "large": _large, "bucket": _bucket}


def report(arguments: argparse.Namespace, runs: dict[str, list[Figures]], load: float) -> Figures:
    """Medians, ratios, and whether the targets are met."""
    walls = {name: statistics.median(run["wall_s"] for run in of) for name, of in runs.items()}
    figures: Figures = {"reflink": "cloned-hit" in walls}
    if "lookup" in walls:
        for name in ("median_ms", "p95_ms"):
            figures[f"lookup_{name}"] = statistics.median(run[name] for run in runs["lookup"])
    if "cp" in walls:
        figures |= {
            "verify_ratio": round(walls["hashed-hit"] / walls["sha256"], 3),
            "verify_gb_s": round(arguments.gb / walls["hashed-hit"], 2),
            "copy_ratio": round(walls["copied-hit"] / (walls["cp"] + walls["sha256"]), 3),
            "publish_ratio_cp": round(walls["publish"] / walls["cp"], 3),
            "hardlink_hit_s": walls["stamped-hit"],
        }
    if "s3-get" in walls:
        figures["s3_ratio"] = round(walls["s3-fetch"] / walls["s3-get"], 3)
    print(f"{'':16}{'wall s':>9}{'CPU s':>9}{'peak MB':>9}{'disk MB':>9}")
    for name, of in runs.items():
        middle = sorted(of, key=lambda run: float(run["wall_s"]))[len(of) // 2]
        print(
            f"{name:16}{middle['wall_s']:9.3f}{middle['cpu_s']:9.3f}"
            f"{middle['peak_rss_mb']:9.0f}{middle.get('disk_mb', 0):9.0f}"
        )
    return {
        "benchmark": "cache",
        "entries": arguments.entries,
        "gb": arguments.gb,
        "s3_mb": arguments.s3_mb,
        "load_at_start": round(load, 1),
        "runs": runs,
        **figures,
        "targets": TARGETS,
        **verdict(all_at_most(figures, TARGETS)),
    }


# --- pieces, each in a process of its own


def timed(work: Callable[[], object], disk: Path | None = None) -> Figures:
    """Time it; with `disk`, say how much of that disk it took."""
    before = shutil.disk_usage(disk).free if disk else 0
    cpu, started = time.process_time(), time.perf_counter()
    work()
    wall = time.perf_counter() - started
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "wall_s": round(wall, 4),
        "cpu_s": round(time.process_time() - cpu, 4),
        "peak_rss_mb": round(usage.ru_maxrss / 1000, 1),
        "disk_mb": round((before - shutil.disk_usage(disk).free) / 1e6, 1) if disk else 0,
    }


def lookup(arguments: argparse.Namespace) -> Figures:
    """Find entries that are there and entries that are not, in turn."""
    cache = open_local(arguments.at, kinds=KIND_POLICY)
    dice = random.Random(1)
    seeds = [dice.randrange(2 * arguments.entries) for _ in range(LOOKUPS)]
    walls: list[float] = []

    def look() -> None:
        for seed in seeds:
            wanted = document(seed)
            started = time.perf_counter()
            found = cache.find(wanted)
            walls.append(time.perf_counter() - started)
            if (found is not None) != (seed < arguments.entries):
                raise SystemExit(f"look-up {seed} is wrong")

    figures = timed(look)
    walls.sort()
    return {
        **figures,
        "median_ms": round(statistics.median(walls) * 1e3, 3),
        "p95_ms": round(walls[len(walls) * 95 // 100] * 1e3, 3),
    }


def explain(arguments: argparse.Namespace) -> Figures:
    cache = open_local(arguments.at, kinds=KIND_POLICY)
    return timed(lambda: cache.explain(document(arguments.entries + 1)))


def list_all(arguments: argparse.Namespace) -> Figures:
    return timed(Index(arguments.at).summaries)


def look_for_garbage(arguments: argparse.Namespace) -> Figures:
    """What a collection takes before it removes anything."""
    store = LocalStore(arguments.at, kinds=KIND_POLICY)
    return timed(lambda: collect(store, GcPolicy(max_bytes=0), dry_run=True))


def publish(arguments: argparse.Namespace, name: str = "cache", mode: int = 0o644) -> Figures:
    """Keep what a build left; making the files is not part of it."""
    into = linked(arguments, mode)
    store = LocalStore(arguments.at / name, kinds=KIND_POLICY)
    store.capability()

    def keep() -> None:
        entry = Entry(
            key=key_of(CHECKPOINT),
            keydoc=plain(CHECKPOINT),
            outputs=describe(seal(into, CHECKPOINT.kind)),
            writer=Writer(nonce="0" * 32, builder_id="", version=""),
            built_at=int(time.time()),
            build_s=1.0,
        )
        if not store.put(entry, into):
            raise SystemExit("it was there")

    return timed(keep, arguments.at)


def linked(arguments: argparse.Namespace, mode: int) -> Path:
    """The source's files where a build would have left them, written a while ago."""
    into: Path = arguments.into
    into.mkdir()
    past = time.time() - 60
    for path in (arguments.at / "source").iterdir():
        path.chmod(mode)
        os.utime(path, (past, past))
        os.link(path, into / path.name)
    return into


def hit(arguments: argparse.Namespace, name: str = "cache", always_hash: bool = False) -> Figures:
    cache: ArtifactCache = open_local(arguments.at / name, kinds=KIND_POLICY)
    cache.store = LocalStore(arguments.at / name, kinds=KIND_POLICY, always_hash=always_hash)
    cache.store.capability()

    def take() -> None:
        if not cache.get_or_build(CHECKPOINT, lambda _: None, arguments.into).hit:
            raise SystemExit("no hit")

    return timed(take, arguments.at)


def copy(arguments: argparse.Namespace) -> Figures:
    command = ["cp", "-r", "--reflink=never", str(arguments.at / "source"), str(arguments.into)]
    return timed(lambda: subprocess.run(command, check=True), arguments.at)


def bare_sha256(arguments: argparse.Namespace) -> Figures:
    def hash_one(path: Path) -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def hash_all() -> None:
        with ThreadPoolExecutor(HASHING_THREADS) as pool:
            list(pool.map(hash_one, (arguments.at / "source").iterdir()))

    return timed(hash_all)


def s3_store(arguments: argparse.Namespace) -> Any:
    from artifact_cache.stores.s3 import S3Store
    from artifact_cache.stores.s3_calls import Bucket

    bucket = Bucket("bench", endpoint_url=arguments.url, region="us-east-1")
    return S3Store(bucket, "", partial=arguments.at / "partial")


def s3_publish(arguments: argparse.Namespace) -> Figures:
    client(arguments.url).create_bucket(Bucket="bench")
    into = arguments.at / "published"
    shutil.copytree(arguments.at / "source", into)
    store = s3_store(arguments)
    entry = Entry(
        key=key_of(CHECKPOINT),
        keydoc=plain(CHECKPOINT),
        outputs=describe(seal(into, CHECKPOINT.kind)),
        writer=Writer(nonce="0" * 32, builder_id="", version=""),
        built_at=int(time.time()),
        build_s=1.0,
    )
    return timed(lambda: store.put(entry, into))


def s3_fetch(arguments: argparse.Namespace) -> Figures:
    store = s3_store(arguments)
    store.capability()
    arguments.into.mkdir()

    def fetch() -> None:
        store.get(address_of(CHECKPOINT)).extract(arguments.into)

    return timed(fetch)


def s3_get(arguments: argparse.Namespace) -> Figures:
    """Ranges of the same size, as many at once, written to their places, and nothing more."""
    s3 = client(arguments.url)
    found = s3.list_objects_v2(Bucket="bench", Prefix="v1/cas/")["Contents"]
    arguments.into.mkdir()
    ranges = [
        (one["Key"], start, min(start + RANGE, one["Size"]) - 1)
        for one in found
        for start in range(0, one["Size"], RANGE)
    ]

    def get(part: tuple[str, int, int]) -> None:
        name, start, end = part
        answer = s3.get_object(Bucket="bench", Key=name, Range=f"bytes={start}-{end}")
        target = arguments.into / name.rpartition("/")[2]
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
        for chunk in answer["Body"].iter_chunks(1024 * 1024):
            os.pwrite(descriptor, chunk, start)
            start += len(chunk)
        os.close(descriptor)

    def get_all() -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(get, ranges))

    return timed(get_all)


PIECES: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "write-entries": lambda arguments: timed(
        lambda: write_entries(arguments.at, arguments.entries)
    ),
    "write-files": lambda arguments: timed(
        lambda: write_files(arguments.at / "source", arguments.size, arguments.count)
    ),
    "lookup": lookup,
    "explain": explain,
    "list": list_all,
    "gc": look_for_garbage,
    "publish": publish,
    "publish-programs": lambda arguments: publish(arguments, "programs", 0o755),
    "stamped-hit": hit,
    "hashed-hit": lambda arguments: hit(arguments, always_hash=True),
    "program-hit": lambda arguments: hit(arguments, "programs"),
    "cp": copy,
    "sha256": bare_sha256,
    "s3-publish": s3_publish,
    "s3-fetch": s3_fetch,
    "s3-get": s3_get,
}


# --- places


def write_entries(root: Path, count: int) -> None:
    """Lay out a store with many entries, written as text: they differ in a seed and what follows.

    Every thousandth is parsed as a reader would.
    """
    store = LocalStore(root, kinds=KIND_POLICY)
    store.capability()
    source = root.with_name("one-file")
    source.mkdir()
    (source / "file").write_bytes(b"tensors")
    sample = Entry(
        key=key_of(CHECKPOINT),
        keydoc=plain(CHECKPOINT),
        outputs=describe(seal(source, CHECKPOINT.kind)),
        writer=Writer(nonce="0" * 32, builder_id="", version=""),
        built_at=1_790_000_000,
        build_s=60.0,
        labels={"model": "sample"},
    )
    store.put(sample, source)
    path = store.entry_path(address_of(CHECKPOINT))
    path.unlink()
    canonical = entry_bytes(sample).decode()
    check = json.loads(canonical)["check"]
    start, end = canonical.split(f'"check":"{check}",')
    keydoc = end[end.index('"keydoc":') + len('"keydoc":') : end.index(',"labels":')]
    for shard in range(256):
        (path.parent.parent / f"{shard:02x}").mkdir(exist_ok=True)
    for seed in range(count):
        this = f'"seed":{seed}'
        key = hashlib.sha256(KEY_PREFIX + keydoc.replace(SEED, this).encode()).hexdigest()
        rest = end.replace(SEED, this).replace(sample.key, key)
        digest = hashlib.sha256(b"packager-entry-v1\n" + f"{start}{rest}".encode()).hexdigest()
        data = f'{start}"check":"{digest}",{rest}'.encode()
        target = path.parent.parent / key[:2] / f"{key}.json"
        target.write_bytes(data)
        if seed % 1000 == 0 and parse_entry(data).key != key_of(document(seed)):
            raise SystemExit("the entries are not what a builder would write")


def write_files(directory: Path, size: int, count: int = FILES) -> None:
    """Incompressible files, each block different."""
    directory.mkdir()
    noise = random.Random(1).randbytes(BLOCK)
    for number in range(count):
        with (directory / f"{number}.bin").open("wb") as file:
            left, block = size // count, 0
            while left:
                head = f"{number} {block} ".encode()
                left -= file.write((head + noise[len(head) :])[:left])
                block += 1


@contextmanager
def xfs(work: Path, size: int) -> Iterator[Path | None]:
    """A disk that can clone; None where there cannot be one."""
    if os.geteuid() != 0 or not shutil.which("mkfs.xfs", path="/usr/sbin:/sbin:/usr/bin"):
        say("no XFS here: clones are left out")
        yield None
        return
    image, at = work / "xfs.img", work / "xfs"
    with image.open("wb") as file:
        file.truncate(size * 5 // 2 + 2**30)
    at.mkdir()
    call(["/usr/sbin/mkfs.xfs", "-q", "-m", "reflink=1", str(image)])
    call(["mount", "-o", "loop", str(image), str(at)])
    try:
        yield at
    finally:
        call(["umount", str(at)])
        image.unlink()


@contextmanager
def bucket_server() -> Iterator[str]:
    """moto's server in a process of its own; it is far slower than a real one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def client(url: str) -> Any:
    import boto3

    return boto3.client("s3", endpoint_url=url, region_name="us-east-1")


if __name__ == "__main__":
    sys.exit(main())
