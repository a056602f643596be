"""The limits of a container, read from the files of control groups."""

import pytest

from scratchformer.limits import cpu_quota, machine_memory_bytes, memory_limit
from scratchformer.parallel import cores

GIB = 2**30
SYSTEMS = {  # proc/self/cgroup, files below sys/fs/cgroup -> processors, GiB
    "no cgroups": (None, {}, None, None),
    "no limits": ("0::/", {"cpu.max": "max 100000", "memory.max": "max"}, None, None),
    "a container": ("0::/", {"cpu.max": "150000 100000", "memory.max": str(3 * GIB)}, 1.5, 3),
    "a group": ("0::/a/b", {"a/b/cpu.max": "200000 50000", "a/b/memory.max": str(GIB)}, 4, 1),
    "the parent allows less": (
        "0::/a/b",
        {"a/b/cpu.max": "400000 100000", "a/cpu.max": "200000 100000", "a/memory.max": f"{GIB}"},
        2,
        1,
    ),
    "the path outside the container": ("0::/../../system.slice/c", {"cpu.max": "250000 100000"}, 2.5, None),
    "damaged": ("0::/", {"cpu.max": "", "memory.max": "much"}, None, None),
}


@pytest.fixture
def system(tmp_path):
    """system(name) -> the root of its files"""

    def make(name):
        groups, files, *_ = SYSTEMS[name]
        if groups is not None:
            files = {"../../../proc/self/cgroup": groups} | files
        for file, text in files.items():
            path = tmp_path.joinpath("sys/fs/cgroup", file).resolve()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        return tmp_path

    return make


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_smallest_limit_holds(system, name, monkeypatch):
    monkeypatch.setattr(cores, "core_numbers", lambda: [0, 1, 2, 3, 4, 5])
    root, (*_, processors, gib) = system(name), SYSTEMS[name]
    assert cpu_quota(root) == processors
    assert memory_limit(root) == (None if gib is None else gib * GIB)
    assert cores.available_cores(root) == (6 if processors is None else int(processors))
    monkeypatch.setattr("os.sysconf", lambda name: 2**16)
    assert machine_memory_bytes(root) == (4 if gib is None else gib) * GIB


@pytest.mark.parametrize("affinity, quota, expected", [([0, 1], 4.0, 2), ([0, 1, 2], 0.5, 1), ([], 1.0, 1)])
def test_there_is_at_least_one_core_and_no_more_than_the_process_may_run_on(monkeypatch, affinity, quota, expected):
    monkeypatch.setattr(cores, "core_numbers", lambda: affinity)
    monkeypatch.setattr(cores.limits, "cpu_quota", lambda root: quota)
    assert cores.available_cores() == expected
