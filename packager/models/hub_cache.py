"""One repository in the cache of huggingface-hub, and packager's notes in it.

Beside `blobs`, `refs` and `snapshots` we keep `packager/COMMIT.json`: the
hub's list of files, and which of them were hashed, by the identity of the file
that was read.  It goes when the repository is deleted from the cache, it may
be deleted at any time, and a cache that cannot be written only costs another
hash.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from packager.core.documents import MAX_BYTES, NotStrict, parse_object
from packager.core.files.atomic import read_regular
from packager.models.rules import ListedModelFile
from packager.models.walk import walk

SCHEMA = 1
_LONGEST_NOTES = MAX_BYTES  # those of a model with ten thousand files have some two megabytes

Identity = list[int]  # device, inode, size, modification and change time in ns


def is_commit(revision: str) -> bool:
    """A full Git commit: it never means anything else."""
    return re.fullmatch(r"[0-9a-f]{40}", revision) is not None


class RepositoryCache:
    """The directory `models--ORG--NAME`. Reading never raises for what is not there."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root.expanduser().absolute()
        self._home = self.root / f"models--{name.replace('/', '--')}"

    def snapshot(self, commit: str) -> Path:
        """Return the directory where the Hub's client links the files of a commit."""
        return self._home / "snapshots" / commit

    def path(self, commit: str, path: str) -> Path:
        """Return the path of one file of a commit, present or not."""
        return self.snapshot(commit) / path

    def recall_revision(self, revision: str) -> str:
        """Return the commit that a revision resolved to last, or ''."""
        if is_commit(revision):
            return revision
        try:
            commit = read_regular(self._home / "refs" / revision, 1024).decode().strip()
        except (OSError, ValueError):
            return ""
        return commit if is_commit(commit) else ""

    def remember_revision(self, revision: str, commit: str) -> None:
        """Store the commit of a revision as the Hub's client does, for use offline."""
        if self.recall_revision(revision) != commit:
            _write(self._home / "refs" / revision, commit)

    def recall_listing(self, commit: str) -> Mapping[str, ListedModelFile] | None:
        """Return the Hub's list of files, if a model of this commit was loaded before."""
        files = self._notes(commit).get("files")
        if not isinstance(files, dict) or not all(map(_is_entry, files.values())):
            return None
        return {path: ListedModelFile(**entry) for path, entry in files.items()}

    def remember_listing(self, commit: str, listing: Mapping[str, ListedModelFile]) -> None:
        """Store the Hub's list of files, once all needed files are in the cache."""
        files = {
            path: {"size": entry.size, "sha256": entry.sha256, "git_sha1": entry.git_sha1}
            for path, entry in listing.items()
        }
        self._note(commit, files=files)

    def recall_proofs(self, commit: str) -> dict[str, Identity]:
        """Return the file identities whose digests were verified."""
        proofs = self._notes(commit).get("proven")
        return dict(proofs) if isinstance(proofs, dict) else {}

    def remember_proofs(self, commit: str, proofs: Mapping[str, Identity]) -> None:
        """Store which files need not be hashed again."""
        self._note(commit, proven=dict(proofs))

    def list_snapshot(self, commit: str) -> Mapping[str, ListedModelFile]:
        """List what another program downloaded. Blobs are named by their digest."""
        snapshot = self.snapshot(commit)
        if not snapshot.is_dir():
            return {}
        return {
            file.path: _named_by_digest(snapshot / file.path, file.size) for file in walk(snapshot)
        }

    def _notes(self, commit: str) -> dict[str, Any]:
        try:
            notes = parse_object(read_regular(self._notes_path(commit), _LONGEST_NOTES))
        except (OSError, NotStrict):
            return {}
        return notes if notes.get("schema") == SCHEMA else {}

    def _note(self, commit: str, **changes: object) -> None:
        notes = self._notes(commit)
        changed = {**notes, "schema": SCHEMA, **changes}
        if changed != notes:
            _write(self._notes_path(commit), json.dumps(changed, indent=1, sort_keys=True))

    def _notes_path(self, commit: str) -> Path:
        return self._home / "packager" / f"{commit}.json"


def _is_entry(noted: object) -> bool:
    return (
        isinstance(noted, dict)
        and noted.keys() == {"size", "sha256", "git_sha1"}
        and isinstance(noted["size"], int)
        and not isinstance(noted["size"], bool)
        and noted["size"] >= 0
        and isinstance(noted["sha256"], str)
        and isinstance(noted["git_sha1"], str)
        and bool(noted["sha256"] or noted["git_sha1"])
    )


def _named_by_digest(link: Path, size: int) -> ListedModelFile:
    try:
        name = link.readlink().name
    except OSError:
        name = ""
    if re.fullmatch(r"[0-9a-f]{64}", name):
        return ListedModelFile(size=size, sha256=name)
    return ListedModelFile(size=size, git_sha1=name if is_commit(name) else "")


def _write(place: Path, text: str) -> None:
    """Replace a small file atomically; errors are ignored, see the module."""
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(place)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
