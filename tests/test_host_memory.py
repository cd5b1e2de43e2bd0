"""Free memory is the machine's, or the container's where that has less."""

import pytest

from swift_grpo_ext.host_memory import free_bytes, resident_bytes

GIB = 2**30


@pytest.fixture
def machine(tmp_path):
    """A machine with 64 GiB available."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1 kB\nMemAvailable:   67108864 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/outer/inner\n")
    return tmp_path


def limited(folder, limit, used, reclaimable, names=("max", "current", "inactive_file")):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"memory.{names[0]}").write_text(f"{limit}\n")
    (folder / f"memory.{names[1]}").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {reclaimable}\n")


def free(machine):
    return free_bytes(machine / "proc", machine / "cgroup")


def test_without_a_container(machine):
    assert free(machine) == 64 * GIB
    limited(machine / "cgroup/outer/inner", "max", 5 * GIB, 0)
    assert free(machine) == 64 * GIB


@pytest.mark.parametrize("place", ["outer/inner", "outer", ""])
def test_a_limit_at_any_height_counts(machine, place):
    limited(machine / "cgroup" / place, 10 * GIB, 7 * GIB, 2 * GIB)
    assert free(machine) == 5 * GIB


def test_cgroups_of_version_1(machine):
    (machine / "proc/self/cgroup").write_text("5:cpu,memory:/docker/abc\n1:name=systemd:/x\n")
    names = ("limit_in_bytes", "usage_in_bytes", "total_inactive_file")
    limited(machine / "cgroup/memory", 4 * GIB, 1 * GIB, 0, names)
    assert free(machine) == 3 * GIB
    (machine / "proc/self/cgroup").write_text("5:memory:/docker/abc\n")
    assert free(machine) == 3 * GIB


def test_over_the_limit_nothing_is_free(machine):
    limited(machine / "cgroup/outer", 10 * GIB, 11 * GIB, 0)
    assert free(machine) == 0


def test_where_nothing_can_be_read_nobody_knows(tmp_path):
    assert free_bytes(tmp_path, tmp_path) is None
    assert resident_bytes(tmp_path) is None


def test_this_process_is_in_memory():
    assert resident_bytes() > 10 * 2**20
