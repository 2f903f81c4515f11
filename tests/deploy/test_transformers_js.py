"""transformers.js opens exported models in headless Chromium. Opt-in: `pytest -m browser`, with playwright and npm.

The packages are installed by npm, or found in the folder that the variable LIGHTBERT_NODE_MODULES names. All files come
from a local server: the page has no other network.
"""

import functools
import os
import shutil
import subprocess
import threading
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from tiny_classifiers import tiny_model
from tokenizers import processors
from vocabularies import small_tokenizer

import lightbert
from extras import needs_onnx
from lightbert.deploy.export import export
from lightbert.models import PRESETS, build
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.tokens import Tokens

pytestmark = [needs_onnx, pytest.mark.browser]

TEXTS = ["the film was good", "a bad film"]
PAGE = """<!doctype html><title>lightbert</title><script type="module">
import { pipeline, env } from "/node_modules/@huggingface/transformers/dist/transformers.min.js";
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = "/";
env.useBrowserCache = false;
env.backends.onnx.wasm.wasmPaths = "/node_modules/onnxruntime-web/dist/";
env.backends.onnx.wasm.numThreads = 1;
window.run = async (task, model, texts, options) => {
  const compute = await pipeline(task, model, { subfolder: "", dtype: "fp32", device: "wasm" });
  const found = await compute(texts, options);
  return found.tolist ? found.tolist() : found;
};
window.ready = true;
</script>"""


class Handler(SimpleHTTPRequestHandler):
    extensions_map = MappingProxyType(
        {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm", "": "text/html"}
    )

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def node_modules(request, tmp_path_factory) -> Path:
    if "browser" not in request.config.option.markexpr:
        pytest.skip("needs Chromium: run by `pytest -m browser`")
    if given := os.environ.get("LIGHTBERT_NODE_MODULES"):
        return Path(given)
    if shutil.which("npm") is None:
        pytest.skip("npm not installed")
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--prefix", str(folder), "--ignore-scripts", "@huggingface/transformers@4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"npm can't install @huggingface/transformers: {done.stderr[-200:]}")
    return folder / "node_modules"


@pytest.fixture(scope="module")
def site(node_modules, tmp_path_factory):
    """A folder and the address under which it is served."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "node_modules").symlink_to(node_modules.resolve())
    (folder / "index.html").write_text(PAGE)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def page(site):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright not installed")
    with playwright.sync_playwright() as driver:
        # The system's Chromium, or playwright's own; a sandbox is not available to root.
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        opened = browser.new_page()
        opened.set_default_timeout(120_000)
        opened.on("pageerror", lambda error: print("pageerror:", error))
        opened.goto(site[1])
        opened.wait_for_function("window.ready")
        yield opened
        browser.close()


def run(page, task, name, texts, **options):
    call = "([task, model, texts, options]) => window.run(task, model, texts, options)"
    return page.evaluate(call, [task, name, texts, options])


def with_special_tokens(model):
    """The model, with a tokenizer.json that adds [CLS] and [SEP], as those of trained models do."""
    assert model.tokenizer is not None
    model.tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return model


@pytest.mark.parametrize("int8", [None, "dynamic", "static"])
def test_a_classifier_gives_the_same_probabilities(int8, page, site):
    name = f"topics-{int8}"
    export(with_special_tokens(tiny_model(Classify(("bad", "good")))), site[0] / name, int8=int8)
    expected = [each["probabilities"] for each in lightbert.load(site[0] / name).predict(TEXTS)]
    found = run(page, "text-classification", name, TEXTS, top_k=2)
    for one, other in zip(found, expected, strict=True):
        assert {each["label"]: each["score"] for each in one} == pytest.approx(other, abs=1e-3)


def test_a_tagger_gives_the_same_tags(page, site):
    export(with_special_tokens(tiny_model(Tokens(("O", "B-X", "I-X")))), site[0] / "tags")
    text = "the film was good"
    found = run(page, "token-classification", "tags", text, ignore_labels=[])
    (expected,) = lightbert.load(site[0] / "tags").predict([text])
    # Without [CLS] and [SEP].
    assert [each["entity"] for each in found[1:-1]] == [each["tag"] for each in expected["tags"]]


@pytest.mark.parametrize("preset", ["bert-tiny", "convbert-tiny", "mobilebert-nano"])
def test_an_encoder_gives_the_same_vectors(preset, page, site):
    model = build(replace(PRESETS[preset], vocab=13, depth=1), seed=0).eval()
    model.tokenizer = small_tokenizer()
    export(with_special_tokens(model), site[0] / preset)
    found = run(page, "feature-extraction", preset, TEXTS, pooling="mean")
    expected = lightbert.load(site[0] / preset).encode(TEXTS, pool="mean")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 * np.abs(expected).max())
