"""A solution of several files: the Python file that is imported, and the folder of its sources.

NAME.py has its other files in NAME_sources beside it; most solutions are one file and have none.
"""

from __future__ import annotations

from pathlib import Path


def folder_of(solution: str) -> str:
    """Where the other files are, with a slash at its end, whether there are any or not."""
    return f"{solution.removesuffix('.py')}_sources/"


def is_own(file: str, solution: str) -> bool:
    """Whether `file` is part of the solution."""
    return file == solution or file.startswith(folder_of(solution))


def python_of(solution: str) -> str:
    """The text of all its Python, damaged characters replaced."""
    folder = Path(folder_of(solution))
    files = [Path(solution), *(sorted(folder.rglob("*.py")) if folder.is_dir() else ())]
    return "\n".join(file.read_bytes().decode("utf-8", "replace") for file in files)
