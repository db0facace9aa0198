"""All builds of a run, each in its own process; real compiles of one small kernel."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness import build, build_cache, build_ledger, build_resources, cache, toolchain
from harness.records import Build, Failed, Failure, Outcome

ROOT = Path(__file__).parent.parent
SOLUTION = '''
from torch.utils.cpp_extension import load_inline
CUDA = r"""
__global__ void fill_kernel(int* x) { x[threadIdx.x] = VALUE; }
"""
load_inline(name="fill", cpp_sources="", cuda_sources=CUDA, no_implicit_headers=True,
            is_python_module=False)
'''


@pytest.fixture(autouse=True)
def place(tmp_path_factory, monkeypatch):
    """A cache of its own, and no CPU execution beside nvcc: that is tested with simt."""
    path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("STEELYARD_CACHE", str(path))
    monkeypatch.setattr(build, "modes", lambda device: ("cuda",))
    cache.root.cache_clear()
    yield path
    cache.root.cache_clear()


def build_all(*paths, **options):
    events = []
    results = build.build_all([str(p) for p in paths], "cpu", events.append, **options)
    return [results[str(p)] for p in paths], events


def test_one_record_each_with_its_kernels(write):
    good = write("a/op.py", SOLUTION.replace("VALUE", "1"))
    bad = write("b/op.py", SOLUTION.replace("VALUE", "nowhere"))
    (built, failed), events = build_all(good, bad)
    assert isinstance(built, Build)
    assert [k.kernel for k in built.kernels] == ["fill_kernel"]
    assert built.solution == str(good)
    assert isinstance(failed, Failure)
    assert failed.outcome is Outcome.DOES_NOT_BUILD
    assert f"{bad}:4: " in failed.message
    assert Path(failed.log).exists()
    assert [e.solution for e in events if e.done].count(str(good)) == 1
    assert [e.solution for e in events if e.done].count(str(bad)) == 1


def test_trial_A17_unchanged_costs_no_process_and_under_a_second(write, monkeypatch):
    path = write("op.py", SOLUTION.replace("VALUE", "1"))
    (first,), _ = build_all(path)
    monkeypatch.setattr(build, "_run_all", lambda *a: pytest.fail("a process was started"))
    started = time.monotonic()
    (second,), events = build_all(path)
    assert time.monotonic() - started < 1.0
    assert not first.cached
    assert second.cached
    assert second.kernels == first.kernels
    assert events[-1].text == "cached"


@pytest.mark.slow
def test_trial_A4_a_failure_is_built_again(write, tmp_path):
    text = SOLUTION.replace("VALUE", "LATE").replace('r"""', 'r"""\n#include "late.h"')
    path = write(
        "op.py", text.replace("no_implicit", f"extra_include_paths=['{tmp_path}'], no_implicit")
    )
    (failed,), _ = build_all(path)
    assert isinstance(failed, Failure)
    write("late.h", "#define LATE 3\n")
    (built,), _ = build_all(path)
    assert isinstance(built, Build), built


@pytest.mark.slow
def test_an_edited_solution_and_an_edited_sidecar_build_again(write):
    write("beside.py", "VALUE = 1\n")
    text = "import beside\n" + SOLUTION.replace(
        'VALUE; }\n"""', 'VALUE; }\n""".replace("VALUE", str(beside.VALUE))'
    )
    path = write("op.py", text)
    assert [build_all(path)[0][0].cached for _ in range(2)] == [False, True]
    write("beside.py", "VALUE = 2\n")
    assert [build_all(path)[0][0].cached for _ in range(2)] == [False, True]


@pytest.mark.slow
def test_trial_A9_another_arch_list_builds_again(write, monkeypatch):
    path = write("op.py", SOLUTION.replace("VALUE", "1"))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    (first,), _ = build_all(path)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    (second,), _ = build_all(path)
    assert not second.cached
    assert [k.arch for k in (*first.kernels, *second.kernels)] == ["sm_90", "sm_80"]


def test_trial_A5_no_ninja_and_a_bare_path(write, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    (built,), _ = build_all(write("op.py", SOLUTION.replace("VALUE", "1")))
    assert isinstance(built, Build), built


def test_trial_A6_environment_trouble_comes_before_any_solution(write, monkeypatch):
    def nothing(device):
        raise Failed(Outcome.ENVIRONMENT, "toolchain", "no nvcc")

    monkeypatch.setattr(toolchain, "find", nothing)
    with pytest.raises(Failed, match="no nvcc"):
        build_all(write("a.py", SOLUTION), write("b.py", SOLUTION))


def test_a_solution_without_load_inline_needs_no_process(write, monkeypatch):
    monkeypatch.setattr(build, "_run_all", lambda *a: pytest.fail("a process was started"))
    (built,), events = build_all(write("plain.py", "import torch\nclass ModelNew: pass\n"))
    assert built == Build(str(built.solution), 0.0, cached=False)
    assert [e.done for e in events] == [True]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("import sys; sys.exit(3)", "exits while it is imported"),
        ("raise ValueError('odd')", "ValueError: odd"),
        ("import not_installed_here", "No module named 'not_installed_here'"),
    ],
)
def test_trial_E11_what_stops_the_import_is_named_with_its_line(write, line, part):
    path = write("op.py", f"# load_inline\n{line}\n")
    (failed,), _ = build_all(path)
    assert failed.outcome is Outcome.DOES_NOT_LOAD
    assert failed.message.startswith(f"{path}:2: ")
    assert part in failed.message


def test_trial_E11_the_main_block_is_not_run_and_prints_disturb_nothing(write, capfd):
    text = "print('{\"build\": 1}')\n" + SOLUTION.replace("VALUE", "1")
    path = write("op.py", text + "\nif __name__ == '__main__':\n    raise SystemExit(9)\n")
    (built,), _ = build_all(path)
    assert isinstance(built, Build)
    assert built.solution == str(path)
    assert capfd.readouterr().out == ""


def test_a_crash_while_importing_is_one_row(write):
    path = write("op.py", "import ctypes  # load_inline\nctypes.string_at(0)\n")
    (failed,), _ = build_all(path)
    assert failed.outcome is Outcome.CRASHED


@pytest.mark.slow
def test_a_build_that_takes_too_long_is_ended_with_all_it_started(write, tmp_path):
    pid_file = tmp_path / "pid"
    path = write(
        "op.py",
        "import subprocess, time  # load_inline\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(300)\n",
    )
    started = time.monotonic()
    (failed,), events = build_all(path, time_limit_s=8.0)
    assert failed.outcome is Outcome.TIMED_OUT
    assert time.monotonic() - started < 20
    assert not _alive(int(pid_file.read_text()))
    times = [e.elapsed_s for e in events]
    assert max(b - a for a, b in itertools.pairwise(times)) < 2.0


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_killed_build_leaves_nothing_in_the_way(write, place):
    path = write("op.py", SOLUTION.replace("VALUE", "1"))
    command = [sys.executable, "-c", "import sys; from harness import build; "
               "build.build_all([sys.argv[1]], 'cuda:0', print)", str(path)]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not list((place / "build").glob("tmp/*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    started = time.monotonic()
    (built,), _ = build_all(path)
    assert isinstance(built, Build), built
    assert time.monotonic() - started < 60


def test_two_runs_at_once_do_not_disturb_each_other(write):
    path = write("op.py", SOLUTION.replace("VALUE", "1"))
    results = []
    threads = [threading.Thread(target=lambda: results.append(build_all(path)[0][0])) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(r) for r in results] == [Build, Build], results
    libraries = {build_cache.lookup(key).library for key in _keys()}
    assert all(Path(library).exists() for library in libraries)


def _keys():
    return [p.stem for p in build_cache.folder().glob("*.json")]


def test_trial_A11_a_home_that_cannot_be_written(write, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "file" / "x"))
    cache.root.cache_clear()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert len([n for n in build.notices("cpu") if "STEELYARD_CACHE" in n]) == 1


@pytest.mark.slow
def test_a_broken_entry_is_built_again(write):
    path = write("op.py", SOLUTION.replace("VALUE", "1"))
    build_all(path)
    for key in _keys():
        os.remove(build_cache.lookup(key).library)
    (again,), _ = build_all(path)
    assert isinstance(again, Build)
    assert not again.cached


def test_slots_are_bounded_by_cores_and_memory(monkeypatch):
    monkeypatch.setattr(build, "_cores", lambda: 16)
    monkeypatch.setattr(build, "_available_memory", lambda: 6e9)
    monkeypatch.setattr(build, "_group_memory", lambda: float("inf"))
    assert build.slots() == 2
    monkeypatch.setattr(build, "_available_memory", lambda: 1e9)
    assert build.slots() == 1
    monkeypatch.setattr(build, "_available_memory", lambda: 1e12)
    assert build.slots() == 16


PTXAS = """
ptxas info    : 0 bytes gmem, 24 bytes cmem[4]
ptxas info    : Compiling entry function '_Z4bothIfLi4EEvPT_' for 'sm_90a'
ptxas info    : Function properties for helper
    8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for _Z4bothIfLi4EEvPT_
    40 bytes stack frame, 36 bytes spill stores, 48 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 49152 bytes smem
ptxas info    : Compiling entry function '_ZN12_GLOBAL__N_15plainEPf' for 'sm_90a'
ptxas info    : Function properties for _ZN12_GLOBAL__N_15plainEPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""


def test_resources_of_each_kernel_by_its_readable_name():
    both, plain = build_resources.parse(PTXAS)
    assert (both.kernel, both.arch) == ("both<float, 4>", "sm_90a")
    assert (both.registers, both.shared_bytes, both.local_bytes) == (255, 49152, 40)
    assert (both.spill_store_bytes, both.spill_load_bytes) == (36, 48)
    assert both.spills
    assert plain.kernel == "plain"
    assert not plain.spills


def test_a_ledger_entry_that_is_damaged_is_no_hit(write):
    path = str(write("op.py", SOLUTION.replace("VALUE", "1")))
    build_all(path)
    tools = toolchain.find("cpu")
    assert build_ledger.recall(path, "cpu", tools) is not None
    for record in (build_cache.folder() / "solutions").glob("*.json"):
        record.write_text(json.dumps({})[:-1])
    assert build_ledger.recall(path, "cpu", tools) is None
