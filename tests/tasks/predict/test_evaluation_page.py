"""docs/evaluation.md matches the command."""

import re
from pathlib import Path

from command_options import option_names

from lightbert.commands.evaluate import command

PAGE = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text(encoding="utf-8")
OPTIONS = option_names(command)


def test_every_option_on_the_page_exists():
    for option in sorted(set(re.findall(r"--[a-z][a-z-]+", PAGE))):
        assert option in OPTIONS


def test_the_page_stays_short():
    assert len(PAGE.splitlines()) < 120
