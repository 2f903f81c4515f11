"""The page and the description of the API: self-contained files, checked as text and by what they refer to."""

import re
import subprocess
from shutil import which

import pytest
from servers import running, text_model

from html_elements import Elements
from lightbert.serve.endpoints import PURPOSES
from lightbert.serve.server import PAGE_HEADERS, read_page
from lightbert.tasks.kinds.classify import Classify

PAGES = ("page.html", "docs.html")


def test_pages_load_nothing_from_other_hosts():
    for name in PAGES:
        content = read_page(name)
        assert not re.search(r"https?://|//cdn|@import|url\(", content)
        for _, attributes in Elements(content).elements:
            for source in (attributes.get("src"), attributes.get("href")):
                assert source in (None, "data:,", "docs", "./", "openapi.json")


def test_pages_have_a_language_a_title_and_the_width_of_the_device():
    for name in PAGES:
        elements = Elements(read_page(name))
        assert elements.with_name("html")[0]["lang"] == "en"
        assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in elements.with_name("meta")
        assert elements.with_name("title")
        assert len(elements.with_name("h1")) == 1
        assert "color-scheme: light dark" in read_page(name)


def test_the_page_announces_progress_results_and_errors():
    elements = Elements(read_page("page.html"))
    by_id = {attributes["id"]: attributes for _, attributes in elements.elements if "id" in attributes}
    assert by_id["error"]["role"] == "alert"
    assert by_id["result"]["aria-live"] == "polite"
    assert by_id["progress"]["aria-label"]
    assert elements.with_name("legend")
    assert elements.with_name("main")


def test_the_page_inserts_texts_as_text_and_knows_every_endpoint():
    content = read_page("page.html")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", content)
    titles = re.search(r"const TITLES = \{(.*?)\};", content, re.DOTALL)[1]
    assert set(re.findall(r"(\w+): \"", titles)) == set(PURPOSES)
    shown = re.search(r"const SHOW = \{\n(.*?)^\};", content, re.DOTALL | re.MULTILINE)[1]
    assert set(re.findall(r"^  (\w+)\(", shown, re.MULTILINE)) == set(PURPOSES)


def test_elements_that_the_script_uses_exist():
    content = read_page("page.html")
    for name in set(re.findall(r'at\("([\w-]+)"\)', content)):
        assert f'id="{name}"' in content


@pytest.mark.skipif(which("node") is None, reason="node not installed")
@pytest.mark.parametrize("name", PAGES)
def test_scripts_have_no_syntax_error(name, tmp_path):
    script = re.search(r"<script>\n(.*?)</script>", read_page(name), re.DOTALL)[1]
    (tmp_path / "page.js").write_text(script, encoding="utf-8")
    done = subprocess.run(["node", "--check", tmp_path / "page.js"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_server_shows_the_pages_with_a_policy_that_allows_nothing_else():
    with running(text_model(Classify(("bad", "good")))) as client:
        for path, name in (("/", "page.html"), ("/docs", "docs.html")):
            answer = client.get(path)
            assert answer.text == read_page(name)
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "connect-src 'self'" in PAGE_HEADERS["Content-Security-Policy"]
