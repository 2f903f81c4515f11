import math

import pytest

from lightbert.commands.demo_task import equal_fraction, train_naive_bayes, tune_naive_bayes

TEXTS = ["good good film", "a film", "bad film", "bad bad"]
LABELS = ["pos", "pos", "neg", "neg"]


def test_the_likelihood_is_the_smoothed_share_of_a_word_among_the_words_of_its_label():
    model = train_naive_bayes(TEXTS, LABELS, smoothing=0.5)
    # pos: good good film a film, with 4 words in the vocabulary; neg: bad film bad bad.
    good = model.likelihood[:, model.vocabulary["good"]]
    assert good.tolist() == pytest.approx([math.log(0.5 / 6), math.log(2.5 / 7)])
    assert model.prior.tolist() == pytest.approx([math.log(0.5)] * 2)


def test_a_text_gets_the_label_of_its_words_and_an_unknown_text_the_most_frequent_label():
    model = train_naive_bayes([*TEXTS, "good"], [*LABELS, "pos"])
    assert model.predict(["Good!", "bad", "zebra"]) == ["pos", "neg", "pos"]


def test_pairs_of_words_distinguish_orders():
    texts, labels = ["not good but bad", "not bad but good"] * 3, ["neg", "pos"] * 3
    model = train_naive_bayes(texts, labels, smoothing=0.1, pairs=True)
    assert model.predict(["not good", "not bad"]) == ["neg", "pos"]
    words = train_naive_bayes(texts, labels, smoothing=0.1)
    assert words.predict(["not good"]) == words.predict(["not bad"])


def test_tuning_returns_the_classifier_with_the_best_dev_accuracy():
    dev, answers = ["not good", "not bad"], ["neg", "pos"]
    model = tune_naive_bayes(["not good but bad", "not bad but good"], ["neg", "pos"], dev, answers)
    assert model.pairs
    assert equal_fraction(model.predict(dev), answers) == 1.0


def test_accuracy_is_the_share_of_equal_labels():
    assert equal_fraction(["a", "b", "a", "a"], ["a", "b", "b", "b"]) == 0.5
