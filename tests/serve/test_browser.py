"""The page in headless Chromium: opened, typed into, read back. Opt-in: `pytest -m browser`, with playwright."""

import shutil

import pytest
from servers import deep_text_model, running, text_model

from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens

pytestmark = pytest.mark.browser

SIZES = {"phone": {"width": 360, "height": 740}, "desktop": {"width": 1280, "height": 900}}


@pytest.fixture(scope="module")
def chromium(request):
    if "browser" not in request.config.option.markexpr:
        pytest.skip("needs Chromium: run by `pytest -m browser`")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright not installed")
    with playwright.sync_playwright() as driver:
        # The system's Chromium, or playwright's own; a sandbox is not available to root.
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=SIZES)
def page(request, chromium):
    """A page of each size; an error of its script fails the test."""
    opened = chromium.new_page(viewport=SIZES[request.param])
    problems = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    yield opened
    opened.close()
    assert not problems


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((Classify(("bad", "good")),), "Prediction:"),
        ((Tokens(("O", "B-X", "I-X")),), "tagged part"),
        ((Spans("span", stride=4, max_query=4),), "nswer"),
        ((None, "rtd"), "Words that look replaced"),
        ((None, "mlm"), "Candidates for mask 1"),
        ((None,), "Nearest to: The train was late again."),
    ],
    ids=["classify", "tokens", "spans", "rtd", "mlm", "embed"],
)
def test_the_example_is_shown_and_another_text_can_be_typed(page, arguments, expected):
    with running(text_model(*arguments)) as client:
        page.goto(str(client.base_url))
        page.wait_for_selector("#result h2")
        assert expected in page.inner_text("#result")
        width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert width <= 0, "the page scrolls sideways"
        field = page.locator("textarea").first
        field.fill("good [MASK] film <b>x</b>\nbad film")
        field.press("Control+Enter")
        page.locator("#progress").wait_for(state="hidden")
        page.wait_for_selector("#result h2")
        assert page.locator("#result b").count() == 0, "a text was inserted as HTML"


def test_a_wrong_input_gets_a_sentence(page):
    with running(text_model(None, "mlm")) as client:
        page.goto(str(client.base_url))
        page.wait_for_selector("#result h2")
        page.locator("textarea").fill("no mask here")
        page.get_by_role("button", name="Run").click()
        page.locator("#error", has_text="must contain [MASK]").wait_for()
        page.locator("textarea").fill(" ")
        page.get_by_role("button", name="Run").click()
        page.locator("#error", has_text="is empty").wait_for()


def test_the_maps_and_kernels_of_a_chosen_layer_are_drawn(page):
    with running(deep_text_model(3)) as client:
        page.goto(str(client.base_url))
        page.wait_for_selector("#result h2")
        page.get_by_text("Attention maps and kernels of a layer").click()
        page.wait_for_selector("#maps .kernels")
        first = page.evaluate("document.querySelector('#maps .map canvas').toDataURL()")
        assert page.locator("#layer option").count() == 3
        page.select_option("#layer", "3")
        page.wait_for_selector('#maps[aria-busy="false"]')
        second = page.evaluate("document.querySelector('#maps .map canvas').toDataURL()")
        assert second != first
        page.get_by_role("radio", name="head 1").first.check()
        assert page.evaluate("document.querySelector('#maps .map canvas').toDataURL()") != second
        page.locator("#maps .map canvas").hover()
        assert "→" in page.inner_text("#maps")
        width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert width <= 0, "the page scrolls sideways"
        page.locator("textarea").first.fill("bad film")
        page.get_by_role("button", name="Run").click()
        page.wait_for_selector("#maps .kernels tbody tr:nth-child(4):last-child")


@pytest.mark.parametrize("words", [3, 31, 61])
def test_every_token_is_next_to_its_row_and_its_column(page, words):
    with running(deep_text_model(1, positions=64)) as client:
        page.goto(str(client.base_url))
        page.wait_for_selector("#result h2")
        page.locator("textarea").first.fill("good film " * (words // 2) + "bad")
        page.get_by_role("button", name="Run").click()
        page.locator("#progress").wait_for(state="hidden")
        page.get_by_text("Attention maps and kernels of a layer").click()
        page.wait_for_selector("#maps .map canvas")
        map_ = page.locator("#maps .map canvas").bounding_box()
        for labels, start, size in ((".down", "y", "height"), (".along", "x", "width")):
            boxes = [label.bounding_box() for label in page.locator(f"#maps .map {labels} span").all()]
            assert len(boxes) == words + 2
            cell = map_[size] / len(boxes)
            for place, box in enumerate(boxes):
                middle = box[start] + box[size] / 2
                assert middle == pytest.approx(map_[start] + (place + 0.5) * cell, abs=cell / 2)
