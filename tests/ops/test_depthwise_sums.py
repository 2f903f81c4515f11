"""The backward kernel of the depthwise convolution adds other gradients of its input."""

import pytest
import torch
from gradients import TEXTS, draw, draw_texts
from kernels import DEVICE, HALF, MARKS

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("number", [1, 2])
def test_other_gradients_are_added_before_the_result_is_rounded(number, kind):
    from lightbert.ops.depthwise import depthwise_backward_operator as backward
    from lightbert.ops.kernels.depthwise import put_taps_first

    grad, x, *more = (draw(2, 37, 70).to(DEVICE, HALF) for _ in range(2 + number))
    weight, texts = put_taps_first(draw(70, 9).float().to(DEVICE)), draw_texts(kind, 2, 37)
    texts = None if texts is None else texts.to(DEVICE)
    exact, of_weight, of_bias = backward(grad.float(), x.float(), weight, texts)
    found = backward(grad, x, weight, texts, *more)
    expected = exact + sum(each.float() for each in more)
    torch.testing.assert_close(found[0].float(), expected, rtol=2**-8, atol=2**-8)
    # Tokens of the padding have no gradient of their own.
    untouched = exact == 0
    torch.testing.assert_close(found[0][untouched], sum(each.float() for each in more).to(HALF)[untouched])
    for one, other in zip(found[1:], (of_weight, of_bias), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
