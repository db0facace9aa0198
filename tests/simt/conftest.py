"""Builds once into one cache folder for all of these tests."""

import importlib.util
import itertools
import os
from pathlib import Path

import pytest

_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def simt_cache(tmp_path_factory):
    if "STEELYARD_CACHE" not in os.environ:
        os.environ["STEELYARD_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    return Path(os.environ["STEELYARD_CACHE"])


@pytest.fixture
def load():
    """Load a Python file that calls load_inline, as a solution is loaded."""

    def load_file(path: Path):
        name = f"simt_test_{next(_numbers)}_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load_file
