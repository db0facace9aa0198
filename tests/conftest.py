"""GPU tests are skipped, with the reason, where there is no CUDA device."""

import pytest

from harness import driver


def pytest_collection_modifyitems(items):
    if driver.gpu_count():
        return
    skip = pytest.mark.skip(reason="no CUDA device on this machine")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def write(tmp_path):
    """Write a file below a temporary folder and return its path."""

    def make(name: str, text: str):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return make
