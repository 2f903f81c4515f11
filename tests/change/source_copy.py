"""A copy of the source in which a test takes the steps of CONTRIBUTING.md, and runs commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import lightbert

_SOURCE = Path(lightbert.__file__).parent


class SourceCopy:
    """A copy of the package in a folder."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "src" / "lightbert"
        shutil.copytree(_SOURCE, self.package, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))

    def insert(self, file: str, before: str, text: str) -> None:
        """Insert a text before another one, which the file must have once."""
        path = self.package / file
        content = path.read_text()
        assert content.count(before) == 1, before
        path.write_text(content.replace(before, text + before))

    def changed(self) -> set[str]:
        """The files that differ from those of the source."""
        before, after = (
            {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.py")}
            for folder in (_SOURCE, self.package)
        )
        return {name for name in after if after[name] != before.get(name)}

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program, which must succeed."""
        environment = {"PYTHONPATH": str(self.package.parent), "PATH": "", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", program, *map(os.fspath, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
        return done
