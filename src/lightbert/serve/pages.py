"""The pages of the server: files of this package that load nothing from other hosts."""

from importlib.resources import files

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""The page runs only its own scripts and talks only to its own server."""


def read_page(name: str) -> str:
    """The content of a page."""
    return files("lightbert.serve").joinpath(name).read_text(encoding="utf-8")
