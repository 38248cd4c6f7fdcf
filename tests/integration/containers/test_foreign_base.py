"""The base for Arm: what is done in place of maintainer scripts, and of whose platform it is."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from packager.core.image import Platform
from packager.images.bases.embedded import find_built
from tests.conftest import need
from tests.support.workers import SERVING, load

builder = load(SERVING / "vllm-cpu/build-foreign")
AARCH64 = 183  # e_machine of ELF: EM_AARCH64


def package(place: Path, **fields: str) -> Path:
    """Make a Debian package with a program, a configuration file and a script."""
    need("dpkg-deb")
    tree = place / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "bin").mkdir()
    (tree / "etc").mkdir()
    (tree / "bin/tool").write_text("#!/bin/sh\n")
    (tree / "etc/tool.conf").write_text("a=1\n")
    control = {"Package": "tool", "Version": "1.2-3", "Architecture": "arm64", **fields}
    control |= {"Maintainer": "A <a@example.com>", "Description": "a tool\n of two lines"}
    text = "".join(f"{name}: {value}\n" for name, value in control.items())
    (tree / "DEBIAN/control").write_text(text)
    (tree / "DEBIAN/conffiles").write_text("/etc/tool.conf\n")
    (tree / "DEBIAN/postinst").write_text("#!/bin/sh\nexit 7\n")
    (tree / "DEBIAN/postinst").chmod(0o755)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, place / "tool.deb"], check=True)
    return place / "tool.deb"


@pytest.mark.parametrize(("fields", "name"), [({}, "tool"), ({"Multi-Arch": "same"}, "tool:arm64")])
def test_a_package_is_unpacked_listed_and_not_run(
    tmp_path: Path, fields: dict[str, str], name: str
) -> None:
    root, info = tmp_path / "root", tmp_path / "root/var/lib/dpkg/info"
    (root / "usr/bin").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    info.mkdir(parents=True)

    entry = builder.unpack(package(tmp_path, **fields), root, info)
    (info.parent / "status").write_text(f"{entry}\n")

    assert (root / "bin").is_symlink()
    assert (root / "usr/bin/tool").exists()
    assert (info / f"{name}.postinst").stat().st_mode & 0o111
    assert "/etc/tool.conf" in (info / f"{name}.list").read_text().splitlines()
    assert builder.unpacked[name] == "1.2-3"
    query = [
        "dpkg-query",
        f"--admindir={info.parent}",
        "--show",
        "--showformat=${Status}|${Version}",
    ]
    told = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    assert told == "install ok unpacked|1.2-3"


def test_users_are_those_of_debian_and_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned: dict[str, tuple[int, int]] = {}
    monkeypatch.setattr(os, "chown", lambda path, *ids, **_: owned.update({Path(path).name: ids}))
    masters = tmp_path / "usr/share/base-passwd"
    masters.mkdir(parents=True)
    (tmp_path / "etc/skel").mkdir(parents=True)
    (tmp_path / "etc/skel/.profile").touch()
    (tmp_path / "home").mkdir()
    (masters / "passwd.master").write_text("root:*:0:0:root:/root:/bin/bash\n")
    (masters / "group.master").write_text("root:*:0:\nshadow:*:42:\n")

    builder.add_users(tmp_path)

    assert (tmp_path / "etc/passwd").read_text().splitlines() == [
        "root:x:0:0:root:/root:/bin/bash",
        "packager:x:10001:10001::/home/packager:/usr/sbin/nologin",
    ]
    assert "root:*::0:99999:7:::" in (tmp_path / "etc/shadow").read_text()
    assert owned[".profile"] == (10001, 10001)
    assert owned["shadow"] == (0, 42)


def test_nothing_of_this_machine_is_left_in_the_tree(tmp_path: Path) -> None:
    """What is emptied later would be this machine's otherwise."""
    kept = tmp_path / "of-the-machine"
    kept.mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "proc").symlink_to(kept)
    (root / "dev").mkdir()

    builder.unmount(root)

    assert not (root / "proc").is_symlink()
    assert (root / "proc").is_dir()
    assert kept.exists()


def test_wheels_are_those_that_debians_libc_can_load() -> None:
    tags = builder.pip_environment()["PIP_PLATFORM"].split()

    assert {"manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"} <= {*tags}
    assert "manylinux_2_37_aarch64" not in tags
    assert all(tag.endswith("_aarch64") for tag in tags)


def test_every_program_and_library_of_a_built_base_is_of_its_platform() -> None:
    built = find_built("vllm-cpu", Platform("linux", "arm64"))
    if built is None:
        pytest.skip("the base for linux/arm64 is not built here")
    found: dict[int, int] = {}
    for blob in (built / "blobs/sha256").iterdir():
        if not tarfile.is_tarfile(blob):
            continue
        with tarfile.open(blob) as layer:
            for member in layer:
                file = layer.extractfile(member) if member.isreg() else None
                start = file.read(20) if file else b""
                if start[:4] == b"\x7fELF":
                    machine = int.from_bytes(start[18:20], "little")
                    found[machine] = found.get(machine, 0) + 1

    assert set(found) == {AARCH64}
    assert found[AARCH64] > 500
