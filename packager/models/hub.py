"""Models on a Hugging Face hub, pinned to a commit and proven by digest.

huggingface-hub does the talking, and takes HF_ENDPOINT, HF_TOKEN, HF_HOME and
HF_HUB_OFFLINE from the environment.  What to take is decided from the list of
files, before anything is downloaded.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from inspect import signature
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from packager.catalog.models import similar_model
from packager.core.documents import NotStrict, field, shorten
from packager.core.errors import Unavailable, UsageError
from packager.core.model import ModelFile, ModelFiles, ModelRef
from packager.core.references import ModelReference
from packager.core.remote.addresses import HubAddress
from packager.core.remote.hub_failures import HubRequest, explained, not_in_cache
from packager.core.remote.hub_session import downloading, get_object, limit_answers, not_a_hub
from packager.images.oci import LARGEST_BLOB
from packager.models.hub_cache import RepositoryCache, is_commit
from packager.models.hub_headers import HubHeaders
from packager.models.hub_progress import DownloadCallback, progress_bar_class, told_after
from packager.models.load import load_model
from packager.models.proof import WrongBytes, check_bytes
from packager.models.reference import hub_of
from packager.models.rules import ListedModelFile
from packager.models.walk import Found, link_roots, resolve_link

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_AT_ONCE = 8  # downloads, as many as the hub's client runs
_DEFAULT_REVISION = "main"
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class HubSource:
    """Finds a model by `org/name[@revision]`. Downloads go through the hub's own cache.

    Arguments that are None are left to huggingface-hub and its environment.
    With `headers_only` no weights are downloaded: enough for a plan, not for a build.
    With `streams` they never are: they stay on the hub until a layer is written.
    """

    name = "hub"

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        token: str | None = None,
        cache_dir: Path | None = None,
        headers_only: bool = False,
        is_draft: bool = False,
        is_adapter: bool = False,
        streams: bool = False,
        on_bytes: DownloadCallback | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._token = token
        self._cache_dir = cache_dir
        self._headers_only = headers_only
        self._is_draft = is_draft
        self._is_adapter = is_adapter
        self._streams = streams
        self._on_bytes = on_bytes

    def facts(self, reference: ModelReference) -> ModelFiles:
        """Pin, choose, download what is missing, and check every byte that was not checked yet."""
        from huggingface_hub import HfApi, constants

        named = hub_of(reference)
        name, revision = named.name, named.revision or _DEFAULT_REVISION
        cache = RepositoryCache(self._cache_dir or Path(constants.HF_HUB_CACHE), name)
        limit_answers()
        api = HfApi(
            endpoint=self._endpoint,
            token=self._token,
            library_name="packager",
            headers={"Accept-Encoding": "identity"},  # a file's bytes, and no more than it has
        )
        stays = self._headers_only or self._streams
        asked = HubRequest(
            name=name,
            revision=revision,
            endpoint=api.endpoint,
            token=api.token,
            near=similar_model,
        )
        with explained(asked):
            commit, listing = _pin(api, cache, asked)

            def fetch(paths: tuple[str, ...]) -> Mapping[str, Found]:
                wanted = {path: listing[path] for path in paths}
                with explained(replace(asked, keeps_files=not stays)):
                    return _fetch(api, cache, name, commit, wanted, self._on_bytes)

            ref = ModelRef(source="hub", name=name, revision=commit)
            headers = HubHeaders(api, cache, name, commit, listing) if stays else None
            found = load_model(
                ref,
                listing,
                fetch,
                headers=headers,
                for_plan=self._headers_only,
                is_draft=self._is_draft,
                is_adapter=self._is_adapter,
            )
            if headers is None:
                cache.remember_listing(commit, listing)
                found = with_origins(found, listing)
            return found


def with_origins(found: ModelFiles, listing: Mapping[str, ListedModelFile]) -> ModelFiles:
    """Return the files with their address on the Hub, by commit and digest."""
    entries = {unicodedata.normalize("NFC", path): (path, listing[path]) for path in listing}

    def noted(file: ModelFile) -> ModelFile:
        path, entry = entries[file.path]
        address = HubAddress(
            name=found.ref.name,
            commit=found.ref.revision,
            path=path,
            size=entry.size,
            sha256=entry.sha256,
            git_sha1=entry.git_sha1,
        )
        return replace(file, origin=address.url)

    return replace(found, files=tuple(map(noted, found.files)))


def _pin(
    api: HfApi, cache: RepositoryCache, asked: HubRequest
) -> tuple[str, Mapping[str, ListedModelFile]]:
    """Resolve the revision to a commit and its files. A cached commit needs no request."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    name, revision = asked.name, asked.revision
    if is_commit(revision):
        known = cache.recall_listing(revision)
        if known is not None:
            return revision, known
    try:
        answer = _ask(api, name, revision)
    except OfflineModeIsEnabled:
        return _pin_offline(cache, asked)
    commit = answer.get("sha")
    if not isinstance(commit, str) or not is_commit(commit):
        raise not_a_hub(f"it does not say which commit {name!r} is at {revision!r}")
    listing = read_listing(answer)
    cache.remember_revision(revision, commit)
    return commit, listing


def _ask(api: HfApi, name: str, revision: str) -> Mapping[str, Any]:
    """Fetch the description of a model, as the hub's client does, but with limits."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        validate_repo_id,
    )

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise UsageError(
            f"{name!r} is not a name that a hub allows", hint="write `org/name`"
        ) from error
    return get_object(
        f"{api.endpoint}/api/models/{name}/revision/{quote(revision, safe='')}",
        headers=build_hf_headers(token=api.token, library_name="packager"),
        params={"blobs": "true"},
    )


def read_listing(answer: Mapping[str, Any]) -> Mapping[str, ListedModelFile]:
    """Read the files of a model's description; raise `ProtocolFailed` for fields of wrong types."""
    try:
        siblings = field(answer, "siblings", list) if "siblings" in answer else []
        return dict(_entry(sibling) for sibling in siblings)
    except NotStrict as error:
        raise not_a_hub(str(error)) from error


def _entry(sibling: object) -> tuple[str, ListedModelFile]:
    path = field(sibling, "rfilename", str, "a sibling")
    assert isinstance(sibling, dict)
    size, lfs = sibling.get("size"), sibling.get("lfs")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= LARGEST_BLOB:
        raise NotStrict(f"it does not say how long {shorten(path)} is")
    if lfs is not None:
        sha256 = field(lfs, "sha256", str, "lfs")
        if _SHA256.fullmatch(sha256) is None:
            raise NotStrict(f"lfs.sha256 of {shorten(path)} is {shorten(sha256)}")
        return path, ListedModelFile(size=size, sha256=sha256)
    git_sha1 = sibling.get("blobId")
    if not isinstance(git_sha1, str) or not is_commit(git_sha1):
        raise NotStrict(f"it gives no digest of {shorten(path)}, so that nothing proves the file")
    return path, ListedModelFile(size=size, git_sha1=git_sha1)


def _pin_offline(
    cache: RepositoryCache, asked: HubRequest
) -> tuple[str, Mapping[str, ListedModelFile]]:
    commit = cache.recall_revision(asked.revision)
    listing = (cache.recall_listing(commit) or cache.list_snapshot(commit)) if commit else None
    if not listing:
        raise not_in_cache(asked)
    return commit, listing


def _fetch(
    api: HfApi,
    cache: RepositoryCache,
    name: str,
    commit: str,
    wanted: Mapping[str, ListedModelFile],
    on_bytes: DownloadCallback | None,
) -> Mapping[str, Found]:
    """Download missing files and verify digests; the Hub's client compares only sizes."""
    missing = [path for path in wanted if not cache.path(commit, path).exists()]
    before = sum(wanted[path].size for path in missing)
    if missing:
        _download(api, cache, name, commit, {path: wanted[path] for path in missing}, on_bytes)
        _refuse_missing(cache, name, commit, missing)
    allowed = link_roots(cache.snapshot(commit))
    proven = cache.recall_proofs(commit)
    fetched: dict[str, Found] = {}
    for path, entry in wanted.items():
        place = cache.path(commit, path)
        found = fetched[path] = resolve_link(place, path, allowed)
        if proven.get(path) == list(found.identity):
            continue
        try:
            check_bytes(found, entry)
        except WrongBytes as wrong:
            # Damaged once, in the cache or on the way: download it once more.
            try:
                once_more = told_after(on_bytes, before) if on_bytes else None
                _download(api, cache, name, commit, {path: entry}, once_more, again=True)
                before += entry.size
            except Exception as error:
                raise wrong from error
            found = fetched[path] = resolve_link(place, path, allowed)
            check_bytes(found, entry)
        proven[path] = list(found.identity)
    cache.remember_proofs(commit, proven)
    return fetched


def _download(
    api: HfApi,
    cache: RepositoryCache,
    name: str,
    commit: str,
    wanted: Mapping[str, ListedModelFile],
    on_bytes: DownloadCallback | None,
    *,
    again: bool = False,
) -> None:
    """Download files, several at once; the first that fails ends it."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    bars: dict[str, Any] = {}
    # Older versions of the client draw their own.
    if on_bytes and "tqdm_class" in signature(api.hf_hub_download).parameters:
        bars["tqdm_class"] = progress_bar_class(
            on_bytes, sum(entry.size for entry in wanted.values())
        )

    stop = Event()

    def download(path: str) -> None:
        try:
            with downloading(path, wanted[path].size, stop):
                api.hf_hub_download(
                    name,
                    path,
                    revision=commit,
                    cache_dir=cache.root,
                    force_download=again,
                    **bars,
                )
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
            if isinstance(error, OSError):
                raise
            raise not_a_hub(f"its client cannot read the head of {shorten(path)}") from error

    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="download")
    try:
        for done in [pool.submit(download, path) for path in wanted]:
            done.result()
    except BaseException as error:
        # The client closes the connections of all its threads when one of them fails, so that
        # none may go on behind our back; but whoever interrupts us waits for nobody.
        stop.set()
        pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
        raise
    pool.shutdown()


def _refuse_missing(cache: RepositoryCache, name: str, commit: str, paths: list[str]) -> None:
    """Without a hub, its client returns a snapshot that lacks files, without an error."""
    for path in paths:
        if not cache.path(commit, path).exists():
            raise Unavailable(
                f"{path!r} of {name!r} is not in the hub cache, and the hub does not answer",
                hint="run again where the hub can be reached",
            )
