"""A new mixer, added by the steps of CONTRIBUTING.md, touches two files; all else takes it or says why not."""

import json

from source_copy import SourceCopy

# Step 1: a class.
MIXER = '''"""Depthwise convolution alone, without attention."""

from torch import Tensor, nn

from lightbert.nn.attention import Mixer
from lightbert.nn.convolution import Depthwise
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record


class ConvolutionAlone(Mixer):
    """A projection of the values, and a depthwise convolution of the result."""

    def __init__(self, width: int, kernel: int, value_width: int | None = None) -> None:
        super().__init__()
        self.width, self.value_width, self.out_width = width, value_width, width
        self.value = nn.Linear(value_width or width, width)
        self.depthwise = Depthwise(width, kernel, bias=False)

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return self.depthwise(self.value(x if value is None else value), mask)

    def own_flops(self, tokens: int) -> int:
        """All FLOPs are those of its layers."""
        return 0
'''
# Step 2: its keys, and its construction.
IMPORT = "from lightbert.nn.alone import ConvolutionAlone\n"
KEY = '    alone: bool = False\n    """Convolution without attention."""\n'
CASE = "        if self.alone:\n            return ConvolutionAlone(reads, self.kernel, value_width)\n"

COMMANDS = """
import sys
from dataclasses import replace
import torch, lightbert
from tokenizers import Tokenizer, models, pre_tokenizers
from lightbert.cli import main
from lightbert.models import folder, preset
for name in ("bert-tiny", "mobilebert-nano"):
    assert main(["info", name, "change.alone=true", "--json"]) == 0
model = lightbert.build(replace(preset("mobilebert-nano"), vocab=6, alone=True), heads={"mlm": {}, "nsp": {}}).eval()
words = {word: number for number, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"))}
model.tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
model.tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
one, other = torch.randint(0, 6, (1, 5)), torch.randint(0, 6, (1, 3))
packed = model(torch.cat([one, other], dim=1), torch.tensor([[1] * 5 + [2] * 3]))
torch.testing.assert_close(packed[:, :5], model(one), rtol=1e-5, atol=1e-5)
torch.testing.assert_close(packed[:, 5:], model(other), rtol=1e-5, atol=1e-5)
lightbert.save(model, sys.argv[1])
assert torch.equal(lightbert.load(sys.argv[1])(one), model(one))
assert main(["analyse", "attention", sys.argv[1], "--text", "word word", "--out", sys.argv[1] + ".html"]) == 1
assert main(["analyse", "depthwise-kernels", sys.argv[1], "--out", sys.argv[1] + ".json"]) == 0
assert main(["export", sys.argv[1], "--out", sys.argv[1] + "-onnx", "--to", "onnx"]) == 1
"""


def test_a_new_mixer_touches_two_files_and_everything_takes_it_or_says_why_not(tmp_path):
    copy, architecture = SourceCopy(tmp_path), "models/architecture.py"
    (copy.package / "nn" / "alone.py").write_text(MIXER)
    copy.insert(architecture, "from lightbert.nn.attention", IMPORT)
    copy.insert(architecture, "    aliases:", KEY)
    copy.insert(architecture, '        if self.local == "none":', CASE)
    assert copy.changed() == {"nn/alone.py", architecture}
    done = copy.run(COMMANDS, tmp_path / "model")
    sizes, _ = json.JSONDecoder().raw_decode(done.stdout)
    # 4 layers of width 128, each with one projection instead of three, and kernels of 9 taps.
    expected = 128 * (2 * 128 * 128 + 2 * 128 * 9)
    assert sizes["flops"]["mixer_512"] == 4 * expected
    assert "'attention' requires attention in every layer, but the model has ConvolutionAlone" in done.stderr
    assert "ConvolutionAlone can't be exported to ONNX" in done.stderr
