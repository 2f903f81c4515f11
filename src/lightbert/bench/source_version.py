"""The commit of the source, for pages of results."""

import subprocess
from pathlib import Path


def commit() -> str:
    """The commit of the source, with a plus sign if files have changed since; "unknown" outside of a repository."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        done = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "."], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip() + ("+" if changed.stdout else "")
