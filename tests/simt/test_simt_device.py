"""install(): Python's view of the device; limits of speed and of the modelled device."""


def test_python_sees_a_cuda_device(device):
    assert device["is_cuda"]
    assert device["available"]
    assert device["capability"] == [9, 0]
    assert device["graph"] == "CUDA graph"


def test_torch_does_not_warn_of_a_missing_device(device):
    assert "No CUDA runtime" not in device["stderr"]


def test_kernels_run_on_the_tensors(device):
    assert device["back"]


def test_a_million_threads_with_a_barrier(device):
    assert device["million_threads_s"] < 5


def test_lean_build_is_cheap(device):
    """Processor time: the limit of 5 s is for two idle cores."""
    assert device["build_cpu_s"] < 6


def test_plain_spin_ends_on_its_line(device):
    assert device["spin"]["kind"] == "spin"
    assert device["spin"]["line"] > 0
    assert device["spin"]["seconds"] < 10


def test_wild_access_and_stack_overflow_become_faults(device):
    assert device["wild"]["kind"] == "out of bounds"
    assert device["wild"]["line"] > 0
    assert "stack overflowed" in device["overflow"]["message"]


def test_grid_barrier_of_a_cooperative_launch(device):
    assert device["grid"] == 64


def test_kernels_launched_through_pointers_to_void(device):
    assert device["pointers"] == [0, True]


def test_arguments_of_a_launch_in_braces(device):
    assert device["braced"] == [0, 60 * 3 + 4]


def test_dynamic_shared_memory_limits(device):
    invalid_configuration = 9
    assert device["errors"][:3] == [0, invalid_configuration, 0]
    assert device["errors"][3] != 0


def test_needs_gpu_is_raised_from_load_inline(device):
    assert device["construct"] == "inline PTX"
