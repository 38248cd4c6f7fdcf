"""The state of a cache after something went wrong: what a rerun makes of it, and what is left."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from artifact_cache.entry import parse_entry
from artifact_cache.errors import CacheError
from artifact_cache.fsck import check
from artifact_cache.gc import GcPolicy, collect
from artifact_cache.key import KeyDocument
from artifact_cache.pins import Pins
from artifact_cache.store import address_of
from tests.faults.cache.working import NOTHING_STAYS, OldBuild
from tests.faults.counters import never
from tests.support.cache_entries import CHECKPOINT, files_of
from tests.support.cache_opening import LocalStore, open_local
from tests.support.places import files_below

KNOWN = (b"ours", b"theirs", b"heir")


def mend(
    root: Path,
    work: Path,
    *,
    wanted: KeyDocument = CHECKPOINT,
    known: Iterable[bytes] = KNOWN,
    pinned: Iterable[KeyDocument] = (),
    policy: GcPolicy = NOTHING_STAYS,
) -> None:
    """Run once more: right files, a hit after it, and nothing left over once it is collected."""
    right = [files_of(content) for content in known]
    with never("manual_cleanup"):
        first = open_local(root).get_or_build(wanted, OldBuild(b"heir"), work / "mended")
        assert first.stored, first.notices
    second = open_local(root).get_or_build(wanted, OldBuild(b"never"), work / "again")
    with never("wrong_bytes"):
        assert files_below(first.path) in right
        assert files_below(second.path) == files_below(first.path)
    with never("manual_cleanup"):
        assert second.hit, second.notices
        open_local(root).explain(wanted)
        assert collect(LocalStore(root), policy).problem == ""
        checked = check(LocalStore(root))
        assert checked.problems == ()
    with never("garbage_left"):
        assert checked.orphans == ()
        assert leftovers(root) == []
        assert beside(work) == []
    with never("pin_lost"):
        for one in pinned:
            assert open_local(root).find(one), "a pinned entry is gone"


def leftovers(root: Path) -> list[str]:
    """Files of a cache that belong to no entry that is there, nor to its accounts."""
    keys: set[str] = set()
    blobs: set[str] = set()
    for path in root.glob("ac/*/??/*.json"):
        keys.add(path.stem)
        try:
            blobs |= {output.sha256 for output in parse_entry(path.read_bytes()).outputs}
        except CacheError:
            blobs |= {found.name for found in root.glob("cas/sha256/??/*")}
    return sorted(
        name
        for path in root.rglob("*")
        if not path.is_dir()
        and not _belongs(name := path.relative_to(root).as_posix(), keys, blobs)
    )


def _belongs(name: str, keys: set[str], blobs: set[str]) -> bool:
    first, _, _ = name.partition("/")
    last = name.rpartition("/")[2]
    match first:
        case "ac":
            return last.removesuffix(".json") in keys
        case "cas" | "stamp":
            return last in blobs
        case "use":
            return last in keys
        case "locks":
            return last.endswith(".lock")
        case "neg" | "pins":
            return last.endswith(".json") and not last.startswith(".")
    return name in ("VERSION", "stats.jsonl", "stats.jsonl.lock", "index.sqlite")


def beside(work: Path) -> list[str]:
    """What was left next to the directories of callers."""
    return sorted(path.name for path in work.iterdir() if path.name.startswith("."))


def held(root: Path) -> set[str]:
    """The keys that pins hold."""
    return {key for one in Pins(LocalStore(root)).all().values() for key in one.keys}


def path_of(root: Path, wanted: KeyDocument) -> Path:
    """Where an entry lies."""
    return LocalStore(root).entry_path(address_of(wanted))
