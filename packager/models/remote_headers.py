"""Headers of weights that are elsewhere: a plan of 800 GB takes some megabytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from packager.core.image import RemoteRange
from packager.core.model import TensorInfo
from packager.models.contents import LFS_POINTER, refuse_pickle
from packager.models.refusals import lfs_pointer
from packager.models.safetensors import header_length, parse_header

# huggingface-hub takes 100 kB at first too: 97 of 100 headers are shorter.
FIRST_BYTES = 100_000
CONNECTIONS = 8

ReadRange = Callable[[int, int], bytes]  # offset and length → exactly these bytes


class Headers(Protocol):
    """Files that stay where they are."""

    def tensors_of(self, files: tuple[str, ...]) -> Mapping[str, tuple[TensorInfo, ...]]:
        """Read the headers of these shards and no more."""

    def content(self, path: str) -> RemoteRange:
        """Return where a file's bytes are."""

    def beginning(self, path: str, length: int) -> bytes:
        """Read the first bytes of a file, at most so many."""


def read_headers(
    files: tuple[str, ...], tensors_of: Callable[[str], tuple[TensorInfo, ...]]
) -> Mapping[str, tuple[TensorInfo, ...]]:
    """Read the headers of shards, several at once; the first that is broken ends it."""
    with ThreadPoolExecutor(max_workers=CONNECTIONS) as pool:
        try:
            return dict(zip(files, pool.map(tensors_of, files), strict=True))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def read_remote_shard(file: str, size: int, read: ReadRange) -> tuple[TensorInfo, ...]:
    """Read the header of one shard of `size` bytes, in one request if it is short."""
    head = read(0, min(FIRST_BYTES, size))
    if head.startswith(LFS_POINTER):
        raise lfs_pointer(file)
    refuse_pickle(file, io.BytesIO(head))
    length = header_length(head, size, file)
    if length + 8 > len(head):
        head += read(len(head), length + 8 - len(head))
    return parse_header(head[8 : 8 + length], size - 8 - length, file)
