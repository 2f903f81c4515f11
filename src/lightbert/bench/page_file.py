"""The file of a benchmark's page."""

from pathlib import Path

from lightbert.errors import InputError


def check_page(option: str, page: Path) -> None:
    """Check, before minutes of measurements, that the page can be written."""
    if not page.parent.is_dir():
        raise InputError(f"{option} must be a file in an existing folder, got '{page}'; create '{page.parent}'")
    if page.is_dir():
        raise InputError(f"{option} must be a file, got the folder '{page}'; add a file name, such as '{page}/page.md'")
