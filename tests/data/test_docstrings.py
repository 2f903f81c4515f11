"""Docstrings of installed packages, of objects and of their sections."""

import sys
from pathlib import Path

import pytest

from lightbert.data import docstrings
from lightbert.data.docstrings import documented_objects, module_files
from lightbert.data.sentences import prose
from lightbert.errors import InputError

MODULE = '''
"""A module about things that move slowly."""

def move(thing):
    """Move the thing a little further away."""
    def inner():
        """Do the part of the work that nobody sees."""

if True:
    class Thing:
        """A thing that can be moved about."""

        async def stop(self):
            """Stop moving as soon as possible."""

value = """Not documentation, only a long string somewhere."""
'''

NUMPY_STYLE = """
Return the sum of two numbers. This is the second sentence of
the first paragraph.

Parameters
----------
a : int
    The first number that will be added.
b : int, optional
    The second number, see :class:`~numbers.Number` or ``None``.

Examples
--------
>>> add(1, 2)
3 is the result of this example here

The result is **always** a `number` that fits::

    if this is code:
        it will not be taken into the corpus

Use it well and see [the page](http://example.org) for more.

.. note::
    This text belongs to a directive and goes away.

:param c: A field whose description is kept here.
- A bullet that has enough words to stay.
"""


def test_a_module_is_a_document_and_each_class_another():
    assert docstrings.extract(MODULE) == [
        [
            "A module about things that move slowly.",
            "Move the thing a little further away.",
            "Do the part of the work that nobody sees.",
        ],
        ["A thing that can be moved about.", "Stop moving as soon as possible."],
    ]


def test_markup_code_and_tables_are_removed():
    assert prose(NUMPY_STYLE) == [
        "Return the sum of two numbers.",
        "This is the second sentence of the first paragraph.",
        "The first number that will be added.",
        "The second number, see Number or None.",
        "The result is always a number that fits:",
        "Use it well and see the page for more.",
        "A field whose description is kept here.",
        "A bullet that has enough words to stay.",
    ]


def test_source_that_does_not_parse_yields_no_documents():
    assert docstrings.extract("print 'Python 2'") == []


@pytest.fixture
def packages(tmp_path, monkeypatch):
    for name, text in {
        "stdlib/b.py": '"""This is the second module here."""',
        "stdlib/a.py": '"""This is the first module here."""',
        "stdlib/test/c.py": '"""This is a test nobody should read."""',
        "numpy/__init__.py": '"""This is the first module here.\n\nNumbers are stored in long arrays."""',
        "numpy/broken.py": '"""This never ends',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {"numpy": tmp_path / "numpy", "stdlib": tmp_path / "stdlib"}
    monkeypatch.setattr(docstrings, "_packages", lambda: found)
    return tmp_path


def test_packages_are_read_in_order_and_sentences_are_deduplicated(packages):
    assert [text for text, _ in docstrings.documents("docstrings")] == [
        "This is the first module here.",
        "This is the second module here.",
        "Numbers are stored in long arrays.",
    ]


def test_the_last_position_equals_the_size(packages):
    size = docstrings.size("docstrings:stdlib")
    assert [position for _, position in docstrings.documents("docstrings:stdlib")][-1] == size


def test_several_workers_yield_the_same_documents(packages):
    assert list(docstrings.documents("docstrings", workers=2)) == list(docstrings.documents("docstrings"))


def test_a_file_that_is_nested_too_deeply_is_left_out(monkeypatch):
    def parse(_):
        raise MemoryError

    monkeypatch.setattr(docstrings.ast, "parse", parse)
    assert docstrings.extract("nested") == []


def test_an_unknown_package_gets_a_suggestion(packages):
    with pytest.raises(InputError, match="unknown package 'nunpy'; did you mean 'numpy'"):
        docstrings.size("docstrings:nunpy")


def test_installed_packages_have_docstrings():
    files = docstrings._files("docstrings:stdlib,torch")
    assert {"argparse.py", "functional.py"} <= {path.name for path in files}
    assert docstrings.extract(Path(files[0]).read_text()) is not None


def test_packages_are_found_in_all_folders_of_the_import_path(tmp_path, monkeypatch):
    own, base = tmp_path / "own" / "site-packages", tmp_path / "base" / "dist-packages"
    for place, text in ((own / "both", "Of this environment itself."), (base / "both", "Of the one below.")):
        place.mkdir(parents=True)
        (place / "__init__.py").write_text(f'"""{text}"""\n')
    (base / "single.py").write_text('"""A module alone is a package too."""\n')
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "script.py").write_text('"""No installed package."""\n')
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here"), str(own), str(tmp_path / "site-packages"), str(base)])
    assert [text for text, _ in docstrings.documents("docstrings:both,single")] == [
        "Of this environment itself.",
        "A module alone is a package too.",
    ]
    with pytest.raises(InputError, match="unknown package 'script'"):
        list(docstrings.documents("docstrings:script"))


SOURCE = '''"""Tools for the handling of long examples."""

def one():
    """Return the first of all the values."""

class Two:
    """Hold the values of one example."""

    def method(self):
        """Change all of the values at once."""
        def inner():
            """Nobody ever reads these words here."""
'''


def test_every_documented_object_has_its_own_sentences(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "examples"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(package.parent))
    found = {each.name: each.sentences for each in documented_objects("examples")}
    assert found["__init__.py:"] == ("Tools for the handling of long examples.",)
    assert found["__init__.py:one"] == ("Return the first of all the values.",)
    assert found["__init__.py:Two"] == ("Hold the values of one example.",)
    assert found["__init__.py:Two.method"] == ("Change all of the values at once.",)


def test_modules_of_the_standard_library_and_of_packages_are_found():
    assert {path.name for path in module_files("asyncio")} >= {"events.py", "tasks.py"}
    assert [path.name for path in module_files("inspect")] == ["inspect.py"]
    assert "linalg" in str(module_files("numpy.linalg")[0])
    assert module_files("no_such_package_anywhere") == []
