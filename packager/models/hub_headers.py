"""Headers of weights on a hub, read by HTTP ranges."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from packager.core.errors import ProtocolFailed, Unavailable
from packager.core.image import RemoteRange
from packager.core.model import TensorInfo
from packager.core.remote.addresses import HubAddress
from packager.core.remote.hub_session import ANSWER_S, refuse_compressed
from packager.models.contents import read_shard, readable
from packager.models.hub_cache import RepositoryCache
from packager.models.remote_headers import read_headers, read_remote_shard
from packager.models.rules import ListedModelFile
from packager.models.walk import link_roots, resolve_link

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TIMEOUT_S = 30.0


class HubHeaders:
    """Weights of one commit, left on the hub. Shards in the cache are read from there."""

    def __init__(
        self,
        api: HfApi,
        cache: RepositoryCache,
        name: str,
        commit: str,
        listing: Mapping[str, ListedModelFile],
    ) -> None:
        self._api = api
        self._cache = cache
        self._name = name
        self._commit = commit
        self._listing = listing

    def tensors_of(self, files: tuple[str, ...]) -> Mapping[str, tuple[TensorInfo, ...]]:
        """Read the headers, several at once; the first that is broken ends it."""
        return read_headers(files, self._tensors)

    def content(self, path: str) -> RemoteRange:
        """Return the file's range on the Hub, by commit and digest."""
        entry = self._listing[path]
        address = HubAddress(
            name=self._name,
            commit=self._commit,
            path=path,
            size=entry.size,
            sha256=entry.sha256,
            git_sha1=entry.git_sha1,
        )
        return RemoteRange(url=address.url, offset=0, length=entry.size)

    def beginning(self, path: str, length: int) -> bytes:
        """Read the first bytes of a file, at most so many, from the cache where it has the file."""
        place = self._cache.path(self._commit, path)
        if place.exists():
            allowed = link_roots(self._cache.snapshot(self._commit))
            with readable(path, resolve_link(place, path, allowed)) as stream:
                return stream.read(length)
        return self._read(path, 0, min(length, self._listing[path].size))

    def _tensors(self, file: str) -> tuple[TensorInfo, ...]:
        place = self._cache.path(self._commit, file)
        if place.exists():
            allowed = link_roots(self._cache.snapshot(self._commit))
            return read_shard(resolve_link(place, file, allowed))
        return read_remote_shard(
            file, self._listing[file].size, lambda offset, length: self._read(file, offset, length)
        )

    def _read(self, file: str, offset: int, length: int) -> bytes:
        """Read exactly these bytes; a server that sends the whole file is cut off."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            build_hf_headers,
            get_session,
            hf_raise_for_status,
        )

        if length == 0:
            return b""
        url = hf_hub_url(self._name, file, revision=self._commit, endpoint=self._api.endpoint)
        headers = build_hf_headers(token=self._api.token, library_name="packager")
        headers |= {
            "Range": f"bytes={offset}-{offset + length - 1}",
            "Accept-Encoding": "identity",
        }
        data = bytearray()
        started = time.monotonic()
        with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S) as response:
            hf_raise_for_status(response)
            # 200 is the whole file, from its first byte.
            skip = offset if response.status_code == 200 else 0
            refuse_compressed(response)
            for chunk in response.iter_raw():
                data += chunk
                if len(data) >= skip + length:
                    break
                if time.monotonic() - started > ANSWER_S:
                    raise Unavailable(
                        f"the header of {file!r} comes too slowly from the hub", hint="run again"
                    )
        part = bytes(data[skip : skip + length])
        if len(part) != length:
            raise ProtocolFailed(
                f"the hub sent {len(part)} of {length} bytes of {file!r}",
                hint="run again; a proxy between here and the hub may cut answers short",
            )
        return part
