"""`make docs`: the pages and the generated reference have no broken links."""

import logging
from pathlib import Path

import pytest

pytest.importorskip("mkdocstrings", reason="the site is built with the extra 'docs'")


def test_the_site_has_no_warnings_and_documents_every_command(tmp_path, monkeypatch, caplog):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    from lightbert.commands import COMMANDS

    root = Path(__file__).parents[1]
    monkeypatch.chdir(root)
    with caplog.at_level(logging.WARNING, "mkdocs"):
        build(load_config(str(root / "mkdocs.yml"), site_dir=str(tmp_path)))
    assert not [record.getMessage() for record in caplog.records if record.name.startswith("mkdocs")]
    page = (tmp_path / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    assert not [verb for verb in COMMANDS if f'id="{verb}"' not in page]
