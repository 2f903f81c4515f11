"""Tagging from words to predictions, with the parts that fine-tuning uses."""

import torch

from lightbert.data.loader import Buckets
from lightbert.data.tokenizer import SPECIALS, wordpiece
from lightbert.models import build
from lightbert.models.bert import Bert
from lightbert.nn.inference import Inference
from lightbert.objectives.task import TaskObjective
from lightbert.tasks.example import Example, TaggedSentence, TextEncoder
from lightbert.tasks.kinds.tokens import Tokens
from lightbert.tasks.predict.runtime import run
from lightbert.tasks.predict.torch_runtime import TorchRuntime

PIECES = [*SPECIALS, "jim", "ann", "lives", "in", "new", "york", "##er", "."]
TAGS = ("B-PER", "O", "O", "B-LOC", "I-LOC", "O")


def test_a_tiny_model_learns_to_tag_texts_longer_than_its_rows():
    kind = Tokens(tuple(sorted(set(TAGS))))
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    encoder = TextEncoder(wordpiece(vocabulary, lowercase=True), 12)
    sentences = [TaggedSentence((who, "lives", "in", "New", "Yorker", "."), TAGS) for who in ("Jim", "Ann")] * 4
    examples = [*sentences, TaggedSentence(sentences[0].words * 5, TAGS * 5)]
    features = kind.features(examples, encoder)
    sizes = {"positions": 16, "narrow": 16, "width": 16, "depth": 1, "n_heads": 2, "inner": 32}
    config = Bert(vocab=len(PIECES), **sizes, dropout=0.0, attention_dropout=0.0)
    model = build(config, heads={"tokens": kind.head_settings()})
    objective = TaskObjective(model, kind.head)
    batches = Buckets(features, batch=4, specials=encoder.specials)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(40):
        batch = batches.at(step)
        optimizer.zero_grad()
        objective(batch, objective.counts(batch)).total.backward()
        optimizer.step()

    runtime = TorchRuntime(Inference(model, kind.head))
    predictions = kind.predictions(examples, features, run(runtime, features, encoder.specials))
    assert kind.metrics(examples, predictions)["f1"] == 1.0

    text = Example("Ann lives in\n New  Yorker. Jim lives in New Yorker.")
    windows = kind.features([text], encoder)
    (prediction,) = kind.predictions([text], windows, run(runtime, windows, encoder.specials))
    assert len(windows) == 2
    assert [(span["type"], span["text"], span["start"]) for span in prediction["spans"]] == [
        ("PER", "Ann", 0),
        ("LOC", "New  Yorker", 14),
        ("PER", "Jim", 27),
        ("LOC", "New Yorker", 40),
    ]
