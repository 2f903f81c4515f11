"""A new objective of pre-training, added by the steps of CONTRIBUTING.md, touches two files and trains to the end."""

from source_copy import SourceCopy
from tiny_runs import write_corpus

import lightbert

# Step 1: a class with its title, its models and its losses.
OBJECTIVE = '''"""Random-token detection: tokens are replaced at random, without a generator."""

from collections.abc import Mapping
from typing import ClassVar, Self

import torch.nn.functional as F
from torch import Tensor

from lightbert.data.batch import Batch
from lightbert.data.masking import fill_positions
from lightbert.models import Model
from lightbert.objectives.mlm import Masker
from lightbert.objectives.objective import Losses, Objective, Start, ratio, stack
from lightbert.ops.randomness import Stream, uniform


class RandomTokenDetection(Objective):
    """Detect the tokens that were replaced by others, drawn uniformly."""

    title: ClassVar[str] = "random-token detection"
    tallies = ("rtd_loss", "tokens")

    def __init__(self, model: Model, masker: Masker) -> None:
        super().__init__()
        self.model, self.masker = model, masker

    @classmethod
    def start(cls, run: Start) -> Self:
        """Build the objective of a run."""
        return cls(run.model({"rtd": {}}), run.masker)

    def prepare(self, batch: Batch) -> Batch:
        """Choose the tokens."""
        return self.masker(batch)

    def counts(self, batch: Batch) -> Tensor:
        """Count the tokens."""
        return stack((batch.mask != 0).sum()).float()

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """Compute the mean loss per token."""
        chances = uniform(self.masker.seed, Stream.SAMPLE, batch.step, batch.rows.unsqueeze(1), batch.positions)
        drawn = (chances * self.masker.vocab).long()
        ids = fill_positions(batch.ids, batch.positions, batch.weights, drawn)
        original = fill_positions(batch.ids, batch.positions, batch.weights, batch.targets)
        logits = self.model.heads["rtd"](self.model(ids, batch.mask, batch.segments))
        losses = F.binary_cross_entropy_with_logits(logits.float(), (ids != original).float(), reduction="none")
        loss = losses.masked_fill(batch.mask == 0, 0.0).sum()
        return Losses(loss / counts[0], stack(loss, counts[0]))

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """Return the loss."""
        return dict.fromkeys(("loss", "rtd_loss"), ratio(tally, "rtd_loss", "tokens"))
'''
# Step 2: its lines in the table of objectives.
LINES = {
    '    "mlm": ': '    "random": "lightbert.objectives.random_tokens:RandomTokenDetection",\n',
    '"mlm"]': '"random", ',
}
COMMAND = "import sys; from lightbert.cli import main; sys.exit(main(sys.argv[1:]))"


def test_a_new_objective_touches_two_files_and_a_run_ends_with_a_model_and_its_card(tmp_path):
    copy, table, objective = SourceCopy(tmp_path), "objectives/__init__.py", "objectives/random_tokens.py"
    (copy.package / objective).write_text(OBJECTIVE)
    for before, text in LINES.items():
        copy.insert(table, before, text)
    assert copy.changed() == {table, objective}

    corpus, out = write_corpus(tmp_path / "corpus"), tmp_path / "run"
    words = ["pretrain", "tiny-rtd", "objective=random", f"data={corpus / 'data'}", f"model={corpus / 'model'}"]
    sizes = ["steps=3", "batch=4", "length=16", "workers=0", "evaluate_batches=2", "device=cpu", "schedule.warmup=0.1"]
    done = copy.run(COMMAND, *words, f"out={out}", *sizes)
    assert "held out: loss " in done.stdout
    card = (out / "final" / "README.md").read_text()
    assert "ConvBERT encoder, pre-trained by random-token detection" in card
    assert "| rtd_loss |" in card
    assert set(lightbert.load(out / "final").heads) == {"rtd"}
