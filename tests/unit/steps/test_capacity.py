"""Whether the kernel ended a process of ours, and not one of somebody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.steps.capacity import kernel_killed, own_gpus, visible_gpus

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


@pytest.mark.parametrize(
    ("there", "named", "ours"),
    [
        pytest.param(2, None, ("0", "1"), id="all of the machine's"),
        pytest.param(0, None, (), id="no GPU"),
        pytest.param(8, "3,5", ("3", "5"), id="those that a scheduler gave"),
        pytest.param(8, " 3 , 5 ", ("3", "5"), id="with spaces"),
        pytest.param(8, "", (), id="none given"),
        pytest.param(8, "-1", (), id="none given, as some write it"),
        pytest.param(2, "1,7,0", ("1",), id="CUDA stops at one that is not there"),
        pytest.param(2, "1,1", ("1",), id="or was named before"),
        pytest.param(2, "MIG-1c2,GPU-9f", ("MIG-1c2", "GPU-9f"), id="by name"),
        pytest.param(2, "NoDevFiles", (), id="what a runtime without GPUs sets"),
        pytest.param(0, "0", (), id="named without a driver"),
        pytest.param(0, "GPU-9f", (), id="named by name, without a driver"),
    ],
)
def test_gpus_of_other_jobs_are_not_ours(
    there: int, named: str | None, ours: tuple[str, ...]
) -> None:
    """A job under Slurm or Ray took GPU 0, which was another job's."""
    environment = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}

    assert own_gpus(there, environment) == ours


@pytest.mark.parametrize(
    ("count", "named", "seen"),
    [(0, None, ""), (2, None, "0,1"), (1, "3,5", "3"), (2, "3,5", "3,5"), (0, "3,5", "")],
)
def test_a_step_sees_the_first_of_our_gpus(count: int, named: str | None, seen: str) -> None:
    environment = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}

    assert visible_gpus(count, environment) == seen
