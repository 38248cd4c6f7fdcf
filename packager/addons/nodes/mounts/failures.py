"""What can go wrong with mounts."""

from __future__ import annotations

from packager.core.errors import AccessDenied, OutputFailed, Unavailable, UsageError


class NotRoot(AccessDenied):
    """Only root may mount file systems."""

    def __init__(self, command: str) -> None:
        super().__init__(
            "only root may mount and unmount file systems here",
            hint=f"run `sudo packager {command}`",
        )


class KernelLacksErofs(Unavailable):
    """The kernel does not support the requested mount."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"this kernel has no {name} file system",
            hint=f"load it with `modprobe {name}`; it takes Linux 6.4 or newer, built with EROFS",
        )


class MountFailed(OutputFailed):
    """The kernel refused a mount. No mounts are left behind."""

    def __init__(self, what: str, error: OSError) -> None:
        reason = (error.strerror or str(error)).lower()
        super().__init__(
            f"{what} cannot be mounted: {reason}",
            hint="the kernel's log (`dmesg`) says more; check the file with `--verify`, "
            "or copy the image again",
        )


class MountBusy(OutputFailed):
    """Processes use a mount that shall be taken away."""

    def __init__(self, directory: str, users: tuple[str, ...]) -> None:
        by = f" by {', '.join(users)}" if users else ""
        super().__init__(
            f"{directory!r} is in use{by}",
            hint=f"stop them, then run `packager unmount {directory}` again",
        )


class NotMountedHere(UsageError):
    """A directory without a mount of ours."""

    def __init__(self, directory: str, found: str = "") -> None:
        super().__init__(
            f"{directory!r} is no mount that packager made" + (f", but {found}" if found else ""),
            hint="`packager mount --list` shows them",
        )


class PlaceNotFree(UsageError):
    """An image cannot be mounted at a directory as it is."""

    def __init__(self, directory: str, reason: str, hint: str) -> None:
        super().__init__(f"nothing can be mounted at {directory!r}: {reason}", hint=hint)
