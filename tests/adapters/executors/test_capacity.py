"""Whether the kernel ended a process of ours, and not one of somebody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.adapters.executors.capacity import kernel_killed

VMSTAT = "nr_free_pages 1\noom_kill 7\n"


def machine(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "counter", "text"),
    [
        pytest.param(
            "0::/user.slice/one\n",
            "sys/fs/cgroup/user.slice/one/memory.events",
            "low 0\nmax 4\noom 1\noom_kill 2\noom_group_kill 0\n",
            id="version 2",
        ),
        pytest.param(
            "5:cpu:/\n4:memory:/one/two\n0::/\n",
            "sys/fs/cgroup/memory/one/two/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            id="version 1",
        ),
    ],
)
def test_a_container_that_met_its_limit_is_not_counted_as_ours(
    tmp_path: Path, groups: str, counter: str, text: str
) -> None:
    root = machine(tmp_path, proc__vmstat=VMSTAT, proc__self__cgroup=groups)
    place = root / counter
    place.parent.mkdir(parents=True)
    place.write_text(text)

    assert kernel_killed(root) == 2


@pytest.mark.parametrize("groups", ["0::/\n", "", "4:memory\n", "nonsense"])
def test_without_a_counter_of_our_own_the_machine_s_is_read(tmp_path: Path, groups: str) -> None:
    root = machine(tmp_path, proc__vmstat=VMSTAT, proc__self__cgroup=groups)

    assert kernel_killed(root) == 7


def test_a_machine_that_counts_nothing_has_killed_nothing(tmp_path: Path) -> None:
    assert kernel_killed(tmp_path) == 0
