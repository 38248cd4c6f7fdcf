"""Files of an image, for people and programs."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from typing import Any

from packager.core.errors import NotFound
from packager.core.reports.report import Report, one_section, plain_table
from packager.images.rootfs.node import FileNode, NodeKind, Path
from packager.images.rootfs.tree import Directory, FileTree, PathBlocked, parts_of, show

_FORMATS: Mapping[NodeKind, int] = {
    "file": stat.S_IFREG, "directory": stat.S_IFDIR, "symlink": stat.S_IFLNK,
    "character": stat.S_IFCHR, "block": stat.S_IFBLK, "fifo": stat.S_IFIFO,
}  # fmt: skip


def files_document(reference: str, tree: FileTree, below: str) -> dict[str, Any]:
    """Return the files of an image at a path and below it; raise `NotFound` where none is."""
    files = [
        {
            "path": show(path),
            "kind": node.kind,
            "mode": f"{node.mode:04o}",
            "uid": node.uid,
            "gid": node.gid,
            "size": node.size if node.kind == "file" else None,
            "target": _text(node.target) if node.kind == "symlink" else None,
        }
        for path, node in _files(reference, tree, below)
    ]
    return {"reference": reference, "files": files}


def files_report(reference: str, tree: FileTree, below: str) -> Report:
    """Return the same as a table: mode, owner, bytes and path, as `ls -ln` shows them."""
    rows = [
        (
            stat.filemode(_FORMATS[node.kind] | node.mode),
            f"{node.uid}:{node.gid}",
            f"{node.size:,}" if node.kind == "file" else "",
            show(path) + (f" -> {_text(node.target)}" if node.target else ""),
        )
        for path, node in _files(reference, tree, below)
    ]
    table = plain_table(("mode", "owner", "bytes", "path"), rows, frozenset({"bytes"}))
    return one_section(f"Files of {reference}", table)


def _files(reference: str, tree: FileTree, below: str) -> Iterator[tuple[Path, FileNode]]:
    try:
        place = tree.locate(parts_of(below))
    except PathBlocked as error:
        raise _missing(reference, below) from error
    if place.found is None:
        raise _missing(reference, below)
    for path, found in tree.walk(place.path):
        yield path, found.node if isinstance(found, Directory) else found


def _missing(reference: str, below: str) -> NotFound:
    return NotFound(f"{reference!r} has nothing at {below!r}", hint="`--files /` lists all of it")


def _text(target: bytes) -> str:
    return target.decode("utf-8", "surrogateescape")
