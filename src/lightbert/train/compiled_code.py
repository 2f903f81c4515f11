"""Where compiled code is kept between runs, so that only the first one has to compile."""

import os
from contextlib import suppress

from lightbert.files import cache_folder

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
    # After the variables, one of which PyTorch's compiler sets itself when it is imported.
    fix_assembler()


def fix_assembler() -> None:
    """Choose the assembler of Triton's kernels for good: PyTorch's own, if it has one.

    PyTorch sets it when it compiles a first kernel, and a key of Triton's cache contains the version that it had when
    the first key was computed. Whether that was before or after depends on what is in the caches, so that a second run
    would not find the kernels of the first.
    """
    if "TRITON_PTXAS_PATH" not in os.environ:
        with suppress(ImportError):
            from torch._inductor.runtime.compile_tasks import _set_triton_ptxas_path

            _set_triton_ptxas_path()
