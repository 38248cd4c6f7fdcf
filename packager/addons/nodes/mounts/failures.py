"""What can go wrong with mounts."""

from __future__ import annotations

from packager.core.errors import AccessDenied, OutputFailed, Unavailable, UsageError


def not_root(command: str) -> AccessDenied:
    """Return an error: only root may mount file systems."""
    return AccessDenied(
        "only root may mount and unmount file systems here",
        hint=f"run `sudo packager {command}`",
        code="NotRoot",
    )


def kernel_lacks_erofs(name: str) -> Unavailable:
    """Return an error: the kernel does not support the requested mount."""
    return Unavailable(
        f"this kernel has no {name} file system",
        hint=f"load it with `modprobe {name}`; it takes Linux 6.4 or newer, built with EROFS",
        code="KernelLacksErofs",
    )


def mount_failed(what: str, error: OSError) -> OutputFailed:
    """Return an error: the kernel refused a mount. No mounts are left behind."""
    reason = (error.strerror or str(error)).lower()
    return OutputFailed(
        f"{what} cannot be mounted: {reason}",
        hint="the kernel's log (`dmesg`) says more; check the file with `--verify`, "
        "or copy the image again",
        code="MountFailed",
    )


def mount_busy(directory: str, users: tuple[str, ...]) -> OutputFailed:
    """Return an error: processes use a mount that shall be taken away."""
    by = f" by {', '.join(users)}" if users else ""
    return OutputFailed(
        f"{directory!r} is in use{by}",
        hint=f"stop them, then run `packager unmount {directory}` again",
        code="MountBusy",
    )


def not_mounted_here(directory: str, found: str = "") -> UsageError:
    """Return an error: a directory without a mount of ours."""
    return UsageError(
        f"{directory!r} is no mount that packager made" + (f", but {found}" if found else ""),
        hint="`packager mount --list` shows them",
        code="NotMountedHere",
    )


def place_not_free(directory: str, reason: str, hint: str) -> UsageError:
    """Return an error: an image cannot be mounted at a directory as it is."""
    return UsageError(
        f"nothing can be mounted at {directory!r}: {reason}", hint=hint, code="PlaceNotFree"
    )
