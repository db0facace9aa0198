from harness import cudart


def test_a_loaded_library_is_found_by_the_start_of_its_name():
    path = cudart.loaded_library("libc")
    assert path is not None
    assert "/libc.so" in path


def test_a_library_that_is_not_loaded_is_none():
    assert cudart.loaded_library("libnosuchthing") is None


def test_torchs_runtime_has_every_function_the_clock_needs():
    import torch

    if torch.version.cuda is None:
        return
    assert cudart.Runtime() is not None
