"""Where builds, measured device facts and past runs are kept."""

from __future__ import annotations

import os
import tempfile
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def root() -> Path:
    """$STEELYARD_CACHE, else ~/.cache/steelyard, else (read-only home) a private folder."""
    wanted = os.environ.get("STEELYARD_CACHE")
    path = Path(wanted) if wanted else Path.home() / ".cache" / "steelyard"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:
        fallback = Path(tempfile.gettempdir()) / f"steelyard-{os.getuid()}"
        fallback.mkdir(mode=0o700, exist_ok=True)
        return fallback
