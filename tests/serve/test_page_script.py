"""What the script of the page shows, run in node against a server; `test_browser.py` does the same in Chromium."""

import json
import re
import subprocess
from pathlib import Path
from shutil import which

import numpy as np
import pytest
import torch
from servers import running, text_model

import lightbert
from extras import needs_onnx
from lightbert.deploy.export import export
from lightbert.serve.server import read_page
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens

pytestmark = [pytest.mark.skipif(which("node") is None, reason="node not installed")]


@pytest.fixture
def show(tmp_path):
    """A function that opens the page of a model, types texts, and returns what is shown: first for the example.

    sent: what the page sends instead of the texts that are typed.
    """

    def run(model, *typed, generator=None, sent=None):
        script = re.search(r"<script>\n(.*?)</script>", read_page("page.html"), re.DOTALL)[1]
        if sent is not None:
            script += f"texts = () => {json.dumps(sent)};"
        (tmp_path / "page.js").write_text(script, encoding="utf-8")
        driver = Path(__file__).with_name("page_in_node.js")
        with running(model, generator=generator) as client:
            command = ["node", driver, tmp_path / "page.js", str(client.base_url).rstrip("/"), *typed]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        shown = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(shown) == 1 + len(typed), done.stderr
        return shown

    return run


def test_labels_have_probabilities_and_the_example_is_filled_in(show):
    model = text_model(Classify(("bad", "good")))
    example, typed = show(model, "good film")
    assert example["fields"] == ["A quiet film, beautifully made, that stays with you."]
    prediction = model.predict("good film")
    assert typed["headings"] == [f"Prediction: {prediction['label']}"]
    assert typed["rows"][1] == [prediction["label"], "", f"{100 * prediction['probability']:.1f} %"]
    assert len(typed["rows"]) == 3
    assert typed["error"] == ""


def test_several_labels_and_numbers_are_shown(show):
    [several] = show(text_model(Labels(("a", "b", "c"))))
    assert several["headings"] == ["Prediction: a, c"]
    [number] = show(text_model(Regress(0.0, 5.0)))
    assert re.fullmatch(r"Prediction: \d\.\d+", number["headings"][0])


def test_tags_are_marked_in_the_text_also_after_characters_of_two_units(show):
    model, text = text_model(Tokens(("O", "B-X", "I-X"))), "😀 good <b>film</b> was bad"
    *_, shown = show(model, text)
    spans = model.predict(text)["spans"]
    assert spans
    assert shown["marks"] == [f"{span['text']}{span['type']}" for span in spans]
    assert [each.replace("X", "") for each in shown["text"]] == [text]


def test_tags_of_words_are_marked_in_the_words_joined_by_spaces(show):
    words = ["good", "film .", "😀", "bad"]
    model = text_model(Tokens(("O", "B-X", "I-X")))
    [shown] = show(model, sent=[{"words": words}])
    spans = model.predict({"words": words})["spans"]
    assert spans
    assert shown["marks"] == [f"{span['text']}{span['type']}" for span in spans]
    assert [each.replace("X", "") for each in shown["text"]] == [" ".join(words)]


def test_words_are_marked_with_tags_that_are_no_entities(show):
    model, text = text_model(Tokens(("NOUN", "VERB", "DET"))), "😀 good film"
    *_, shown = show(model, text)
    tags = model.predict(text)["tags"]
    assert shown["headings"] == ["3 tagged parts"]
    assert shown["marks"] == [f"{word['text']}{word['tag']}" for word in tags]


def test_words_outside_of_entities_are_not_marked(show):
    model = text_model(Tokens(("O", "B-X", "I-X")))
    with torch.no_grad():
        model.heads["tokens"].output.bias.copy_(torch.tensor([99.0, 0.0, 0.0]))
    *_, shown = show(model, "good film")
    assert shown["headings"] == ["0 tagged parts"]
    assert shown["marks"] == []
    assert shown["text"] == ["good film"]


def test_answers_are_marked_in_their_context(show):
    model = text_model(Spans("span", stride=4, max_query=4, null_threshold=100.0))
    example, typed = show(model, "good film")
    question, context = typed["fields"]
    assert (question, context) == ("good film", example["fields"][1])
    prediction = model.predict({"question": question, "context": context})
    assert typed["headings"][0] == f"Answer: {prediction['answer']}"
    assert typed["marks"][0].startswith(prediction["answer"])


def test_suspicious_words_are_marked_and_ranked(show):
    *_, shown = show(text_model(None, "rtd"), "good films was bad.")
    assert shown["marks"] == ["good", "films", "was", "bad", "."]
    assert len(shown["rows"]) == 6


def test_words_that_the_generator_would_put_in_place_of_suspicious_ones_are_shown(show):
    *_, shown = show(text_model(None, "rtd"), "good films was bad.", generator=text_model(None, "mlm"))
    rows = [name.split(" → ") for name, *_ in shown["rows"][1:]]
    assert sorted(name for name, _ in rows) == [".", "bad", "films", "good", "was"]
    assert all(len(candidates.split(", ")) == 3 for _, candidates in rows)


def test_masks_are_filled(show):
    example, typed, wrong = show(text_model(None, "mlm"), "good [MASK] was a[MASK].", "good film")
    assert example["error"] == ""
    assert typed["headings"][1:] == ["Candidates for mask 1", "Candidates for mask 2"]
    assert len(typed["marks"]) == 2
    assert wrong["error"] == "texts[0] must contain [MASK] where a word is to be filled in"
    assert wrong["headings"] == []


def test_sentences_are_ranked_by_their_similarity_to_the_first(show):
    model, sentences = text_model(None), ["good film", "bad was the", "good film"]
    _, typed, wrong = show(model, "\n".join(sentences), "one line")
    vectors = model.encode(sentences)
    cosine = vectors[0] @ vectors[1] / np.linalg.norm(vectors[0]) / np.linalg.norm(vectors[1])
    assert [row[0] for row in typed["rows"][1:]] == ["good film", "bad was the"]
    assert typed["rows"][1][2] == "1.000"
    assert float(typed["rows"][2][2]) == pytest.approx(cosine, abs=6e-4)
    assert wrong["error"] == "At least two sentences are needed, one per line."


def test_an_empty_field_gets_a_sentence(show):
    *_, shown = show(text_model(Classify(("bad", "good"))), "  ")
    assert shown["error"] == "The field “Text” is empty; type a text."


def test_maps_and_kernels_of_a_layer_are_shown_under_the_answer(show):
    model = text_model(Classify(("bad", "good")))
    _, typed = show(model, "good film")
    heads = 1 + model.blocks[0].mixer.n_heads
    assert typed["canvases"] == heads + 1
    assert typed["layers"] == 1
    assert typed["inside_error"] == ""
    assert not typed["exported"]
    strongest = typed["inside"][1]
    assert re.fullmatch(r"\S+ → \S+", strongest[0])
    offsets = next(row for row in typed["inside"] if row[0] == "token")
    taps = model.blocks[0].mixer.convolution.taps
    assert offsets == [
        "token",
        *(f"{offset:+d}" if offset > 0 else f"{offset}" for offset in range(-(taps // 2), taps // 2 + 1)),
    ]
    kernels = typed["inside"][-4:]
    assert [row[0] for row in kernels] == ["[CLS]", "good", "film", "[SEP]"]
    assert sum(map(float, kernels[1][1:])) == pytest.approx(1.0, abs=0.05)


def test_a_question_and_its_context_are_shown_as_one_row(show):
    *_, shown = show(text_model(Spans("span", stride=4, max_query=4, null_threshold=100.0)), "good film")
    assert shown["inside_error"] == ""
    assert shown["inside"][-1][0] == "[SEP]"
    assert shown["canvases"] > 1


@needs_onnx
def test_an_exported_model_shows_a_sentence_instead_of_maps(show, tmp_path):
    export(text_model(Classify(("bad", "good"))), tmp_path / "out")
    [shown] = show(lightbert.load(tmp_path / "out"))
    assert shown["exported"]
    assert shown["canvases"] == 0
