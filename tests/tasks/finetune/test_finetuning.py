"""Fine-tuning from files to predictions; the same seed gives the same result, interrupted or not."""

import json
from pathlib import Path
from unittest import mock

import pytest
import torch
from tiny_tasks import NO_DROPOUT, finetune, only, write_model, write_reviews

import lightbert
from extras import needs_metrics
from lightbert.errors import InputError
from lightbert.models import folder
from lightbert.nn.pooling import TEXT_POOLS
from lightbert.tasks.datasets.own import own_task
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.finetune.dataset import _load_data as load_data_cache
from lightbert.tasks.finetune.finetuning import measure
from lightbert.tasks.predict.evaluation import evaluate
from lightbert.tasks.predict.predictor import kind_of_model

pytestmark = needs_metrics

RECIPE = "classify"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    where = tmp_path_factory.mktemp("start")
    model, train, dev = (
        write_model(where / "model"),
        write_reviews(where / "train.csv"),
        write_reviews(where / "dev.csv", rows=20),
    )
    return (f"model={model}", f"data.train={train}", f"data.dev={dev}", "data.text=body", "data.label=topic")


def weights(out: Path) -> dict[str, torch.Tensor]:
    return folder.load(out / "final").state_dict()


def test_the_trained_model_predicts_the_labels_it_learned(start, tmp_path: Path):
    result = only(finetune(RECIPE, *start, *NO_DROPOUT, f"out={tmp_path}", "epochs=12", "lr=3e-3", "choose=last"))
    assert result.metrics["accuracy"] == 1.0
    model = lightbert.load(tmp_path / "final")
    assert model.labels == ("bad", "good")
    assert [each["label"] for each in model.predict(["the film was good .", "a bad film"])] == ["good", "bad"]
    assert list(model.heads) == ["classify"]


def test_a_model_for_pairs_requires_pairs(start, tmp_path: Path):
    pairs = tmp_path / "pairs.csv"
    rows = ["good film,the film was good,yes", "a bad film,the film was good,no"] * 10
    pairs.write_text("\n".join(["one,other,same", *rows]) + "\n")
    columns = ("data.text=one", "data.text_b=other", "data.label=same")
    finetune(RECIPE, start[0], f"data.train={pairs}", f"data.dev={pairs}", *columns, f"out={tmp_path / 'run'}")
    model = lightbert.load(tmp_path / "run" / "final")
    assert model.predict(("good", "bad"))["label"] in ("yes", "no")
    with pytest.raises(
        InputError, match=r"requires pairs of texts, got a single one: 'good'; give the second with --pair"
    ):
        model.predict("good")
    task = own_task(Files(dev=str(pairs), text="one", label="same"), kind=kind_of_model(model))
    with pytest.raises(InputError, match=r"requires pairs of texts, got a single one: 'good film'"):
        evaluate(model, task)


def test_scaled_regression_predicts_on_the_original_scale(start, tmp_path: Path):
    scores = tmp_path / "scores.csv"
    rows = ["the film was good .,8.5", "a bad film,2.5", "good,8.5", "bad,2.5"] * 10
    scores.write_text("\n".join(["body,score", *rows]) + "\n")
    own = (f"data.train={scores}", f"data.dev={scores}", "data.text=body", "data.label=score", "data.kind=regress")
    enough = ("epochs=50", "lr=1e-3", "checkpoint_every=0")
    finetune(RECIPE, start[0], *own, *NO_DROPOUT, *enough, f"out={tmp_path / 'run'}", "head.hidden=tanh")
    model = lightbert.load(tmp_path / "run" / "final")
    assert not model.task["scaled"]
    found = [each["score"] for each in model.predict(["good", "bad"])]
    assert found == pytest.approx([8.5, 2.5], abs=1.0)
    # The raw output is on the original scale too.
    ids = torch.tensor([[model.tokenizer.token_to_id(token) for token in ("[CLS]", "good", "[SEP]")]])
    with torch.no_grad():
        said = model.eval().heads["regress"](model(ids))
    assert min(said.item(), 8.5) == pytest.approx(found[0], abs=1e-4)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(start, tmp_path: Path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        finetune(RECIPE, *start, f"out={tmp_path / name}", f"seed={seed}")
    a, b, c = ((tmp_path / name / "final" / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize("stop", [1, 5, 12, 24])
def test_an_interrupted_run_resumes_exactly(start, tmp_path: Path, stop: int):
    finetune(RECIPE, *start, f"out={tmp_path / 'whole'}")
    first = only(finetune(RECIPE, *start, f"out={tmp_path / 'parts'}", stop_after=stop))
    assert not first.finished
    second = only(finetune(RECIPE, *start, f"out={tmp_path / 'parts'}"))
    assert second.finished
    for name in ("final/model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_ranges_of_quantization_aware_training_survive_an_interruption(start, tmp_path: Path):
    aware = (*start, "quantization_aware=true", "choose=best")
    finetune(RECIPE, *aware, f"out={tmp_path / 'whole'}")
    assert not only(finetune(RECIPE, *aware, f"out={tmp_path / 'parts'}", stop_after=5)).finished
    finetune(RECIPE, *aware, f"out={tmp_path / 'parts'}")
    for name in ("final/model.safetensors", "final/config.json", "metrics.jsonl"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert lightbert.load(tmp_path / "whole" / "final").ranges.keys() >= {"blocks.0.output", "heads.classify.output"}


def test_a_finished_run_is_read_and_not_trained_again(start, tmp_path: Path):
    first = only(finetune(RECIPE, *start, f"out={tmp_path}"))
    (tmp_path / "final" / "model.safetensors").unlink()
    assert only(finetune(RECIPE, *start, f"out={tmp_path}")) == first
    with pytest.raises(InputError, match=r"has lr = 0.01, this recipe has 0.02"):
        finetune(RECIPE, *start, f"out={tmp_path}", "lr=0.02")


def test_the_best_or_the_last_weights_are_saved(start, tmp_path: Path):
    runs = {}
    for choose in ("best", "last"):
        out = tmp_path / choose
        runs[choose] = only(finetune(RECIPE, *start, f"out={out}", f"choose={choose}", "epochs=6"))
    lines = [json.loads(line) for line in (tmp_path / "best" / "metrics.jsonl").read_text().splitlines()]
    found = {line["step"]: line["accuracy"] for line in lines if line["kind"] == "held-out"}
    assert len(found) == 6
    assert runs["best"].metrics["accuracy"] == max(found.values()) == found[runs["best"].best_step]
    assert runs["last"].metrics["accuracy"] == found[runs["last"].step]
    assert runs["last"].best_step == -1


def test_the_metric_can_be_chosen_by_name(start, tmp_path: Path):
    with pytest.raises(InputError, match="must be one of accuracy, f1, mcc, got 'accurracy'; did you mean 'accuracy'"):
        finetune(RECIPE, *start, f"out={tmp_path}", "metric=accurracy")


@pytest.mark.parametrize("more", [("choose=last",), ("choose=best",), ("choose=last", "seeds=[0, 1]")])
def test_an_unknown_metric_is_an_error_before_training(start, tmp_path: Path, more: tuple[str, ...]):
    with pytest.raises(InputError, match="did you mean 'accuracy'"):
        finetune(RECIPE, *start, f"out={tmp_path}", "metric=accurracy", *more)
    assert not list(tmp_path.rglob("metrics.jsonl"))
    assert not list(tmp_path.rglob("step-*"))


def test_the_name_of_a_metric_is_checked_without_evaluating_the_model(start, tmp_path: Path):
    with mock.patch("lightbert.tasks.finetune.finetuning.measure", side_effect=measure) as measured:
        finetune(RECIPE, *start, f"out={tmp_path}", "metric=accuracy", "choose=last", "steps=1")
    assert measured.call_count == 1


def test_lower_is_better_for_errors(start, tmp_path: Path):
    train = tmp_path / "scores.csv"
    train.write_text("body,score\n" + "".join(f"{'good ' * (n % 5 + 1)},{n % 5}\n" for n in range(20)))
    own = (f"data.train={train}", f"data.dev={train}", "data.text=body", "data.label=score", "data.kind=regress")
    done = only(finetune(RECIPE, start[0], *own, f"out={tmp_path / 'run'}", "choose=best", "metric=mse", "epochs=4"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    found = {line["step"]: line["mse"] for line in lines if line["kind"] == "held-out"}
    assert len(set(found.values())) == 4
    assert done.metrics["mse"] == min(found.values()) == found[done.best_step]


def test_lower_layers_change_less(start, tmp_path: Path):
    adam = ("optimizer.weight_decay=0", "optimizer.bias_correction=true", "optimizer.eps=1e-15")
    finetune(RECIPE, *start, f"out={tmp_path}", *adam, "steps=1", "layer_decay=0.1", "schedule.warmup=0.0")
    before = lightbert.load(start[0].removeprefix("model=")).state_dict()
    after = weights(tmp_path)

    def moved(name: str) -> float:
        return float((after[name] - before[name]).abs().max())

    # Adam's first step has the size of the learning rate: block 0 of 1 has decay², the embeddings decay³.
    assert moved("embeddings.word.weight") == pytest.approx(0.1 * moved("blocks.0.output.weight"), rel=1e-3)


def test_a_length_beyond_the_positions_of_the_model_is_an_error(start, tmp_path: Path):
    with pytest.raises(InputError, match="length must be <= 16, the model's positions, got 64: set length=16"):
        finetune(RECIPE, *start, f"out={tmp_path}", "length=64")


@pytest.mark.timeout(60)
def test_a_batch_that_exceeds_all_memory_is_an_error_at_once(start, tmp_path: Path):
    with pytest.raises(InputError, match=r"is not sufficient: a step requires at least .* lower batch="):
        finetune(RECIPE, *start, f"out={tmp_path}", "batch=10000000000000")


def test_truncated_texts_are_counted(start, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    finetune(RECIPE, *start, f"out={tmp_path}", "length=6", "steps=1")
    assert "training texts were truncated to 6 tokens" in capfd.readouterr().err


def test_a_preset_starts_from_random_weights_with_a_tokenizer(start, tmp_path: Path):
    files = [each for each in start if not each.startswith("model=")]
    model = start[0].removeprefix("model=")
    preset = ("model=bert-tiny", f"tokenizer={model}/tokenizer.json", "change.depth=1", "steps=1")
    finetune(RECIPE, *files, *preset, f"out={tmp_path / 'a'}")
    assert folder.load(tmp_path / "a" / "final").config.vocab == 13
    with pytest.raises(InputError, match="the preset 'bert-tiny' requires tokenizer=PATH"):
        finetune(RECIPE, *files, "model=bert-tiny", f"out={tmp_path / 'b'}")


def test_the_dense_layer_of_an_intermediate_task_is_reused(start, tmp_path: Path):
    tanh = ("head.hidden=tanh", "steps=1", "lr=1e-30")
    finetune(RECIPE, *start, f"out={tmp_path / 'mnli-3'}", *tanh)
    other = [each for each in start if not each.startswith("model=")]
    finetune(RECIPE, *other, f"model={tmp_path}/mnli-{{seed}}/final", "seed=3", f"out={tmp_path / 'rte'}", *tanh)
    before, after = weights(tmp_path / "mnli-3"), weights(tmp_path / "rte")
    assert torch.equal(before["heads.classify.dense.weight"], after["heads.classify.dense.weight"])
    assert not torch.equal(before["heads.classify.output.weight"], after["heads.classify.output.weight"])


def test_a_dense_layer_is_not_reused_after_another_pool(start, tmp_path: Path):
    tanh = ("head.hidden=tanh", "steps=1", "lr=1e-30")
    finetune(RECIPE, *start, f"out={tmp_path / 'first'}", *tanh, "head.pool=mean")
    other = [f"model={tmp_path}/first/final", *(each for each in start if not each.startswith("model="))]
    dense = "heads.classify.dense.weight"
    for pool in ("mean", "max", "mean-max"):
        finetune(RECIPE, *other, f"out={tmp_path / pool}", *tanh, f"head.pool={pool}", "seed=1")
    before = weights(tmp_path / "first")[dense]
    assert torch.equal(before, weights(tmp_path / "mean")[dense])
    assert not torch.equal(before, weights(tmp_path / "max")[dense])
    assert weights(tmp_path / "mean-max")[dense].shape == (16, 32)


@pytest.mark.parametrize("pool", TEXT_POOLS)
def test_a_pool_is_trained_saved_and_used_by_every_prediction(start, tmp_path: Path, pool: str):
    enough = ("epochs=20", f"head.pool={pool}", "head.init=random", *NO_DROPOUT)
    done = only(finetune(RECIPE, *start, *enough, f"out={tmp_path}"))
    assert done.metrics["accuracy"] > 0.9
    model = lightbert.load(tmp_path / "final")
    assert model.head_settings["classify"]["pool"] == model.heads["classify"].pool == pool
    texts = ["good", "the film was a bad film .", "a the was good ."]
    alone = [model.predict(text)["probability"] for text in texts]
    assert [each["probability"] for each in model.predict(texts)] == pytest.approx(alone, abs=1e-5)
    assert [each["label"] for each in model.predict(texts)] == ["good", "bad", "good"]


def test_a_pool_requires_a_task_with_one_output_per_text(start, tmp_path: Path):
    (tmp_path / "tags.conll").write_text("good B-X\nfilm O\n\nbad O\n\nfilm B-X\n")
    own = (start[0], f"data.train={tmp_path / 'tags.conll'}", "data.kind=tokens", "data.hold_out=0", "choose=last")
    with pytest.raises(InputError, match=r"head\.pool=max requires a task with one output per text, got the kind 'to"):
        finetune("tokens", *own, f"out={tmp_path / 'run'}", "head.pool=max")
    finetune("tokens", *own, f"out={tmp_path / 'run'}", "steps=1")


def test_a_config_change_that_does_not_match_the_weights_is_an_error(start, tmp_path: Path):
    with pytest.raises(InputError, match=r"the weights don't match the config after change = {'width': 32}"):
        finetune(RECIPE, *start, f"out={tmp_path}", "change.width=32")


def test_padding_can_be_masked_in_a_model_trained_to_read_it(tmp_path: Path, start):
    released = write_model(tmp_path / "released", padding="released")
    files = [each for each in start if not each.startswith("model=")]
    finetune(RECIPE, *files, f"model={released}", "change.padding=masked", f"out={tmp_path / 'run'}", "steps=1")
    assert folder.load(tmp_path / "run" / "final").config.padding == "masked"


def test_a_small_fraction_of_an_epoch_is_one_step(start, tmp_path: Path):
    # If 0 steps meant no limit here, the time limit would end the run.
    assert only(finetune(RECIPE, *start, f"out={tmp_path}", "epochs=0.01", "max_minutes=0.05")).step == 1


def test_all_rows_can_be_trained_on_without_a_development_set(start, tmp_path: Path):
    model, train, _, *columns = start
    everything = (model, train, *columns, "data.hold_out=0", "epochs=1")
    result = only(finetune(RECIPE, *everything, f"out={tmp_path}", "choose=last"))
    assert result.metrics == {}
    assert lightbert.load(tmp_path / "final").labels == ("bad", "good")


@pytest.mark.parametrize("needs", ["choose=best", "seeds=[0,1]"])
def test_a_missing_development_set_is_an_error_before_training(start, tmp_path: Path, needs: str):
    model, train, _, *columns = start
    choice = () if needs == "choose=best" else ("choose=last",)
    with pytest.raises(
        InputError, match=r"requires development data, got none: add data.dev=FILE or data.hold_out=0.1"
    ):
        finetune(RECIPE, model, train, *columns, "data.hold_out=0", f"out={tmp_path}", needs, *choice)
    assert not list(tmp_path.rglob("metrics.jsonl"))


@pytest.mark.parametrize("change", ["labels", "rows", "dev", "text"])
def test_data_that_changed_while_a_run_was_interrupted_is_an_error(start, tmp_path: Path, change: str):
    train, dev = write_reviews(tmp_path / "train.csv"), write_reviews(tmp_path / "dev.csv", rows=20)
    columns = (f"data.train={train}", f"data.dev={dev}", "data.text=body", "data.label=topic")
    finetune(RECIPE, start[0], *columns, f"out={tmp_path / 'out'}", stop_after=4)
    changed = dev if change == "dev" else train
    head, first, *rest = changed.read_text().splitlines()
    text, label = first.rsplit(",", 1)
    lines = {
        "labels": [f"{text},{'bad' if label == 'good' else 'good'}", *rest],
        "rows": rest,
        "dev": rest,
        "text": [f"film {text},{label}", *rest],
    }[change]
    changed.write_text("\n".join([head, *lines]) + "\n")
    load_data_cache.cache_clear()
    with pytest.raises(InputError, match=r"the data of the run in '.*out' has changed since the run was started"):
        finetune(RECIPE, start[0], *columns, f"out={tmp_path / 'out'}")


def test_the_model_that_a_run_starts_from_is_never_replaced(start, tmp_path: Path):
    finetune(RECIPE, *start, f"out={tmp_path / 'run'}", "steps=2")
    before = (tmp_path / "run" / "final" / "model.safetensors").read_bytes()
    rest = start[1:]
    for plural in ((), ("seeds=[1,2]",)):
        with pytest.raises(
            InputError, match=r"model '.*final' is in the folder of the run, '.*', which would replace it"
        ):
            finetune(RECIPE, f"model={tmp_path / 'run' / 'final'}", *rest, f"out={tmp_path / 'run'}", *plural)
    assert (tmp_path / "run" / "final" / "model.safetensors").read_bytes() == before


def test_braces_in_the_path_of_a_model_are_kept(start, tmp_path: Path):
    model = write_model(tmp_path / "m {a} {0}")
    finetune(RECIPE, f"model={model}", *start[1:], f"out={tmp_path / 'run'}", "steps=1")


@pytest.mark.parametrize("name", ["runs.json", "final/notes.txt"])
def test_files_of_the_user_in_the_folder_of_several_runs_are_kept(start, tmp_path: Path, name: str):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="exists and is not from the runs in 'runs'"):
        finetune(RECIPE, *start, f"out={tmp_path}", "seeds=[1,2]", "steps=1")
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"metrics": 1}', "[" * 100_000, "\x00"])
def test_a_damaged_result_is_an_error(start, tmp_path: Path, content: str):
    finetune(RECIPE, *start, f"out={tmp_path}", "steps=1")
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(InputError, match=r"result\.json' is damaged; remove the folder to train again"):
        finetune(RECIPE, *start, f"out={tmp_path}", "steps=1")


def test_checkpoints_are_kept_only_if_asked(start, tmp_path: Path):
    first = only(finetune(RECIPE, *start, f"out={tmp_path / 'a'}"))
    assert sorted(path.name for path in (tmp_path / "a").iterdir() if path.is_dir()) == ["final"]
    kept = only(finetune(RECIPE, *start, f"out={tmp_path / 'b'}", "keep_checkpoints=true"))
    assert (tmp_path / "b" / "checkpoints" / f"step-{kept.step}").exists()
    again = only(finetune(RECIPE, *start, f"out={tmp_path / 'b'}", "keep_checkpoints=true"))
    assert first.metrics == kept.metrics == again.metrics


@pytest.mark.parametrize("choose", ["last", "best"])
def test_a_learning_rate_that_is_far_too_high_is_an_error_and_leaves_no_model(start, tmp_path: Path, choose: str):
    with pytest.raises(InputError, match=r"diverged|not finite"):
        finetune(RECIPE, *start, f"out={tmp_path}", "lr=1e30", "steps=3", f"choose={choose}")
    assert not (tmp_path / "final").exists()
    assert not (tmp_path / "result.json").exists()
