"""Pages of results, and the errors of the programs that write them."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lightbert.errors import InputError


def check_page(option: str, page: Path) -> None:
    """Check, before minutes of measurements, that the page can be written."""
    if not page.parent.is_dir():
        raise InputError(f"{option} must be a file in an existing folder, got '{page}'; create '{page.parent}'")
    if page.is_dir():
        raise InputError(f"{option} must be a file, got the folder '{page}'; add a file name, such as '{page}/page.md'")


def commit() -> str:
    """The commit of the source, with a plus sign if files have changed since; "unknown" outside of a repository."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        done = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "src", "benchmarks"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip() + ("+" if changed.stdout else "")


def versions(*packages: str) -> dict[str, str]:
    """The versions of packages; "" for those that are not installed."""
    installed = dict.fromkeys(packages, "")
    for package in packages:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed


def run_main(main: Callable[[], None]) -> None:
    """Run a program; bad input is one sentence."""
    try:
        main()
    except InputError as error:
        sys.exit(f"lightbert: {error}")
