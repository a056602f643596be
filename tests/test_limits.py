"""The limits of a container, read from the files of control groups of both versions."""

import pytest

from scratchformer.limits import cpu_quota, memory_limit
from scratchformer.nn.sizes import machine_memory_bytes
from scratchformer.parallel import cores

GIB = 2**30
NO_LIMIT = 9223372036854771712  # of version 1, in bytes

V1_CPU = {"cpu/cpu.cfs_quota_us": "350000", "cpu/cpu.cfs_period_us": "100000"}
SYSTEMS = {  # proc/self/cgroup, files below sys/fs/cgroup -> processors, GiB
    "no cgroups": (None, {}, None, None),
    "v2, no limits": ("0::/", {"cpu.max": "max 100000", "memory.max": "max"}, None, None),
    "v2, a container": ("0::/", {"cpu.max": "150000 100000", "memory.max": str(3 * GIB)}, 1.5, 3),
    "v2, a group": ("0::/a/b", {"a/b/cpu.max": "200000 50000", "a/b/memory.max": str(GIB)}, 4, 1),
    "v2, the parent allows less": (
        "0::/a/b",
        {
            "a/b/cpu.max": "400000 100000",
            "a/cpu.max": "200000 100000",
            "a/b/memory.max": "max",
            "a/memory.max": f"{GIB}",
        },
        2,
        1,
    ),
    "v2, the path outside the container": ("0::/../../system.slice/c", {"cpu.max": "250000 100000"}, 2.5, None),
    "v1, a group within a container": (
        "3:cpu:/kubepods/pod/12ab/init",
        {f"cpu/init/{name.split('/')[1]}": text for name, text in V1_CPU.items()},
        3.5,
        None,
    ),
    "odd lines": ("\n0::/caf\udce9\nx\n0::/", {"cpu.max": "150000 100000"}, 1.5, None),
    "v1, a container": (
        "4:memory:/docker/12ab\n3:cpu,cpuacct:/docker/12ab\n1:name=systemd:/docker/12ab",
        V1_CPU | {"memory/memory.limit_in_bytes": str(2 * GIB)},
        3.5,
        2,
    ),
    "v1, a group": (
        "4:memory:/a/b\n2:cpuacct:/\n1:cpu:/a\n0::/",
        {f"cpu/a/{name.split('/')[1]}": text for name, text in V1_CPU.items()}
        | {"memory/memory.limit_in_bytes": str(NO_LIMIT), "memory/a/memory.limit_in_bytes": str(GIB)},
        3.5,
        1,
    ),
    "v1, a directory of both names": (
        "3:cpu,cpuacct:/",
        {f"cpu,cpuacct/{name.split('/')[1]}": text for name, text in V1_CPU.items()},
        3.5,
        None,
    ),
    "v1, no limits": (
        "4:memory:/\n3:cpu:/",
        V1_CPU | {"cpu/cpu.cfs_quota_us": "-1", "memory/memory.limit_in_bytes": str(NO_LIMIT)},
        None,
        None,
    ),
    "both, quota in v1": ("1:cpu:/\n0::/x", V1_CPU | {"unified/x/memory.max": str(GIB)}, 3.5, 1),
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
            path.write_text(f"{text}\n", errors="surrogateescape")
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
