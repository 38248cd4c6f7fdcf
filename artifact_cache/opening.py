"""A cache from settings: a directory here, and addresses of the stores behind it.

    s3://BUCKET[/PREFIX]     a bucket; region and credentials as AWS tools find them
    dir:/PATH                a directory that several machines mount

Either may be followed by `?` and settings, joined by `&`:

    policy=write-through     or write-back, or read-only; `ro:` in front is the last
    endpoint_url=URL         an S3 server that is not AWS
    region=NAME              of the bucket
    lease=no                 do not wait for other machines that build the same
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import parse_qsl

from artifact_cache.cache import WAIT_S, ArtifactCache, local_store, open_local
from artifact_cache.errors import CacheError
from artifact_cache.kinds import ASSUME_NOTHING, KindPolicy
from artifact_cache.locks import Lease
from artifact_cache.results import Notice, ignore
from artifact_cache.s3.buckets import split_place, why_no_bucket
from artifact_cache.stats import StatsLog, event_of
from artifact_cache.store import CacheStore
from artifact_cache.stores.local import LocalStore
from artifact_cache.stores.s3 import S3Store
from artifact_cache.stores.s3_calls import Bucket
from artifact_cache.stores.s3_lease import S3Lease
from artifact_cache.stores.tiered import Policy, Tier, TieredStore
from artifact_cache.stores.trusted import TrustedStore
from artifact_cache.trust import Signer, Trust

_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()/-]*")
_SETTINGS = {
    "s3": frozenset({"policy", "endpoint_url", "region", "lease"}),
    "dir": frozenset({"policy"}),
}


class BadTier(CacheError):
    """The address of a shared store cannot be understood."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"{address!r} is not the address of a shared cache: {reason}",
            hint="write s3://BUCKET/PREFIX or dir:/PATH, with ro: in front to only read",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TierAddress:
    """A shared store as the user wrote it."""

    scheme: Literal["s3", "dir"]
    place: str  # the directory, or the bucket
    prefix: str = ""
    policy: Policy = "write-through"
    endpoint_url: str | None = None
    region: str | None = None
    lease: bool = True

    @property
    def name(self) -> str:
        """What people call it."""
        if self.scheme == "dir":
            return f"dir:{self.place}"
        return f"s3://{self.place}/{self.prefix}".rstrip("/")


def parse_tier(address: str) -> TierAddress:
    """Read an address. Raises `BadTier`."""
    plain = address.removeprefix("ro:")
    where, _, query = plain.partition("?")
    scheme, _, rest = where.partition(":")
    if scheme not in _SETTINGS:
        raise BadTier(address, "it begins with neither s3:// nor dir:")
    settings = _settings(address, scheme, query)
    policy = _policy(address, settings.get("policy"), only_read=plain != address)
    if scheme == "dir":
        if not rest.startswith("/"):
            raise BadTier(address, "the path must begin with /")
        return TierAddress(scheme="dir", place=rest, policy=policy)
    bucket, prefix = split_place(rest.removeprefix("//"))
    if why := why_no_bucket(bucket if rest.startswith("//") else ""):
        raise BadTier(address, why)
    if not _PREFIX.fullmatch(prefix):
        raise BadTier(address, f"the prefix {prefix!r} holds characters that tools misread")
    endpoint = settings.get("endpoint_url")
    if endpoint is not None and not re.match(r"https?://[^/]", endpoint):
        raise BadTier(address, f"{endpoint!r} is not a URL")
    if settings.get("lease", "yes") not in ("yes", "no"):
        raise BadTier(address, "lease is yes or no")
    return TierAddress(
        scheme="s3",
        place=bucket,
        prefix=prefix.strip("/"),
        policy=policy,
        endpoint_url=endpoint,
        region=settings.get("region"),
        lease=settings.get("lease") != "no",
    )


def open_cache(
    root: Path,
    tiers: Sequence[str] = (),
    *,
    kinds: KindPolicy = ASSUME_NOTHING,
    builder_id: str = "",
    version: str = "",
    wait_s: float = WAIT_S,
    notify: Callable[[Notice], None] = ignore,
    trust: Trust | None = None,
    signer: Signer | None = None,
    always_hash: bool = False,
) -> ArtifactCache:
    """Open the cache below `root`, with shared stores behind it, nearest first.

    With `always_hash` no stamp is believed.  Raises `BadTier`.  Nothing is asked yet:
    `store.capability()` does, and says what works.
    """
    addresses = [parse_tier(address) for address in tiers]
    local = _trusted(local_store(root, trust, kinds=kinds, always_hash=always_hash), trust)
    shared: list[Tier] = []
    lease: Lease | None = None
    for address in addresses:
        inner: CacheStore = LocalStore(Path(address.place), always_hash=True)
        if address.scheme == "s3":
            bucket = Bucket(address.place, endpoint_url=address.endpoint_url, region=address.region)
            inner = bucket_store = S3Store(bucket, address.prefix, partial=root / "partial")
            if lease is None and address.lease and address.policy == "write-through":
                holder = f"{builder_id or 'somebody'} on {socket.gethostname()}"
                lease = S3Lease(bucket, bucket_store.prefix, holder=holder)
        shared.append(Tier(address.name, _trusted(inner, trust), address.policy))
    stats = StatsLog(root / "stats.jsonl")
    store = local
    if shared:
        store = TieredStore(
            local,
            shared,
            notify=lambda message: notify(Notice("store", message)),
            count=lambda tier, error: stats.count(event_of(error), tier=tier, kind="any"),
        )
    return open_local(
        root,
        kinds=kinds,
        builder_id=builder_id,
        version=version,
        wait_s=wait_s,
        notify=notify,
        trust=trust,
        signer=signer,
        store=store,
        lease=lease,
    )


def _trusted(store: CacheStore, trust: Trust | None) -> CacheStore:
    """Refuse in each store by itself: what is refused near must not hide what is good far."""
    return TrustedStore(store, trust) if trust else store


def _settings(address: str, scheme: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, strict_parsing=True, max_num_fields=8) if query else []
    except ValueError:
        raise BadTier(address, "its settings are not NAME=VALUE, joined by &") from None
    settings = dict(pairs)
    if len(settings) != len(pairs):
        raise BadTier(address, "a setting stands twice")
    if unknown := settings.keys() - _SETTINGS[scheme]:
        raise BadTier(address, f"{sorted(unknown)[0]!r} is not a setting of {scheme}")
    return settings


def _policy(address: str, found: str | None, *, only_read: bool) -> Policy:
    if only_read and found not in (None, "read-only"):
        raise BadTier(address, f"ro: and policy={found} exclude each other")
    if only_read:
        return "read-only"
    for policy in get_args(Policy):
        if found == policy:
            return policy  # type: ignore[no-any-return]
    if found is None:
        return "write-through"
    raise BadTier(address, f"policy is one of {', '.join(get_args(Policy))}")
