"""Where compiled code is kept between runs, so that only the first one has to compile."""

import os
from contextlib import suppress

from lightbert.cache_folder import cache_folder

_FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


def keep_compiled_code() -> None:
    """Let PyTorch and Triton keep their code in the user's cache folder; variables that are set already win.

    PyTorch's default is a temporary folder. Without a writable cache folder it stays the default. Must be called before
    anything is compiled.
    """
    folder = cache_folder() / "compiled"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK | os.X_OK):
        for variable, name in _FOLDERS.items():
            os.environ.setdefault(variable, str(folder / name))
