from lightbert.data.text.docstrings import module_files
from lightbert.data.text.documented_objects import documented_objects

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
