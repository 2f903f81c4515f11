"""A student trains with every strategy, layer by layer where that is asked for, and resumes to the same bytes."""

import shutil
import signal
from dataclasses import replace

import pytest
import torch
from children import Moment, exit_code, start
from tiny_runs import assert_same_results, distillation_of, records, student_before, train, write_model

import lightbert
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.models import PRESETS, add_head, folder
from lightbert.models.bert import Bert
from lightbert.train.checkpoint import load_newest

KILL = (signal.SIGKILL,)
LAYERS = {"fmt_1", "fmt_2", "fmt_3"}
WORDS = {"mlm_loss", "nsp_loss"}
OPTIMIZERS = ["adamw", "lamb", "muon"]


def weights(out):
    return folder.load(out / "final").state_dict()


# Strategies


@pytest.mark.parametrize(
    ("strategy", "logged"),
    [
        ("bare", [WORDS] * 9),
        ("pd", [WORDS | {"kd_loss"}] * 9),
        ("akt", [LAYERS | WORDS | {"kd_loss"}] * 9),
        ("jkt", [LAYERS] * 6 + [WORDS | {"kd_loss"}] * 3),
        ("pkt", [{"fmt_1"}] * 2 + [{"fmt_2"}] * 2 + [{"fmt_3"}] * 2 + [WORDS | {"kd_loss"}] * 3),
    ],
)
def test_every_strategy_trains_its_stages(corpus, tmp_path, strategy, logged):
    # Without a strategy that needs it, no teacher is loaded.
    teacher = {"teacher": "nowhere"} if strategy == "bare" else {}
    outcome = train(distillation_of(corpus, tmp_path, strategy=strategy, **teacher))
    assert outcome.finished
    interesting = LAYERS | WORDS | {"kd_loss"}
    assert [interesting & record.keys() for record in records(tmp_path)] == logged
    expected = WORDS | ({"kd_loss"} if strategy != "bare" else set())
    expected |= LAYERS if strategy in ("akt", "jkt", "pkt") else set()
    assert {name for name in outcome.held_out if name in interesting} == expected
    student = lightbert.load(tmp_path / "final")
    assert {*student.heads} == {"mlm", "nsp"}
    assert student.tokenizer.get_vocab() == Shards(corpus / "data").tokenizer().get_vocab()


def test_copied_parameters_are_frozen_until_the_prediction_stage(corpus, tmp_path):
    teacher = folder.load(corpus / "teacher").state_dict()
    for strategy in ("jkt", "pkt"):
        layers, whole = tmp_path / strategy / "layers", tmp_path / strategy / "whole"
        train(distillation_of(corpus, layers, strategy=strategy, steps=0))
        student = weights(layers)
        copied = [n for n in student if n.startswith(("embeddings.", "heads.mlm."))]
        copied = [n for n in copied if not n.startswith("embeddings.norm.")]
        assert {"embeddings.word.weight", "embeddings.project.weight", "heads.mlm.extra"} <= {*copied}
        assert all(torch.equal(student[name], teacher[name]) for name in copied)
        assert torch.equal(student["embeddings.norm.weight"], torch.ones(16))
        assert torch.equal(student["embeddings.norm.bias"], torch.zeros(16))
        train(distillation_of(corpus, whole, strategy=strategy))
        assert not any(torch.equal(weights(whole)[name], teacher[name]) for name in copied)


def test_other_strategies_copy_nothing_unless_copy_is_set(corpus, tmp_path):
    teacher = folder.load(corpus / "teacher").state_dict()
    for changes, is_copied in [
        ({"strategy": "akt"}, False),
        ({"strategy": "akt", "copy": True}, True),
        ({"strategy": "pkt"}, True),
        ({"strategy": "pkt", "copy": False}, False),
    ]:
        student = student_before(distillation_of(corpus, tmp_path, **changes))
        assert torch.equal(student["embeddings.word.weight"], teacher["embeddings.word.weight"]) == is_copied


def test_tables_that_were_not_copied_are_trained_with_the_first_layer(corpus, tmp_path):
    recipe = distillation_of(corpus, tmp_path, copy=False, steps=0)
    before = student_before(recipe)
    train(recipe)
    after = weights(tmp_path)
    assert not torch.equal(after["embeddings.word.weight"], before["embeddings.word.weight"])
    assert torch.equal(after["heads.mlm.transform.weight"], before["heads.mlm.transform.weight"])


def test_the_embedding_norm_follows_the_recipe(corpus, tmp_path):
    for norm, frozen in (("identity", True), ("copy", True), ("train", False)):
        recipe = distillation_of(corpus, tmp_path / norm, norm=norm, steps=0)
        before = student_before(recipe)["embeddings.norm.bias"]
        train(recipe)
        assert torch.equal(weights(tmp_path / norm)["embeddings.norm.bias"], before) == frozen, norm


# Stages


def stopped(corpus, out, step, **changes):
    """Return the checkpoint of a run that is interrupted at a step."""
    train(distillation_of(corpus, out, checkpoint_every=1, **changes), stop_after=step)
    saved = load_newest(out / "checkpoints")
    assert saved.facts["step"] == step
    return saved


def touched(state):
    """Return the blocks, tables and heads with non-zero optimizer state, ignoring step counters."""
    names = {name for name, value in state.items() if not name.endswith("/step") and value.any()}
    return {".".join(name.split(".")[1:3]) for name in names}


@pytest.mark.parametrize(("kind", "lower"), [("adamw", "soft"), ("lamb", "frozen"), ("muon", "soft")])
def test_weights_and_optimizer_state_of_a_layer_change_from_its_stage_on(corpus, tmp_path, kind, lower):
    changes = {"optimizer": {"kind": kind, "weight_decay": 0.1}, "lower": lower}
    saved = {step: stopped(corpus, tmp_path, step, **changes).groups for step in (2, 3, 4, 5)}
    for step, layers in [(2, 1), (3, 2), (4, 2), (5, 3)]:
        assert touched(saved[step]["optimizer"]) == {*["blocks.0", "blocks.1", "blocks.2"][:layers]}
    # Layers below train slowly or are frozen, and layers above are frozen.
    earlier, later = saved[2]["weights"], saved[4]["weights"]
    moved = {name for name in later if not torch.equal(later[name], earlier[name])}
    assert {name.split(".")[2] for name in moved} == ({"0", "1"} if lower == "soft" else {"1"})
    assert all(name.startswith("student.blocks.") for name in moved)


def test_the_current_layer_trains_at_its_multiple_of_the_rate(corpus, tmp_path):
    # The first step of Adam without decay is the rate times a function of the gradient, which is the same for both.
    name = "blocks.0.output.weight"
    moved = {}
    for layer_rate in (1.0, 3.0):
        changes = {"layer_rate": layer_rate, "optimizer": {"weight_decay": 0.0, "clip": 1e9}}
        out = tmp_path / str(layer_rate)
        before = student_before(distillation_of(corpus, out, **changes))[name]
        moved[layer_rate] = stopped(corpus, out, 1, **changes).groups["weights"][f"student.{name}"] - before
    assert moved[1.0].abs().mean() > 1e-4
    torch.testing.assert_close(moved[3.0], 3 * moved[1.0], rtol=1e-4, atol=1e-7)


def test_each_stage_warms_up_for_a_tenth_and_then_decays_to_nine_tenths(corpus, tmp_path):
    train(distillation_of(corpus, tmp_path, transfer_steps=60, evaluate_every=0, checkpoint_every=0))
    rates = [record["lr"] / 1e-3 for record in records(tmp_path)]
    at = [(step + 1) / 21 for step in range(20)]
    expected = [min(0.9 + 0.1 * (1 - t) ** 0.5, 10 * t) for t in at]
    assert rates[:60] == pytest.approx(expected * 3)


# Interruptions


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    assert train(distillation_of(corpus, out)).finished
    return out


# Stages end after steps 2, 4 and 6; the run after 9.
@pytest.mark.parametrize("stop", [1, 2, 5, 6, 8, 9])
def test_a_run_interrupted_at_any_step_resumes_exactly(corpus, undisturbed, tmp_path, stop):
    outcome = train(distillation_of(corpus, tmp_path), stop_after=stop)
    assert (outcome.step, outcome.finished) == (stop, False)
    assert train(distillation_of(corpus, tmp_path)).finished
    assert_same_results(tmp_path, undisturbed)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("adamw", {"strategy": "akt"}),
        ("lamb", {"strategy": "jkt"}),
        ("muon", {"strategy": "pkt", "transfer": {"maps": "linear"}, "dropout": 0.1}),
    ],
    ids=OPTIMIZERS,
)
def test_every_optimizer_and_strategy_resumes_exactly(corpus, tmp_path, kind, changes):
    changes |= {"optimizer": {"kind": kind, "bias_correction": True}, "transfer_steps": 3}
    train(distillation_of(corpus, tmp_path / "whole", **changes))
    for stop in (1, 2, 3, 5, 0):
        train(distillation_of(corpus, tmp_path / "parts", **changes), stop_after=stop)
    assert_same_results(tmp_path / "parts", tmp_path / "whole")


def test_a_run_survives_kills_within_and_between_stages(corpus, undisturbed, tmp_path):
    recipe = distillation_of(corpus, tmp_path)
    for moment in (Moment("step", 2, KILL), Moment("saving", 20, KILL), Moment("evaluating", 0, KILL)):
        assert exit_code(start(recipe, moment)) == -signal.SIGKILL
    assert exit_code(start(recipe)) == 0
    assert_same_results(tmp_path, undisturbed)


def test_a_run_resumes_with_its_strategy_and_its_teacher_which_may_have_moved(corpus, undisturbed, tmp_path):
    train(distillation_of(corpus, tmp_path / "out"), stop_after=3)
    with pytest.raises(InputError, match="strategy = pkt, this recipe has jkt"):
        train(distillation_of(corpus, tmp_path / "out", strategy="jkt"))
    other = folder.load(corpus / "teacher")
    other.blocks[0].enter.bias.data += 1
    folder.save(other, tmp_path / "teacher")
    problem = r"has teacher '.+/teacher', and '.+' has different weights; .* restore teacher="
    with pytest.raises(InputError, match=problem):
        train(distillation_of(corpus, tmp_path / "out", teacher=str(tmp_path / "teacher")))
    shutil.copytree(corpus / "teacher", tmp_path / "moved")
    assert train(distillation_of(corpus, tmp_path / "out", teacher=str(tmp_path / "moved"))).finished
    assert_same_results(tmp_path / "out", undisturbed)


# Unusual pairs of teacher and student, and further use of a student


def test_a_student_with_mixed_attention_learns_from_a_teacher_with_plain_attention(corpus, tmp_path):
    sizes = {"positions": 32, "narrow": 8, "width": 16, "block_width": 8, "depth": 3, "n_heads": 2, "inner": 16}
    change = sizes | {"feedforwards": 2, "convolution": "span", "relative": "composite"}
    student = lightbert.build(replace(PRESETS["mobilebert"], **change, vocab=Shards(corpus / "data").vocab))
    folder.save(student, tmp_path / "combined")
    recipe = distillation_of(corpus, tmp_path / "out", model=str(tmp_path / "combined"), change={})
    outcome = train(recipe)
    assert outcome.finished
    assert {"at_1", "at_3", "fmt_3"} <= outcome.held_out.keys()
    name = "blocks.1.mixer.convolution.kernel.weight"
    assert not torch.equal(student.state_dict()[name], weights(tmp_path / "out")[name])


def test_a_wider_hugging_face_teacher_works_with_learned_maps(corpus, tmp_path):
    torch.manual_seed(1)
    shards = Shards(corpus / "data")
    config = Bert(vocab=shards.vocab, positions=32, narrow=24, width=24, depth=3, n_heads=2, inner=32)
    model = lightbert.build(config, heads={"mlm": {}})
    model.tokenizer = shards.tokenizer()
    huggingface.write(model, tmp_path / "bert")
    changes = {"teacher": str(tmp_path / "bert"), "transfer": {"maps": "linear"}}
    assert train(distillation_of(corpus, tmp_path / "out", **changes), stop_after=5).step == 5
    assert train(distillation_of(corpus, tmp_path / "out", **changes)).finished
    student = lightbert.load(tmp_path / "out/final")
    assert student.width == 16
    assert not [name for name in student.state_dict() if "maps" in name]


def test_a_student_starts_from_a_folder_and_can_be_converted_and_get_a_task_head(corpus, tmp_path):
    sizes = {"block_width": 8, "depth": 3, "n_heads": 2, "inner": 16}
    write_model(tmp_path / "student", Shards(corpus / "data").vocab, "mobilebert-nano", **sizes)
    recipe = distillation_of(corpus, tmp_path / "out", strategy="pd", model=str(tmp_path / "student"), change={})
    assert train(recipe).finished
    student = lightbert.load(tmp_path / "out" / "final")
    huggingface.write(student, tmp_path / "hf")
    back = lightbert.load(tmp_path / "hf")
    ids = torch.randint(5, student.table.shape[0], (2, 12))
    with torch.no_grad():
        assert torch.equal(student(ids), back(ids))
    assert {*back.heads} == {"mlm", "nsp"}
    add_head(student, "classify", {"labels": 3})
    assert student.heads["classify"](student(torch.tensor([[2, 7, 8, 3]]))).shape == (1, 3)
