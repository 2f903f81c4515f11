"""The distillation objective: what each stage computes, and what must not change the loss."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from transfer_pairs import DEPTH, MIXED, STUDENT, TEACHER, batch_of, distillation, masker, model_of, numbers

from lightbert.data.batch import Batch
from lightbert.errors import InputError
from lightbert.models.bert import Bert
from lightbert.nn import attention
from lightbert.objectives.distill import losses
from lightbert.objectives.distill.objective import Distillation, trace
from lightbert.objectives.distill.stages import Transfer, stages
from lightbert.objectives.mlm import MaskedLanguageModelling
from lightbert.train.compilation import compile_objective

STRATEGIES = ("pd", "akt", "jkt", "pkt")
RELEASED = Transfer(statistics="released", padding="released")


def stages_of(strategy, **changes):
    return stages(strategy, **{"depth": DEPTH, "transfer_steps": 9, "predict_steps": 5, **changes})


def prepared(objective, **sizes):
    return objective.prepare(batch_of(**sizes))


def longer(batch: Batch, columns: int) -> Batch:
    """The same masked texts with more padding; filler positions stay where they are."""
    ids = nn.functional.pad(batch.ids, (0, columns), value=7)
    mask = nn.functional.pad(batch.mask, (0, columns), value=False)
    return replace(batch, ids=ids, mask=mask, segments=nn.functional.pad(batch.segments, (0, columns)))


def count_blocks(model):
    """Count the blocks that run from now on."""
    ran = []
    for block in model.blocks:
        block.register_forward_hook(lambda *_: ran.append(1))
    return ran


def test_the_transfer_loss_between_a_model_and_itself_is_zero():
    teacher = model_of(TEACHER)
    for transfer in (Transfer(), Transfer(feature_maps="plain"), Transfer(padding="released")):
        objective = Distillation(copy.deepcopy(teacher), masker(), teacher, transfer=transfer)
        shown = numbers(objective, prepared(objective))
        assert {shown[name] for name in shown if name.startswith("fmt")} == {0.0}
        assert {shown[name] for name in shown if name.startswith("at")} == {0.0}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_logged_loss_is_the_minimised_loss(strategy):
    objective = distillation(alpha=0.3)
    batch = prepared(objective)
    for stage in stages_of(strategy):
        objective.set_stage(stage)
        total = objective(batch, objective.counts(batch)).total.item()
        assert numbers(objective, batch)["loss"] == pytest.approx(total, rel=1e-5)


def test_a_stage_of_one_layer_runs_only_the_layers_up_to_it_and_no_head():
    objective = distillation()
    for head in objective.student.heads.values():
        head.register_forward_hook(lambda *_: pytest.fail("a head ran"))
    taught, learned = count_blocks(objective.teacher), count_blocks(objective.student)
    batch = prepared(objective)
    for number, stage in enumerate(stages_of("pkt")[:DEPTH], start=1):
        taught.clear(), learned.clear()
        objective.set_stage(stage)
        objective(batch, objective.counts(batch))
        assert (len(taught), len(learned)) == (number, number)


def test_the_teacher_does_not_run_if_it_is_not_needed():
    objective = distillation(alpha=1.0)
    ran, batch = count_blocks(objective.teacher), prepared(objective)
    objective.set_stage(stages_of("pd")[0])
    shown = numbers(objective, batch)
    assert ran == []
    assert "kd_loss" not in shown
    assert "fmt" not in shown


def test_only_the_compared_layer_computes_attention_scores(monkeypatch):
    formed, scores = [], attention.relative_scores
    monkeypatch.setattr(attention, "relative_scores", lambda *given: formed.append(1) or scores(*given))
    objective = distillation()
    objective.set_stage(stages_of("pkt")[2])
    batch = prepared(objective)
    objective(batch, objective.counts(batch))
    assert len(formed) == 2, "one of the teacher, one of the student"


def test_a_trace_at_full_depth_equals_the_models_output():
    # Only scores are computed in single precision.
    model, batch = model_of(STUDENT).double(), batch_of()
    states = model(batch.ids, batch.mask, batch.segments)
    assert torch.equal(trace(model, batch, range(0), depth=DEPTH).last, states)
    seen = trace(model, batch, range(DEPTH + 1), attention=range(1, DEPTH + 1))
    torch.testing.assert_close(seen.last, states, rtol=0, atol=1e-5 * states.abs().amax().item())
    assert [*seen.states] == [0, 1, 2, 3]
    assert seen.scores[1].shape == (4, 4, 12, 12)
    assert (seen.scores[1][1, :, :, 9:] == float("-inf")).all()


def test_checkpointing_does_not_change_gradients():
    gradients = []
    for checkpointing in (False, True):
        objective = distillation()
        objective.student.checkpointing = checkpointing
        batch = prepared(objective)
        objective(batch, objective.counts(batch)).total.backward()
        gradients.append([p.grad for p in objective.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


def test_transfer_is_divided_by_the_number_of_layers_also_if_one_is_compared():
    objective = distillation()
    objective.set_stage(stages_of("pkt")[1])
    shown = numbers(objective, prepared(objective))
    assert shown["loss"] == pytest.approx((shown["fmt_2"] + shown["at_2"]) / DEPTH)
    assert "fmt_1" not in shown
    assert "mlm_loss" not in shown


def test_layer_losses_equal_those_of_the_functions():
    objective = distillation(transfer=Transfer(padding="released"))
    batch = prepared(objective)
    shown = numbers(objective, batch)
    taught, learned = (
        trace(model, batch, range(2, 3), attention=range(2, 3)) for model in (objective.teacher, objective.student)
    )
    keep = torch.ones_like(batch.mask)
    at = losses.attention_transfer(taught.scores[2], learned.scores[2], keep) / keep.numel()
    assert shown["at_2"] == pytest.approx(at.item(), rel=1e-5)
    maps = losses.normalised_transfer(taught.states[2], learned.states[2], keep)
    mean, variance = losses.statistics_transfer(
        losses.moments(taught.states[2][None]), losses.moments(learned.states[2]), keep
    )
    assert shown["fmt_2"] == pytest.approx((100 * maps + 5000 * mean + 5 * variance).item() / keep.numel(), rel=1e-5)


def test_released_statistics_compare_a_layer_with_all_layers_and_embeddings_of_the_teacher():
    objective = distillation(transfer=Transfer(statistics="released", feature=0, variance=0, mean=1.0))
    batch = prepared(objective)
    objective.set_stage(stages_of("pkt")[0])
    ran = count_blocks(objective.teacher)
    shown = numbers(objective, batch)
    assert len(ran) == DEPTH
    theirs = trace(objective.teacher, batch, range(DEPTH + 1)).states
    ours = trace(objective.student, batch, range(1, 2)).states[1].mean(-1)
    each = torch.stack([(state.mean(-1) - ours).square()[batch.mask].mean() for state in theirs.values()])
    assert shown["fmt_1"] == pytest.approx(each.mean().item(), rel=1e-5)


@pytest.mark.parametrize("student", [STUDENT, MIXED], ids=["attention", "mixed"])
def test_padding_does_not_change_the_loss(student):
    objective = distillation(student)
    batch = prepared(objective)
    wide = longer(batch, 4)
    ours, theirs = (objective(each, objective.counts(each)) for each in (batch, wide))
    torch.testing.assert_close(ours.total, theirs.total)
    torch.testing.assert_close(ours.tally, theirs.tally, rtol=1e-5, atol=1e-5)


def test_released_averages_include_padding():
    objective = distillation(transfer=RELEASED)
    batch = prepared(objective)
    assert objective.counts(batch)[2] == batch.ids.numel()
    assert distillation().counts(batch)[2] == batch.mask.sum()
    assert numbers(objective, longer(batch, 4))["fmt"] != pytest.approx(numbers(objective, batch)["fmt"], rel=1e-4)


@pytest.mark.parametrize(
    ("strategy", "transfer"), [("pd", RELEASED), ("akt", Transfer()), ("jkt", RELEASED), ("pkt", Transfer())]
)
def test_two_halves_of_a_batch_give_the_gradients_of_the_whole(strategy, transfer):
    objective, raw = distillation(transfer=transfer), batch_of()
    whole, halves = objective.prepare(raw), [objective.prepare(half) for half in raw.split(2)]
    counts = objective.counts(whole)
    torch.testing.assert_close(sum(objective.counts(half) for half in halves), counts)
    for stage in stages_of(strategy):
        objective.set_stage(stage)
        total = objective(whole, counts)
        parts = [objective(half, counts) for half in halves]
        torch.testing.assert_close(sum(part.total for part in parts), total.total, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(sum(part.tally for part in parts), total.tally, rtol=1e-5, atol=1e-5)


def test_evaluation_computes_all_losses_in_every_stage():
    objective = distillation()
    batch = prepared(objective)
    shown = []
    for stage in [*stages_of("pkt"), *stages_of("pd")]:
        objective.set_stage(stage)
        objective.eval()
        shown.append(numbers(objective, batch))
        objective.train()
    assert all(each == shown[0] for each in shown)
    assert {"loss", "mlm_loss", "mlm_accuracy", "kd_loss", "nsp_loss", "nsp_accuracy", "fmt", "at"} <= shown[0].keys()
    assert {f"{what}_{layer}" for what in ("fmt", "at") for layer in (1, 2, 3)} <= shown[0].keys()


def test_a_student_without_a_teacher_has_the_masked_language_modelling_loss():
    student = model_of(replace(STUDENT, attention_dropout=0.0))
    objective, plain = Distillation(student, masker()), MaskedLanguageModelling(student, masker())
    batch = prepared(objective)
    ours, theirs = (each(batch, each.counts(batch)) for each in (objective, plain))
    torch.testing.assert_close(ours.total, theirs.total)
    assert numbers(objective, batch).keys() == plain.summary(dict(zip(plain.tallies, theirs.tally, strict=True))).keys()


def test_a_student_with_a_teacher_has_no_dropout():
    assert not distillation().student.blocks[0].mixer.training
    assert distillation(dropout=True).train().student.blocks[0].mixer.training
    assert Distillation(model_of(STUDENT), masker()).train().student.blocks[0].mixer.training
    objective = distillation()
    batch = prepared(objective.train())
    assert numbers(objective, batch) == numbers(objective, batch)


def test_the_teacher_is_neither_trained_nor_saved_and_moves_with_the_objective():
    objective = distillation()
    ours = {id(p) for p in objective.parameters()}
    assert not ours & {id(p) for p in objective.teacher.parameters()}
    assert not any("teacher" in name for name in objective.state_dict())
    assert objective.models() == {"final": objective.student}
    assert not objective.train().teacher.training
    batch = prepared(objective)
    objective(batch, objective.counts(batch)).total.backward()
    assert all(p.grad is None for p in objective.teacher.parameters())
    assert objective.double().teacher.table.dtype is torch.double


def test_a_mixed_student_is_compared_on_its_attention_heads():
    objective = distillation(MIXED)
    batch = prepared(objective)
    shown = numbers(objective, batch)
    taught, learned = (
        trace(model, batch, range(0), attention=range(1, 2)) for model in (objective.teacher, objective.student)
    )
    assert (taught.scores[1].shape[1], learned.scores[1].shape[1]) == (4, 2)
    expected = losses.attention_transfer(taught.scores[1][:, :2], learned.scores[1], batch.mask) / batch.mask.sum()
    assert shown["at_1"] == pytest.approx(expected.item(), rel=1e-5)


def test_maps_to_a_teacher_of_another_family_are_trained_and_not_saved():
    teacher = Bert(vocab=40, positions=64, narrow=12, width=12, depth=3, n_heads=2, inner=24)
    objective = distillation(teacher=teacher, transfer=Transfer(maps="linear", attention=0))
    objective.set_stage(stages_of("pkt")[1])
    batch = prepared(objective)
    objective(batch, objective.counts(batch)).total.backward()
    assert [layer.weight.grad is not None for layer in objective.maps] == [False, True, False]
    assert objective.maps[1].weight.shape == (12, 16)
    assert not any("maps" in name for name in objective.models()["final"].state_dict())
    assert "at" not in numbers(objective, batch)


@pytest.mark.parametrize(
    ("transfer", "logged"),
    [(Transfer(attention=0), {"fmt"}), (Transfer(feature=0, mean=0, variance=0), {"at"}), (Transfer(), {"fmt", "at"})],
)
def test_losses_with_weight_zero_are_not_logged(transfer, logged):
    objective = distillation(transfer=transfer)
    assert {"fmt", "at"} & numbers(objective, prepared(objective)).keys() == logged


def test_packed_texts_are_compared_text_by_text():
    objective = distillation()
    batch = prepared(objective, padding=0)
    packed = replace(batch, mask=torch.tensor([[1] * 7 + [2] * 3 + [0] * 2] * 4, dtype=torch.int32))
    assert objective.counts(packed)[2] == 40
    assert objective(packed, objective.counts(packed)).total.isfinite()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"alpha": 1.5}, r"alpha must be in \[0, 1\], got 1\.5"),
        ({"student": replace(STUDENT, depth=2)}, "the same number of layers, got 3 and 2"),
        (
            {"transfer": Transfer(feature=0, mean=0, variance=0, attention=0)},
            "at least one weight of the transfer must be > 0",
        ),
        (
            {"transfer": Transfer("plain", feature=0, attention=0)},
            "at least one weight of the transfer must be > 0; .* use strategy=pd",
        ),
    ],
)
def test_invalid_arguments_raise_an_error(options, sentence):
    with pytest.raises(InputError, match=sentence):
        distillation(**options)


def test_a_teacher_or_student_without_an_mlm_head_raises_an_error():
    with pytest.raises(InputError, match="the student has no 'mlm' head"):
        Distillation(model_of(STUDENT, heads={}), masker())
    silent = model_of(TEACHER, heads={})
    with pytest.raises(InputError, match="alpha < 1 requires a teacher with an 'mlm' head"):
        Distillation(model_of(STUDENT), masker(), silent)
    Distillation(model_of(STUDENT), masker(), silent, transfer=Transfer(), alpha=1.0)


def test_transfer_without_a_teacher_and_a_stage_without_a_transfer_raise_errors():
    with pytest.raises(InputError, match=r"alpha must be in \[0, 1\], got 1\.5"):
        Distillation(model_of(STUDENT), masker(), alpha=1.5)
    with pytest.raises(InputError, match="transfer requires a teacher; add teacher=PATH"):
        Distillation(model_of(STUDENT), masker(), transfer=Transfer())
    with pytest.raises(InputError, match="stage 'transfer' transfers layers and requires transfer=, got None"):
        distillation(transfer=None).set_stage(stages_of("jkt")[0])


@pytest.mark.parametrize(("how", "strategy"), [("blocks", "pkt"), ("whole", "akt")])
def test_the_compiled_objective_gives_the_same_losses(how, strategy, monkeypatch):
    torch.compiler.reset()
    plain, compiled = distillation(), distillation()
    # Only tracing is tested; code generation would take minutes.
    make = nn.Module.compile
    traced = {"backend": "eager", "fullgraph": True}
    monkeypatch.setattr(nn.Module, "compile", lambda self, **given: make(self, **given, **traced))
    compile_objective(compiled, how, torch.device("cpu"), compiled.teacher)
    batch = prepared(plain)
    # One layer stage covers all of them: a compared layer with layers below it.
    for stage in stages_of(strategy)[-3::2]:
        results = []
        for objective in (plain, compiled):
            objective.set_stage(stage)
            for name, p in objective.named_parameters():
                p.requires_grad_(stage.scales(name) != 0)
            with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
                results.append(objective(batch, objective.counts(batch)))
        torch.testing.assert_close(results[0].tally, results[1].tally, rtol=1e-5, atol=1e-5)
