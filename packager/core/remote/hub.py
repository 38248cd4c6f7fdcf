"""Files of a hub as segments: streamed, resumed, and verified by the digest the hub lists.

huggingface-hub's session does the talking: proxies, certificates and
HF_HUB_OFFLINE work as they do for downloads.  It drops the token when a
redirect leaves the hub for its content network.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping

from artifact_cache.waits import retry_after_s
from packager.core.errors import PackagerError, ProtocolFailed, Unavailable
from packager.core.image import RemoteRange
from packager.core.remote.addresses import HUB, HubAddress, is_in_order, parse_hub
from packager.core.remote.hub_session import TIMEOUT_S, limit_answers
from packager.core.remote.resume import (
    TRANSIENT,
    BrokenOff,
    Hash,
    proven,
    read_resumed,
    wrong_content,
)

_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-\d{1,19}/(\d{1,19}|\*)", re.ASCII)


class HubReader:
    """Fetches `hf` segments when they are needed. What is None is left to the environment."""

    scheme = HUB

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        token: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._endpoint = endpoint
        self._token = token
        self._sleep = sleep
        self._read: dict[tuple[str, int], Hash] = {}  # of a file's bytes up to an offset

    def read(self, segment: RemoteRange) -> Iterator[bytes]:
        """Yield the segment's bytes; of a file the last ones only when all are right."""
        file = parse_hub(segment.url)
        chunks = self._chunks(file, segment.offset, segment.length)
        if segment.offset == 0 and segment.length == file.size:
            yield from proven(chunks, _hash(file), _digest(file), file.path)
        elif is_in_order(segment):
            yield from self._part(file, segment, chunks)
        else:
            yield from chunks

    def _part(
        self, file: HubAddress, segment: RemoteRange, chunks: Iterator[bytes]
    ) -> Iterator[bytes]:
        """Yield a part of a file, and continue the hash of the bytes before it.

        What of that was not read yet is read now, for its hash only.
        """
        end = segment.offset + segment.length
        found = self._read.get((segment.url, segment.offset))
        hashed = found.copy() if found else _hash(file)
        if found is None:
            for chunk in self._chunks(file, 0, segment.offset):
                hashed.update(chunk)
        if end == file.size:
            yield from proven(chunks, hashed, _digest(file), file.path)
            return
        for chunk in chunks:
            hashed.update(chunk)
            yield chunk
        self._read[segment.url, end] = hashed

    def _chunks(self, file: HubAddress, offset: int, length: int) -> Iterator[bytes]:
        def open_at(done: int) -> Generator[bytes]:
            return self._open(file, offset + done, offset + length)

        what = f"{file.path!r} of {file.name!r}"
        return read_resumed(open_at, length, what=what, sleep=self._sleep)

    def _open(self, file: HubAddress, first: int, end: int) -> Generator[bytes]:
        from huggingface_hub import constants

        from packager.core.remote.hub_failures import HubRequest, explain

        try:
            yield from self._pieces(file, first, end)
        except (BrokenOff, PackagerError):
            raise
        except Exception as error:
            asked = HubRequest(
                name=file.name,
                revision=file.commit,
                endpoint=self._endpoint or constants.ENDPOINT,
                token=self._token,
            )
            failure = explain(error, asked)
            if failure is None:
                raise
            if isinstance(failure, Unavailable):
                raise BrokenOff(failure) from error
            raise failure from error

    def _pieces(self, file: HubAddress, first: int, end: int) -> Generator[bytes]:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            build_hf_headers,
            get_session,
            hf_raise_for_status,
        )

        limit_answers()
        url = hf_hub_url(file.name, file.path, revision=file.commit, endpoint=self._endpoint)
        headers = build_hf_headers(token=self._token, library_name="packager")
        headers["Accept-Encoding"] = "identity"
        if (first, end) != (0, file.size):
            headers["Range"] = f"bytes={first}-{end - 1}"
        with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S) as response:
            if response.status_code in TRANSIENT:
                host = response.url.host
                raise BrokenOff(
                    Unavailable(
                        f"{host} answers {response.status_code} for {file.path!r}",
                        hint="wait some minutes and run again; with HF_TOKEN more is allowed",
                    ),
                    retry_after_s=retry_after_s(response.headers.get("Retry-After")),
                )
            hf_raise_for_status(response)
            skip = _bytes_before(response.status_code, response.headers, file, first)
            for piece in response.iter_raw():
                if skip >= len(piece):
                    skip -= len(piece)
                    continue
                yield piece[skip:]
                skip = 0


def _bytes_before(status: int, headers: Mapping[str, str], file: HubAddress, first: int) -> int:
    """Return how many bytes of the response precede the requested range.

    Raises for another file's response.
    """
    if headers.get("Content-Encoding", "identity") != "identity":
        raise ProtocolFailed(
            f"the hub sent {file.path!r} compressed, which was not requested",
            hint="a proxy between here and the hub may do that; bypass it",
        )
    if status == 206:
        found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
        if found is None or int(found[1]) > first:
            raise ProtocolFailed(
                f"the hub sent another range of {file.path!r} than was requested",
                hint="run again; a proxy between here and the hub may be at fault",
            )
        before, total = first - int(found[1]), found[2]
    else:  # the whole file, from its first byte
        before, total = first, headers.get("Content-Length", "*")
    if total.isdecimal() and (len(total) > 19 or int(total) != file.size):
        raise wrong_content(file.path, f"it has {total} bytes, not {file.size}")
    return before


def _hash(file: HubAddress) -> Hash:
    if file.sha256:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)


def _digest(file: HubAddress) -> str:
    if file.sha256 or file.git_sha1:
        return file.sha256 or file.git_sha1
    raise ProtocolFailed(
        f"the hub gives no digest of {file.path!r}, so it cannot be streamed",
        hint=f"name the model without hf:// to download it first: `--model {file.name}`",
    )
