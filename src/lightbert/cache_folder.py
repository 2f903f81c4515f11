"""The user's cache folder: $LIGHTBERT_CACHE, by default ~/.cache/lightbert."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder, which may not exist."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lightbert"
    return Path(os.environ.get("LIGHTBERT_CACHE") or home)
