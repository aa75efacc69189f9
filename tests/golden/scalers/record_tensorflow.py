"""Record tf_keras' LossScaleOptimizer (keras2) and TensorFlow's DynamicLossScale (tf_v1), eagerly on the CPU.

pip install tensorflow-cpu==2.21.0 tf-keras==2.21.0; python record_tensorflow.py
"""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import math

import numpy as np
import tensorflow as tf
import tf_keras
from recording import SCALES, WINDOWS, delivered, divisor, record, same

EXTREMES = (2.0**-126, 2.0**-120, 2.0**120, 2.0**126, 2.0**127)
MULTIPLIERS = (2.0,) * 6 + (1.5, 3.0, 4.0, 10.0)
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)


def watched(gradient, parameter):
    """Give a true loss of 1 whose gradient, times the scale, is `gradient`."""

    @tf.custom_gradient
    def loss(weight):
        return weight * 0.0 + 1.0, lambda upstream: tf.constant(gradient, tf.float32)

    return loss(parameter)


class WatchedSGD(tf_keras.optimizers.SGD):
    """SGD that keeps the gradient it was stepped with."""

    seen = None

    def apply_gradients(self, grads_and_vars, **arguments):
        pairs = list(grads_and_vars)
        self.seen = float(pairs[0][0])
        return super().apply_gradients(pairs, **arguments)


class Keras2:
    """One parameter under tf_keras.mixed_precision.LossScaleOptimizer, with a float32 loss."""

    def __init__(self, **options):
        self.inner = WatchedSGD(0.5)
        self.optimizer = tf_keras.mixed_precision.LossScaleOptimizer(self.inner, **options)
        self.parameter = tf.Variable(0.0)

    def step(self, kind):
        optimizer = self.optimizer
        used = float(optimizer.loss_scale)
        scaled = optimizer.get_scaled_loss(tf.constant(1.0))
        assert same(float(scaled), used) or used < 2.0**-126  # its kernels flush subnormal scales to zero
        gradient = delivered(kind, used)
        (unscaled,) = optimizer.get_unscaled_gradients([tf.constant(gradient, tf.float32)])
        self.inner.seen = None
        self.parameter.assign(0.0)
        optimizer.apply_gradients([(unscaled, self.parameter)])
        if self.inner.seen is None:
            assert float(self.parameter) == 0.0
            return used, None, False
        return used, explained(gradient, self.inner.seen, used, float(optimizer.loss_scale)), True

    def state(self):
        optimizer = self.optimizer
        return {
            "current_loss_scale": float(optimizer.loss_scale),
            "good_steps": int(optimizer.dynamic_counter),
            "iterations": int(optimizer.iterations),
        }


def explained(gradient, seen, *scales):
    def explains(scale):
        return same(float(tf.constant(gradient, tf.float32) * (1.0 / tf.constant(scale, tf.float32))), seen)

    return divisor(scales, explains)


class WatchedDescent(tf.compat.v1.train.GradientDescentOptimizer):
    """The optimizer of TensorFlow 1 that keeps the gradient it was stepped with."""

    seen = None

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        pairs = list(grads_and_vars)
        self.seen = float(pairs[0][0])
        return super().apply_gradients(pairs, global_step, name)


class TensorFlow1:
    """One parameter under MixedPrecisionLossScaleOptimizer with a DynamicLossScale."""

    def __init__(self, **options):
        self.scale = tf.compat.v1.mixed_precision.DynamicLossScale(**options)
        self.inner = WatchedDescent(0.5)
        self.optimizer = tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer(self.inner, self.scale)
        self.parameter = tf.Variable(0.0)
        self.steps = tf.Variable(0, dtype=tf.int64)

    def step(self, kind):
        used = float(self.scale())
        gradient = delivered(kind, used)
        self.inner.seen = None
        self.parameter.assign(0.0)

        def loss():
            return watched(gradient, self.parameter)

        ((unscaled, _),) = self.optimizer.compute_gradients(loss, [self.parameter])
        self.optimizer.apply_gradients([(unscaled, self.parameter)], self.steps)
        if self.inner.seen is None:
            assert float(self.parameter) == 0.0
            return used, None, False
        return used, explained(gradient, self.inner.seen, used, float(self.scale())), True

    def state(self):
        return {
            "current_loss_scale": float(self.scale()),
            "good_steps": int(self.scale._num_good_steps),
            "global_step": int(self.steps),
        }


def draw_keras2(rng):
    options = {"dynamic_growth_steps": rng.choice(WINDOWS)}
    if rng.random() < 0.95:
        options["initial_scale"] = rng.choice(SCALES if rng.random() < 0.7 else EXTREMES)
    return options, options["dynamic_growth_steps"]


def draw_tf_v1(rng):
    options = {"increment_period": rng.choice(WINDOWS), "multiplier": rng.choice(MULTIPLIERS)}
    if rng.random() < 0.95:
        options["initial_loss_scale"] = rng.choice(SCALES if rng.random() < 0.7 else EXTREMES)
    return options, options["increment_period"]


def main():
    versions = {"tensorflow-cpu": tf.__version__, "tf-keras": tf_keras.__version__, "numpy": np.__version__}
    record(
        "keras2",
        Keras2,
        draw_keras2,
        seed=403,
        package="tf-keras",
        version=tf_keras.__version__,
        recorded_with=versions,
        script=__file__,
        api="tf_keras.mixed_precision.LossScaleOptimizer(SGD, ...): "
        "get_scaled_loss, get_unscaled_gradients, apply_gradients",
        notes="The test looks at the unscaled gradients: a finite scaled gradient can be refused.",
        odd=[
            {"dynamic_growth_steps": 0},
            {"dynamic_growth_steps": -1},
            {"dynamic_growth_steps": 2, "initial_scale": 2.0**-149},
            {"dynamic_growth_steps": 2, "initial_scale": 0.0},
            {"dynamic_growth_steps": 2, "initial_scale": math.inf},
        ],
        refused=[{"multiplier": 2.0}],
    )
    record(
        "tf_v1",
        TensorFlow1,
        draw_tf_v1,
        seed=404,
        package="tensorflow",
        version=tf.__version__,
        recorded_with=versions,
        script=__file__,
        api="tf.compat.v1.mixed_precision.DynamicLossScale "
        "under MixedPrecisionLossScaleOptimizer(GradientDescentOptimizer)",
        notes="The test looks at the unscaled gradients: a finite scaled gradient can be refused.",
        odd=[
            {"increment_period": 0},
            {"increment_period": 2, "multiplier": 1.0},
            {"increment_period": 2, "multiplier": 0.5},
            {"increment_period": 2, "initial_loss_scale": 2.0**-149},
            {"increment_period": 2, "initial_loss_scale": 0.0},
            {"increment_period": 2, "initial_loss_scale": math.inf},
        ],
    )


main()
