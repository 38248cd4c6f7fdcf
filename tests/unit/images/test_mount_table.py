"""The kernel's table of mounts."""

from __future__ import annotations

from pathlib import Path

from packager.images.mounts.table import MountedAt, read_mounts

TABLE = r"""
22 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw
27 22 0:44 / /srv/a\040b\011c ro,nosuid,nodev - overlay packager ro,lowerdir=/proc/self/fd/5
28 22 0:45 / /srv/- ro,relatime - tmpfs my\134disk rw
not a line of it
"""


def test_names_are_as_they_are_and_optional_fields_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(TABLE)

    assert read_mounts(tmp_path / "mountinfo") == (
        MountedAt(directory="/", kind="ext4", source="/dev/vda", device=(254, 0)),
        MountedAt(directory="/srv/a b\tc", kind="overlay", source="packager", device=(0, 44)),
        MountedAt(directory="/srv/-", kind="tmpfs", source="my\\disk", device=(0, 45)),
    )
