"""artifact_cache: finished files, found again by the inputs that made them.

    result = open_local(root, kinds=policy).get_or_build(document, build, into=directory)

Knows nothing of packager, and no kind of artifact: kinds are subclasses of
`KeyDocument`, and a `KindPolicy` says what may be assumed of each.  Names load on
first use: a command that never touches the cache does not pay for pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from artifact_cache.cache import ArtifactCache as ArtifactCache
    from artifact_cache.cache import open_local as open_local
    from artifact_cache.entry import Entry as Entry
    from artifact_cache.errors import BuildFailed as BuildFailed
    from artifact_cache.errors import CacheError as CacheError
    from artifact_cache.errors import NotTaken as NotTaken
    from artifact_cache.errors import PublishedElsewhere as PublishedElsewhere
    from artifact_cache.errors import Rejected as Rejected
    from artifact_cache.errors import RejectedBefore as RejectedBefore
    from artifact_cache.errors import Untrusted as Untrusted
    from artifact_cache.errors import UnusablePin as UnusablePin
    from artifact_cache.explain import Explanation as Explanation
    from artifact_cache.fsck import Checked as Checked
    from artifact_cache.fsck import check as check
    from artifact_cache.gc import Collected as Collected
    from artifact_cache.gc import GcPolicy as GcPolicy
    from artifact_cache.gc import collect as collect
    from artifact_cache.index import Index as Index
    from artifact_cache.key import KeyDocument as KeyDocument
    from artifact_cache.key import key_of as key_of
    from artifact_cache.key import manifest_digest as manifest_digest
    from artifact_cache.kinds import ASSUME_NOTHING as ASSUME_NOTHING
    from artifact_cache.kinds import KindPolicy as KindPolicy
    from artifact_cache.kinds import LargerRule as LargerRule
    from artifact_cache.matching import Match as Match
    from artifact_cache.negative import Failure as Failure
    from artifact_cache.negative import Failures as Failures
    from artifact_cache.negative import scrub as scrub
    from artifact_cache.opening import BadTier as BadTier
    from artifact_cache.opening import open_cache as open_cache
    from artifact_cache.pins import Pin as Pin
    from artifact_cache.pins import Pins as Pins
    from artifact_cache.results import CacheResult as CacheResult
    from artifact_cache.results import Notice as Notice
    from artifact_cache.stats import StatsLog as StatsLog
    from artifact_cache.stats import prometheus as prometheus
    from artifact_cache.store import Address as Address
    from artifact_cache.store import CacheStore as CacheStore
    from artifact_cache.store import Capability as Capability
    from artifact_cache.stores.archive import export_archive as export_archive
    from artifact_cache.stores.archive import import_archive as import_archive
    from artifact_cache.stores.local import LocalStore as LocalStore
    from artifact_cache.stores.s3 import S3Store as S3Store
    from artifact_cache.stores.tiered import TieredStore as TieredStore
    from artifact_cache.stores.trusted import TrustedStore as TrustedStore
    from artifact_cache.trust import Signer as Signer
    from artifact_cache.trust import Trust as Trust
    from artifact_cache.trust import generate_key as generate_key
    from artifact_cache.trust import load_signer as load_signer
    from artifact_cache.trust import load_trusted_keys as load_trusted_keys
    from artifact_cache.trust import trust_key as trust_key

_HOMES = {
    "ArtifactCache": "cache",
    "CacheResult": "results",
    "Notice": "results",
    "open_local": "cache",
    "Entry": "entry",
    "BuildFailed": "errors",
    "CacheError": "errors",
    "NotTaken": "errors",
    "PublishedElsewhere": "errors",
    "Rejected": "errors",
    "RejectedBefore": "errors",
    "Untrusted": "errors",
    "UnusablePin": "errors",
    "Explanation": "explain",
    "Checked": "fsck",
    "check": "fsck",
    "Collected": "gc",
    "GcPolicy": "gc",
    "collect": "gc",
    "Index": "index",
    "KeyDocument": "key",
    "key_of": "key",
    "manifest_digest": "key",
    "ASSUME_NOTHING": "kinds",
    "KindPolicy": "kinds",
    "LargerRule": "kinds",
    "Match": "matching",
    "Failure": "negative",
    "Failures": "negative",
    "scrub": "negative",
    "BadTier": "opening",
    "open_cache": "opening",
    "Pin": "pins",
    "Pins": "pins",
    "StatsLog": "stats",
    "prometheus": "stats",
    "Address": "store",
    "CacheStore": "store",
    "Capability": "store",
    "export_archive": "stores.archive",
    "import_archive": "stores.archive",
    "LocalStore": "stores.local",
    "S3Store": "stores.s3",
    "TieredStore": "stores.tiered",
    "TrustedStore": "stores.trusted",
    "Signer": "trust",
    "Trust": "trust",
    "generate_key": "trust",
    "load_signer": "trust",
    "load_trusted_keys": "trust",
    "trust_key": "trust",
}

__all__ = tuple(sorted(_HOMES))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
