"""Record mindspore's three dynamic scalers in PyNative mode, on the CPU.

pip install mindspore==2.10.0 "numpy<2"; python record_mindspore.py

TrainOneStepWithLossScaleCell asks the device for overflow, and has no question for a CPU: the script asks
mindspore.amp.all_finite about the unscaled gradients instead, which is what the questions of the other devices ask.
"""

import os

os.environ["GLOG_v"] = "3"  # noqa: SIM112

import mindspore as ms
import numpy as np
from mindspore import Tensor, amp, nn
from recording import SCALES, WINDOWS, delivered, divisor, record, same

EXTREMES = (2.0**100, 2.0**120, 2.0**126, 2.0**127)
ms.set_context(mode=ms.PYNATIVE_MODE)


class Net(nn.Cell):
    """A loss of 1 with one parameter."""

    def __init__(self):
        super().__init__()
        self.weight = ms.Parameter(Tensor([0.0], ms.float32), name="weight")

    def construct(self):
        return self.weight.sum() * 0.0 + 1.0


SEEN = []


class WatchedSGD(nn.SGD):
    """SGD that keeps the gradient it was stepped with."""

    def construct(self, gradients):
        SEEN.append(float(gradients[0].asnumpy()[0]))
        return super().construct(gradients)


class Step(nn.TrainOneStepWithLossScaleCell):
    """One step; the scaled gradient is what the case wants, and the scale that multiplied the loss is noted."""

    def deliver(self, kind):
        def gradients_of(network, weights):
            def gradients(*inputs):
                self.used = float(inputs[-1].asnumpy())
                self.gradient = delivered(kind, self.used)
                return (Tensor([self.gradient], ms.float32),)

            return gradients

        self.grad = gradients_of

    def get_overflow_status(self, status, gradients):
        return self.logic_not(amp.all_finite(gradients))


def outcome(gradient, used, after):
    if not SEEN:
        return used, None, False
    (seen,) = SEEN

    def explains(scale):
        with np.errstate(all="ignore"):
            inverse = np.float32(1.0) / np.float32(scale)
            kept = same(float(np.float32(gradient) * inverse), seen)
            flushed = seen == 0.0 and inverse < 2.0**-126  # some of its threads flush subnormals, some do not
            return kept or flushed

    return used, divisor((used, after), explains), True


class Driver:
    def __init__(self):
        self.net = Net()
        self.optimizer = WatchedSGD(self.net.trainable_params(), 0.5)


class Manager(Driver):
    """DynamicLossScaleManager moves the scale on the host; the cell takes it as a tensor."""

    def __init__(self, **options):
        super().__init__()
        self.manager = amp.DynamicLossScaleManager(**options)
        self.cell = Step(self.net, self.optimizer, Tensor(float(self.manager.get_loss_scale()), ms.float32))

    def step(self, kind):
        used = self.manager.get_loss_scale()
        self.cell.set_sense_scale(Tensor(float(used), ms.float32))
        self.cell.deliver(kind)
        SEEN.clear()
        _, overflow, _ = self.cell()
        with np.errstate(over="ignore"):
            assert self.cell.used == float(np.float32(used))
        self.manager.update_loss_scale(bool(overflow))
        return outcome(self.cell.gradient, used, self.manager.get_loss_scale())

    def state(self):
        """The attributes: mindspore saves none of them."""
        names = (
            "loss_scale",
            "cur_iter",
            "last_overflow_iter",
            "bad_step",
            "increase_ratio",
            "decrease_ratio",
        )
        return {name: getattr(self.manager, name) for name in names}


class UpdateCell(Driver):
    """DynamicLossScaleUpdateCell moves the scale inside TrainOneStepWithLossScaleCell."""

    def __init__(self, **options):
        super().__init__()
        arguments = {"loss_scale_value": 2.0**24, "scale_factor": 2, "scale_window": 2000, **options}
        self.update = nn.DynamicLossScaleUpdateCell(**arguments)
        self.cell = Step(self.net, self.optimizer, self.update)

    def step(self, kind):
        self.cell.deliver(kind)
        SEEN.clear()
        self.cell()
        return outcome(self.cell.gradient, self.cell.used, float(self.cell.scale_sense.asnumpy()))

    def state(self):
        """The parameters of the cell, which a checkpoint holds."""
        return {
            "scale_sense": float(self.cell.scale_sense.asnumpy()),
            "current_iterator_step": int(self.update.cur_iter.asnumpy()),
            "last_overflow_iterator_step": int(self.update.last_overflow_iter.asnumpy()),
        }


class Amp(Driver):
    """The loop of mindspore's guide: scale, all_finite of the scaled gradients, unscale, adjust."""

    def __init__(self, **options):
        super().__init__()
        self.scaler = amp.DynamicLossScaler(**options)

    def step(self, kind):
        scaler = self.scaler
        used = float(scaler.scale_value.asnumpy())
        assert same(float(scaler.scale(Tensor(1.0, ms.float32)).asnumpy()), used)
        gradient = delivered(kind, used)
        gradients = (Tensor([gradient], ms.float32),)
        SEEN.clear()
        finite = amp.all_finite(gradients)
        if finite:
            self.optimizer(scaler.unscale(gradients))
        scaler.adjust(finite)
        return outcome(gradient, used, float(scaler.scale_value.asnumpy()))

    def state(self):
        """The parameters of the scaler."""
        return {
            "scale_value": float(self.scaler.scale_value.asnumpy()),
            "counter": int(self.scaler.counter.asnumpy()),
        }


def drawer(initial, low, factors, always):
    def draw(rng):
        options = {"scale_window": rng.choice(WINDOWS)}
        if always or rng.random() < 0.9:
            scales = [scale for scale in SCALES if scale >= low]
            options[initial] = rng.choice(scales if rng.random() < 0.75 else EXTREMES)
        options["scale_factor"] = rng.choice(factors)
        return options, options["scale_window"]

    return draw


def main():
    common = {
        "package": "mindspore",
        "version": ms.__version__,
        "recorded_with": {"mindspore": ms.__version__, "numpy": np.__version__},
        "script": __file__,
    }
    record(
        "mindspore_manager",
        Manager,
        drawer("init_loss_scale", 1.0, (2, 2, 2, 2, 3, 4, 1.5, 10), False),
        seed=416,
        api="mindspore.amp.DynamicLossScaleManager: get_loss_scale, update_loss_scale; TrainOneStepWithLossScaleCell",
        raises=(RuntimeError,),
        odd=[
            {"scale_window": 2, "scale_factor": 1},
            {"scale_window": 2, "scale_factor": 0.5},
            ({"scale_window": 2, "init_loss_scale": 4.0}, "o" * 1003 + "."),
        ],
        refused=[{"scale_window": 0}, {"scale_factor": 0}, {"init_loss_scale": 0.5}, {"scale_window": -1}],
        **common,
    )
    record(
        "mindspore_amp",
        Amp,
        drawer("scale_value", 1.0, (2, 2, 2, 2, 3, 4, 10), True),
        seed=417,
        api="mindspore.amp.DynamicLossScaler: scale, all_finite, unscale, adjust",
        odd=[{"scale_value": 1024.0, "scale_window": 2, "scale_factor": 1}],
        refused=[
            {"scale_value": 4.0, "scale_window": 0, "scale_factor": 2},
            {"scale_value": 4.0, "scale_window": 2, "scale_factor": 0},
            {"scale_value": 4.0, "scale_window": 2, "scale_factor": 1.5},
            {"scale_value": 0.5, "scale_window": 2, "scale_factor": 2},
        ],
        **common,
    )
    record(
        "mindspore_cell",
        UpdateCell,
        drawer("loss_scale_value", 0.0, (2, 2, 2, 2, 3, 4, 1.5, 10), False),
        seed=418,
        api="mindspore.nn.DynamicLossScaleUpdateCell in TrainOneStepWithLossScaleCell",
        notes="The test looks at the unscaled gradients. "
        "Left out: loss_scale_value 2**24, scale_factor 2, scale_window 2000.",
        odd=[
            {"scale_window": 0},
            {"scale_window": -1},
            {"scale_window": 2, "scale_factor": 1},
            {"scale_window": 2, "scale_factor": 0.5},
            {"scale_window": 2, "scale_factor": 0},
        ],
        **common,
    )


main()
