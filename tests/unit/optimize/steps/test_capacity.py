"""Whether the kernel ended a process of ours, and not one of somebody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.optimize.steps.capacity import kernel_killed, own_gpus, visible_gpus
from tests.support.cases import cases

VMSTAT = "nr_free_pages 1\noom_kill 7\n"


def machine(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@cases("limits")
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
    assert kernel_killed(machine(tmp_path, proc__vmstat=VMSTAT, proc__self__cgroup=groups)) == 7


def test_a_machine_that_counts_nothing_has_killed_nothing(tmp_path: Path) -> None:
    assert kernel_killed(tmp_path) == 0


@cases("gpus")
def test_others_gpus_are_not_ours(there: int, named: str | None, ours: tuple[str, ...]) -> None:
    """A job under Slurm or Ray took GPU 0, which was another job's."""
    environment = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}

    assert own_gpus(there, environment) == ours


@cases("first_gpus")
def test_a_step_sees_the_first_of_our_gpus(count: int, named: str | None, seen: str) -> None:
    environment = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}

    assert visible_gpus(count, environment) == seen
