"""Free ports, and processes that listen, as /proc tells of them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from packager.cli.run.ports import free_ports, process_at
from packager.core.errors import Unavailable
from tests.support.cases import cases

HEAD = "sl local_address rem_address st queues tr:when retrnsmt uid timeout inode\n"
ROW = "0: 0100007F:{port:04X} 00000000:0000 {state} 0:0 00:0 00000000 0 0 {inode} 1\n"


def proc_with(place: Path, rows: str) -> Path:
    (place / "net").mkdir()
    (place / "net" / "tcp").write_text(HEAD + rows)
    (place / "77" / "fd").mkdir(parents=True)
    (place / "77" / "fd" / "3").symlink_to("socket:[4711]")
    (place / "77" / "comm").write_text("python3\n")
    return place


def test_the_first_free_port_from_8080_on_is_taken() -> None:
    assert list(islice(free_ports(lambda port: port not in (8080, 8082)), 2)) == [8081, 8083]


def test_a_machine_without_a_free_port_is_told() -> None:
    with pytest.raises(Unavailable, match="none of the ports 8080 to 8179 is free"):
        list(free_ports(lambda port: False))


def test_who_listens_at_a_port(tmp_path: Path) -> None:
    proc = proc_with(tmp_path, ROW.format(port=8080, state="0A", inode=4711))

    assert process_at(8080, proc) == "python3 (process 77)"


@cases("nobody_is_named_who_does_not_listen")
def test_nobody_is_named_who_does_not_listen(
    tmp_path: Path, port: int, state: str, inode: int
) -> None:
    proc = proc_with(tmp_path, ROW.format(port=port, state=state, inode=inode))

    assert process_at(8080, proc) == ""


def test_a_machine_without_proc_names_nobody(tmp_path: Path) -> None:
    assert process_at(8080, tmp_path) == ""
