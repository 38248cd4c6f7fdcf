"""Where our files go over the files of a base, and what forbids that: pure.

An entry of a layer replaces what has its name.  A directory of ours over a link of the base would
hide what the link leads to, and over a directory would change its mode and owner for everybody.
So links are followed, and directories that are there keep what they have; a layer depends on the
base only there: over a base that has none of it, layers are the same blobs as over any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from packager.core.findings import Finding
from packager.core.image import BaseImage
from packager.core.text import escape
from packager.images.rootfs.node import FileNode, Path
from packager.images.rootfs.tree import Directory, FileTree, PathBlocked, TreePlace, parts_of, show
from packager.images.rootfs.users import Identity, NoSuchUser, find_identity
from packager.images.tar import DEFAULT_DIRECTORY, DirectoryAttributes

_MOUNTED = frozenset((b"proc", b"sys", b"dev"))  # by every container engine
_ANOTHER = "name another base image"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where files of ours go in the image. Empty: where they are named."""

    moved: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # by directory: where links of the base lead to
    directories: Mapping[str, DirectoryAttributes] = field(
        default_factory=lambda: MappingProxyType({})
    )  # of the base's that are not as ours would be

    def path(self, path: str) -> str:
        """Return where a file goes that is named by an absolute path."""
        directory, _, name = path.rpartition("/")
        return f"{self.moved[directory]}/{name}" if directory in self.moved else path

    @property
    def below(self) -> Placement:
        """The placement of layers below the base's, whose own directories decide."""
        return Placement(moved=self.moved)

    def kept(self, paths: Iterable[str]) -> dict[str, DirectoryAttributes]:
        """Return the attributes that directories above these files keep, sorted by path."""
        above = {parent for path in paths for parent in _parents(path)}
        return {path: self.directories[path] for path in sorted(above & self.directories.keys())}


AS_NAMED = Placement()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFiles:
    """A placement with its findings; an error among them refuses the image."""

    placement: Placement = AS_NAMED
    findings: tuple[Finding, ...] = ()


def place_files(
    base: BaseImage,
    tree: FileTree,
    files: Sequence[str],
    *,
    own: Sequence[str] = (),
    below: Sequence[str] = (),
) -> PlacedFiles:
    """Return where files go over a base.

    `files` are absolute paths, of which those in `below` lie in layers below the base's; `own`
    are directories in which every file must be ours.
    """
    found: list[Finding] = []
    moved: dict[str, str] = {}
    directories: dict[str, DirectoryAttributes] = {}
    places: dict[str, TreePlace] = {}
    taken: dict[Path, str] = {}
    for directory in sorted({path.rpartition("/")[0] for path in files}):
        try:
            place = tree.locate(parts_of(directory))
        except PathBlocked as error:
            found.append(_blocked(base, directory, str(error)))
            continue
        places[directory] = place
        found += _check_directory(base, directory, place)
        if taken.setdefault(place.path, directory) != directory:
            found.append(_blocked(base, directory, f"it leads to {taken[place.path]!r}"))
        if show(place.path) != directory:
            moved[directory] = show(place.path)
        for path, here in (*place.above, (place.path, place.found)):
            if path and isinstance(here, Directory):
                kept = _attributes(here.node)
                if kept != DEFAULT_DIRECTORY:
                    directories[show(path)] = kept
    found += _check_files(base, tree, files, places)
    found += _check_volumes(base, tree, files, places)
    found += _check_user(base, tree, places)
    found += _check_own(base, tree, own, _real_paths(files, places))
    hidden = {path.rpartition("/")[0] for path in below} & places.keys()
    found += _check_removed(base, tree, [places[directory] for directory in sorted(hidden)])
    found += _notes(base, moved, directories)
    placement = Placement(moved=MappingProxyType(moved), directories=MappingProxyType(directories))
    return PlacedFiles(placement=placement, findings=tuple(dict.fromkeys(found)))


def _check_directory(base: BaseImage, directory: str, place: TreePlace) -> Iterator[Finding]:
    """Check that our files can lie in a directory."""
    if isinstance(place.found, FileNode):
        yield _blocked(base, directory, f"{show(place.path)!r} is not a directory")
    elif place.path[:1] and place.path[0] in _MOUNTED:
        yield _blocked(
            base, directory, f"it leads to {show(place.path)!r}, over which engines mount"
        )
    elif any(0xDC80 <= ord(letter) <= 0xDCFF for letter in show(place.path)):
        yield _blocked(base, directory, f"{show(place.path)!r} is not UTF-8")


def _check_files(
    base: BaseImage, tree: FileTree, files: Sequence[str], places: Mapping[str, TreePlace]
) -> Iterator[Finding]:
    """Check that no file of ours would replace a directory."""
    for path in files:
        directory, _, name = path.rpartition("/")
        place = places.get(directory)
        if place is None or not name or not isinstance(place.found, Directory):
            continue
        at = (*place.path, name.encode("utf-8", "surrogateescape"))
        if isinstance(tree.locate(at, follow_last=False).found, Directory):
            yield Finding(
                "error",
                "base-path",
                f"base image {base.reference!r} has a directory at {escape(path)!r}, where a file "
                "goes",
                _ANOTHER,
            )


def _check_volumes(
    base: BaseImage, tree: FileTree, files: Sequence[str], places: Mapping[str, TreePlace]
) -> Iterator[Finding]:
    """Check that no volume of the base would be mounted over our files."""
    runtime = base.config.get("config") or {}
    for volume in sorted(runtime.get("Volumes") or {}):
        try:
            root = tree.locate(parts_of(volume)).path
        except PathBlocked:
            root = parts_of(volume)
        for path in files:
            directory, _, name = path.rpartition("/")
            at = (*places[directory].path, name.encode()) if directory in places else ()
            if at[: len(root)] == root:
                yield Finding(
                    "error",
                    "base-volume",
                    f"base image {base.reference!r} declares {escape(volume)!r} a volume: "
                    f"{escape(path)!r} would lie below it",
                    "a container would start with a copy, or without it; name a base without "
                    "this VOLUME",
                )
                break


def _check_user(
    base: BaseImage, tree: FileTree, places: Mapping[str, TreePlace]
) -> Iterator[Finding]:
    """Check that the base's user may enter the directories that it has and our files lie in."""
    user = str((base.config.get("config") or {}).get("User") or "")
    if user.partition(":")[0] in ("", "0", "root"):
        return
    passwd, group = _content(tree, "/etc/passwd"), _content(tree, "/etc/group")
    if not tree.root.names:
        return  # no layer of it was read
    try:
        who = find_identity(user, passwd, group)
    except NoSuchUser as error:
        yield Finding(
            "error",
            "base-user",
            f"base image {base.reference!r} runs as user {escape(user)!r}, and "
            f"{escape(str(error))}: no container would start",
            _ANOTHER,
        )
        return
    for place in places.values():
        for path, here in (*place.above, (place.path, place.found)):
            if not isinstance(here, Directory) or _may_enter(who, here.node):
                continue
            node = here.node
            yield Finding(
                "error" if who else "warning",
                "base-user",
                f"base image {base.reference!r} runs as user {escape(user)!r}, and its directory "
                f"{escape(show(path))!r} has mode {node.mode:04o} and owner {node.uid}:{node.gid}"
                + ("" if who else ", which may keep it from the model"),
                "name a base whose user may enter it",
            )


def _may_enter(who: Identity | None, node: FileNode) -> bool:
    """Whether a user may enter a directory; of one who is not known, whether everybody may."""
    if who is None:
        return bool(node.mode & 0o001)
    if who.uid == 0:
        return True
    if who.uid == node.uid:
        return bool(node.mode & 0o100)
    return bool(node.mode & (0o010 if node.gid in who.groups else 0o001))


def _content(tree: FileTree, path: str) -> bytes | None:
    """Return the content of one of the files that are looked into; None where it is not known."""
    try:
        found = tree.locate(parts_of(path)).found
    except PathBlocked:
        return b""
    return found.content if isinstance(found, FileNode) else b""


def _check_own(
    base: BaseImage, tree: FileTree, own: Sequence[str], ours: frozenset[Path]
) -> Iterator[Finding]:
    """Check that the base has no files beside ours that would be read with them."""
    for directory in own:
        try:
            place = tree.locate(parts_of(directory))
        except PathBlocked:
            continue  # reported already
        if not isinstance(place.found, Directory):
            continue
        first = next((path for path in tree.files_below(place.path) if path not in ours), None)
        if first is not None:
            yield Finding(
                "error",
                "base-covers",
                f"base image {base.reference!r} has files below {directory!r} that the new ones "
                f"do not replace, such as {escape(show(first))!r}: engines would read both",
                "name the base that it was made from",
            )


def _real_paths(files: Sequence[str], places: Mapping[str, TreePlace]) -> frozenset[Path]:
    """Return where our files are in the image."""
    parted = (path.rpartition("/") for path in files)
    return frozenset(
        (*places[directory].path, name.encode("utf-8", "surrogateescape"))
        for directory, _, name in parted
        if directory in places
    )


def _check_removed(
    base: BaseImage, tree: FileTree, places: Iterable[TreePlace]
) -> Iterator[Finding]:
    """Check that no layer of the base removes what lies in layers below it."""
    for place in places:
        above = {place.path[:depth] for depth in range(len(place.path) + 1)}
        gone = sorted(path for path in tree.removed | tree.hidden if path in above)
        if gone:
            yield Finding(
                "error",
                "base-removes",
                f"a layer of base image {base.reference!r} removes {escape(show(gone[0]))!r}, "
                "where the model would lie below it",
                "leave --layer-order out",
            )


def _notes(
    base: BaseImage, moved: Mapping[str, str], directories: Mapping[str, DirectoryAttributes]
) -> Iterator[Finding]:
    for directory, real in moved.items():
        yield Finding(
            "note",
            "base-link",
            f"files of {directory!r} are at {escape(real)!r}, where links of base image "
            f"{base.reference!r} lead to: layers are this base's own",
        )
    for path, kept in directories.items():
        yield Finding(
            "note",
            "base-directory",
            f"{escape(path)!r} keeps mode {kept.mode:04o} and owner {kept.uid}:{kept.gid} of base "
            f"image {base.reference!r}: layers are its own",
        )


def _blocked(base: BaseImage, directory: str, why: str) -> Finding:
    return Finding(
        "error",
        "base-path",
        f"base image {base.reference!r} has no room for {directory!r}: {escape(why)}",
        _ANOTHER,
    )


def _attributes(node: FileNode) -> DirectoryAttributes:
    return DirectoryAttributes(mode=node.mode, uid=node.uid, gid=node.gid, xattrs=node.xattrs)


def _parents(path: str) -> Iterator[str]:
    parts: Path = parts_of(path)
    return (show(parts[:depth]) for depth in range(1, len(parts)))
