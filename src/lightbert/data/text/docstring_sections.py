"""The sentences of a NumPy-style docstring by the section that they are in."""

import re
from itertools import pairwise

from lightbert.data.text.prose import prose

DESCRIPTION = "description"
"""What is above the first heading."""
SECTIONS = {
    "Parameters": "parameters",
    "Other Parameters": "parameters",
    "Attributes": "attributes",
    "Returns": "returns",
    "Yields": "returns",
    "Raises": "raises",
    "Warns": "raises",
    "Notes": "notes",
    "Examples": "examples",
}
"""Heading -> the kind of its section. Others, such as references, hardly have sentences of their own."""
_FIELDS = {"parameters", "attributes", "returns", "raises"}
"""Sections of definitions: a name or a type, and below it indented text."""
_RULE = re.compile(r"[-=]{3,}\s*")


def sentences_by_section(docstring: str) -> list[tuple[str, str]]:
    """Return the kind of section and the sentence, for each sentence of a docstring with sections; else nothing.

    Headings, and the names and types of parameters, results and exceptions, are left out.
    """
    lines = docstring.splitlines()
    headings = [
        place for place, (line, below) in enumerate(pairwise(lines)) if line[:1].strip() and _RULE.fullmatch(below)
    ]
    if not any(lines[place].strip() in SECTIONS for place in headings):
        return []
    found = [(DESCRIPTION, sentence) for sentence in prose("\n".join(lines[: headings[0]]))]
    for place, end in pairwise([*headings, len(lines)]):
        if kind := SECTIONS.get(lines[place].strip()):
            body = [line for line in lines[place + 2 : end] if kind not in _FIELDS or not line[:1].strip()]
            found += [(kind, sentence) for sentence in prose("\n".join(body))]
    return found
