"""What stands before and after every module."""

from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import Linear, ReLU, Sequential, capture_outputs
from fp16sim.nn.capture import current_gates, gates


def test_gates_see_every_module_in_order_and_may_change_what_passes():
    seen = []

    def entering(module, inputs):
        seen.append(("in", type(module).__name__, len(inputs)))
        return inputs

    def leaving(module, output):
        seen.append(("out", type(module).__name__, output.shape))
        return output * 2.0 if isinstance(module, ReLU) else output

    model = Sequential(Linear(2, 3), ReLU())
    x = Tensor([[1.0, 2.0]])
    plain = model(x)
    with gates(entering, leaving), capture_outputs() as captured:
        changed = model(x)
    assert (changed.data == plain.data * 2).all()
    assert seen == [
        ("in", "Sequential", 1),
        ("in", "Linear", 1),
        ("out", "Linear", (1, 3)),
        ("in", "ReLU", 1),
        ("out", "ReLU", (1, 3)),
        ("out", "Sequential", (1, 3)),
    ]
    assert captured[1][1] is changed  # what is captured is what left
    assert current_gates() is None


def test_the_innermost_gates_hold_and_go_even_after_an_error():
    with gates(lambda module, inputs: inputs, lambda module, output: output * 3.0):
        try:
            with gates(lambda module, inputs: inputs, lambda module, output: output * 2.0):
                assert ReLU()(Tensor([1.0])).item() == 2.0
                raise KeyError
        except KeyError:
            pass
        assert ReLU()(Tensor([1.0])).item() == 3.0
    assert ReLU()(Tensor([1.0])).item() == 1.0
