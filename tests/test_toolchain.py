"""Finding tools that fit: stubs stand in for other versions of nvcc and g++."""

import os
import stat
import sys

import pytest

from harness import toolchain, toolchain_arch, toolchain_cuda, toolchain_host
from harness.records import Failed, Outcome


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def cuda_folder(root, build, newest_gcc=15):
    """A folder that looks like a CUDA toolkit whose nvcc reports `build`."""
    release = ".".join(build.split(".")[:2])
    script(root / "bin" / "nvcc", f'echo "Cuda compilation tools, release {release}, V{build}"\n')
    script(root / "nvvm" / "bin" / "cicc", "")
    (root / "include" / "crt").mkdir(parents=True)
    (root / "include" / "cuda_runtime.h").write_text("")
    limit = f"#if __GNUC__ > {newest_gcc}\n#error -- unsupported GNU version!\n#endif\n"
    (root / "include" / "crt" / "host_config.h").write_text(limit)
    (root / "lib").mkdir()
    return root


def gcc(path, version):
    return script(
        path, f'case "$1" in --version) echo "g++ {version}";; *) echo {version};; esac\n'
    )


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with nothing on it: no CUDA variables, an empty PATH, no usual folders, no pip."""
    for name in (*toolchain.VARIABLES, "CC"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(toolchain_cuda, "usual_folders", list)
    monkeypatch.setattr(toolchain_cuda, "site_folders", tuple)
    torch = toolchain_host.Torch(str(tmp_path / "torch"), "2.14.1+cu130", (13, 0), "c++20")
    (tmp_path / "torch").mkdir()
    monkeypatch.setattr(toolchain_host, "find_torch", lambda: torch)
    toolchain._find.cache_clear()
    yield tmp_path
    toolchain._find.cache_clear()


def refused(device="cpu"):
    with pytest.raises(Failed) as caught:
        toolchain.find(device)
    failure = caught.value.failure
    assert failure.outcome is Outcome.ENVIRONMENT
    assert "\n" not in failure.message
    return failure.message


def test_this_machine_has_a_toolchain_that_fits():
    tools = toolchain.find("cpu")
    assert os.access(tools.nvcc, os.X_OK)
    assert tools.cuda.release[0] == tools.torch.cuda[0]
    assert tools.arch == "9.0" or "TORCH_CUDA_ARCH_LIST" in os.environ


def test_torch_is_not_imported_to_find_the_tools():
    import subprocess

    code = (
        "import sys; from harness import toolchain; toolchain.find(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_trial_A6_no_cuda_anywhere_is_one_line_that_names_nvcc(machine):
    gcc(machine / "bin" / "c++", "12.2.0")
    message = refused()
    assert "nvcc" in message
    assert "13.0" in message
    assert "pip install" in message


def test_trial_A6_cuda_home_that_does_not_exist(machine, monkeypatch):
    gcc(machine / "bin" / "c++", "12.2.0")
    monkeypatch.setenv("CUDA_HOME", "/nonexistent")
    assert "/nonexistent (CUDA_HOME): has no bin/nvcc" in refused()


def test_trial_A6_a_wrong_cuda_home_beside_a_fitting_folder_is_a_note(machine, monkeypatch):
    gcc(machine / "bin" / "c++", "12.2.0")
    good = cuda_folder(machine / "cuda", "13.0.88")
    monkeypatch.setattr(toolchain_cuda, "usual_folders", lambda: [good])
    monkeypatch.setenv("CUDA_HOME", "/nonexistent")
    tools = toolchain.find("cpu")
    assert tools.cuda.root == str(good)
    assert any("/nonexistent" in note for note in tools.notes)


def test_trial_A7_another_major_release_first_on_path(machine, monkeypatch):
    gcc(machine / "bin" / "c++", "12.2.0")
    old = cuda_folder(machine / "cuda-12.4", "12.4.131")
    monkeypatch.setenv("PATH", f"{old}/bin:{machine}/bin")
    message = refused()
    assert str(old) in message
    assert "12.4.131" in message
    assert "CUDA 13.0" in message


def test_trial_A7_a_fitting_cuda_elsewhere_is_used_and_said(machine, monkeypatch):
    gcc(machine / "bin" / "c++", "12.2.0")
    old = cuda_folder(machine / "cuda-12.4", "12.4.131")
    good = cuda_folder(machine / "cuda-13.0", "13.0.88")
    monkeypatch.setenv("PATH", f"{old}/bin:{machine}/bin")
    monkeypatch.setattr(toolchain_cuda, "usual_folders", lambda: [good])
    tools = toolchain.find("cpu")
    assert tools.cuda.root == str(good)
    assert any("12.4.131" in note for note in tools.notes)


def test_the_same_release_goes_before_the_same_major_release(machine, monkeypatch):
    gcc(machine / "bin" / "c++", "12.2.0")
    near = cuda_folder(machine / "cuda-13.2", "13.2.10")
    same = cuda_folder(machine / "cuda-13.0", "13.0.88")
    monkeypatch.setattr(toolchain_cuda, "usual_folders", lambda: [near, same])
    assert toolchain.find("cpu").cuda.root == str(same)


def test_system_cuda_goes_before_pips_which_is_the_fall_back(machine, monkeypatch):
    gcc(machine / "bin" / "c++", "12.2.0")
    pip = cuda_folder(machine / "site" / "nvidia" / "cu13", "13.0.88")
    monkeypatch.setattr(toolchain_cuda, "site_folders", lambda: (str(pip.parent),))
    assert toolchain.find("cpu").cuda.where == "pip"
    toolchain._find.cache_clear()
    system = cuda_folder(machine / "cuda-13.0", "13.0.88")
    monkeypatch.setattr(toolchain_cuda, "usual_folders", lambda: [system])
    assert toolchain.find("cpu").cuda.root == str(system)


def test_pip_headers_without_nvcc_are_named(machine, monkeypatch):
    gcc(machine / "bin" / "c++", "12.2.0")
    headers = machine / "site" / "nvidia" / "cu13"
    (headers / "include").mkdir(parents=True)
    monkeypatch.setattr(toolchain_cuda, "site_folders", lambda: (str(headers.parent),))
    assert "has no bin/nvcc" in refused()


def test_a_wrapper_script_on_path_leads_to_the_real_folder(machine, monkeypatch):
    gcc(machine / "bin" / "c++", "12.2.0")
    real = cuda_folder(machine / "cuda-13.0", "13.0.88")
    text = f'case "$1" in --dryrun) echo "#$ TOP={real}/bin/..";; *) exec {real}/bin/nvcc;; esac\n'
    script(machine / "bin" / "nvcc", text)
    tools = toolchain.find("cpu")
    assert tools.cuda.root == str(real)
    assert tools.cuda.where == "PATH"


def test_trial_A8_cxx_that_is_too_new_gets_the_remedy(machine, monkeypatch):
    good = cuda_folder(machine / "cuda", "13.0.88")
    monkeypatch.setenv("CUDA_HOME", str(good))
    monkeypatch.setenv("CXX", str(gcc(machine / "new-g++", "99.1.0")))
    message = refused()
    assert "99.1.0" in message
    assert "gcc 15 at most" in message
    assert "CXX=g++-15" in message


def test_trial_A8_an_older_compiler_on_path_is_used_instead(machine, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(cuda_folder(machine / "cuda", "13.0.88")))
    gcc(machine / "bin" / "c++", "99.1.0")
    assert "99.1.0" in refused()
    toolchain._find.cache_clear()
    gcc(machine / "bin" / "g++-13", "13.3.0")
    tools = toolchain.find("cpu")
    assert tools.host_command == ("g++-13",)
    assert any("99.1.0" in note for note in tools.notes)


def test_no_compiler_at_all(machine, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(cuda_folder(machine / "cuda", "13.0.88")))
    assert "no C++ compiler" in refused()


def test_a_torch_without_cuda(machine, monkeypatch):
    cpu_only = toolchain_host.Torch("/torch", "2.14.1+cpu", None, "c++20")
    monkeypatch.setattr(toolchain_host, "find_torch", lambda: cpu_only)
    assert "CPU-only" in refused()


def test_trial_A5_ninja_beside_the_interpreter_though_not_on_path(machine, monkeypatch):
    script(machine / "venv" / "bin" / "ninja", "")
    monkeypatch.setattr(sys, "executable", str(machine / "venv" / "bin" / "python"))
    assert toolchain_host.find_ninja() == str(machine / "venv" / "bin" / "ninja")


def test_trial_A5_builds_need_no_ninja(machine, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(cuda_folder(machine / "cuda", "13.0.88")))
    gcc(machine / "bin" / "c++", "12.2.0")
    monkeypatch.setattr(toolchain_host, "find_ninja", lambda: None)
    assert toolchain.find("cpu").ninja is None


def test_trial_A9_unset_is_the_gpus_own_or_9_0_without_a_word(monkeypatch):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    assert toolchain_arch.choose("cpu") == ("9.0", "")
    monkeypatch.setattr(toolchain_arch, "capability", lambda device: (8, 6))
    assert toolchain_arch.choose("cuda:0") == ("8.6", "")


def test_trial_A9_a_list_that_this_gpu_cannot_run_names_both(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.0")
    monkeypatch.setattr(toolchain_arch, "capability", lambda device: (9, 0))
    with pytest.raises(Failed) as caught:
        toolchain_arch.choose("cuda:0")
    assert caught.value.failure.outcome is Outcome.ENVIRONMENT
    assert "TORCH_CUDA_ARCH_LIST=7.0" in str(caught.value)
    assert "9.0" in str(caught.value)


@pytest.mark.parametrize(
    ("listed", "gpu", "built"),
    [
        ("9.0;10.0;12.0", (9, 0), "9.0"),
        ("8.0 9.0", (9, 0), "9.0"),
        ("8.0", (8, 6), "8.0"),
        ("8.0+PTX", (9, 0), "8.0+PTX"),
        ("9.0a", (9, 0), "9.0a"),
        ("Hopper", (9, 0), "9.0"),
    ],
)
def test_trial_A9_of_a_list_only_what_this_gpu_runs_is_built(monkeypatch, listed, gpu, built):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
    monkeypatch.setattr(toolchain_arch, "capability", lambda device: gpu)
    assert toolchain_arch.choose("cuda:0")[0] == built


def test_trial_A9_changing_the_list_changes_the_toolchain(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    first = toolchain.find("cpu").arch
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "10.0")
    assert (first, toolchain.find("cpu").arch) == ("9.0", "10.0")


@pytest.mark.parametrize(
    ("source", "flag"),
    [
        ("y[i] = x[i];", "-gencode=arch=compute_90,code=sm_90"),
        ('asm("wgmma.mma_async.sync");', "-gencode=arch=compute_90a,code=sm_90a"),
        ('asm("setmaxnreg.dec.sync");', "-gencode=arch=compute_90a,code=sm_90a"),
    ],
)
def test_the_specific_target_only_where_the_source_needs_it(source, flag):
    assert toolchain_arch.flags("9.0", source, ()) == (flag,)


@pytest.mark.parametrize(
    ("flags", "runs"),
    [
        (("-O3",), True),
        (("-arch=sm_80",), True),
        (("-gencode", "arch=compute_80,code=sm_80"), False),
        (("-gencode=arch=compute_80,code=[sm_80,compute_80]",), True),
        (("-gencode=arch=compute_90a,code=sm_90a",), True),
        (("-gencode=arch=compute_120,code=sm_120",), False),
        (("-arch=sm_100",), False),
    ],
)
def test_trial_A9_flags_that_leave_this_gpu_without_a_kernel_image(flags, runs):
    assert (toolchain_arch.mismatch(flags, (9, 0)) is None) is runs
    assert toolchain_arch.mismatch(flags, None) is None


def test_the_users_own_arch_flag_is_left_alone():
    assert toolchain_arch.flags("9.0", "wgmma", ("-arch=sm_90a",)) == ()


def test_a_replaced_tool_changes_the_fingerprint(machine, monkeypatch):
    folder = cuda_folder(machine / "cuda", "13.0.88")
    monkeypatch.setenv("CUDA_HOME", str(folder))
    gcc(machine / "bin" / "c++", "12.2.0")
    before = toolchain.find("cpu").fingerprint
    os.utime(folder / "bin" / "nvcc", ns=(1, 1))
    assert toolchain.find("cpu").fingerprint != before
