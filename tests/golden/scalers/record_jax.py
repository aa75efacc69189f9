"""Record jmp.DynamicLossScale and flax.training.dynamic_scale.DynamicScale on the CPU.

pip install jax==0.10.2 flax==0.12.8 jmp==0.0.4; python record_jax.py

jmp runs eagerly: under jit its pytree forgets `min_loss_scale` (cases with "jit": true show it). flax runs jitted.
"""

import functools
import importlib.metadata
import math
import os

os.environ["JAX_PLATFORMS"] = "cpu"

import flax
import jax
import jax.numpy as jnp
import jmp
import numpy as np
from flax.training.dynamic_scale import DynamicScale
from recording import SCALES, WINDOWS, delivered, divisor, record, same

EXTREMES = (2.0**-126, 2.0**-120, 2.0**120, 2.0**126, 2.0**127)


@jax.custom_vjp
def deliver(weight, gradient):
    """A loss of 1 whose scaled gradient is `gradient`."""
    return weight * 0.0 + 1.0


deliver.defvjp(
    lambda weight, gradient: (deliver(weight, gradient), gradient), lambda gradient, _: (gradient, None)
)


@jax.jit
def unscale_by(gradient, scale):
    return gradient * (1 / scale)


@jax.jit
def adjust(scale, finite):
    return scale.adjust(finite)


class Jmp:
    """The loop of jmp's docstring: scale, gradient, unscale, all_finite, adjust, select."""

    def __init__(self, *, jit=False, loss_scale, **options):
        if "min_loss_scale" in options:
            options["min_loss_scale"] = np.float32(options["min_loss_scale"])
        self.scale = jmp.DynamicLossScale(jnp.asarray(loss_scale, jnp.float32), **options)
        self.adjust = adjust if jit else lambda scale, finite: scale.adjust(finite)

    def step(self, kind):
        scale = self.scale
        used = float(scale.loss_scale)
        scaled = float(scale.scale(jnp.float32(1.0)))
        assert same(scaled, used) or used < 2.0**-126
        gradient = jnp.float32(delivered(kind, used))
        unscaled = scale.unscale(gradient)
        finite = jmp.all_finite(unscaled)
        self.scale = self.adjust(scale, finite)
        applied = bool(jmp.select_tree(finite, jnp.bool_(True), jnp.bool_(False)))
        if not applied:
            return used, None, False

        def explains(candidate):
            return same(float(unscale_by(gradient, jnp.float32(candidate))), float(unscaled))

        return used, divisor((used, float(self.scale.loss_scale)), explains), True

    def state(self):
        """The leaves of the pytree, which a checkpoint holds."""
        loss_scale, counter = jax.tree_util.tree_leaves(self.scale)
        return {"loss_scale": float(loss_scale), "counter": int(counter)}


@functools.partial(jax.jit)
def flax_step(scale, weight, gradient):
    result = scale.value_and_grad(lambda w: deliver(w, gradient))(weight)
    return result.dynamic_scale, result.finite, result.grad


class Flax:
    """The loop of flax's docstring, jitted."""

    def __init__(self, **options):
        self.scale = DynamicScale(**options)

    def step(self, kind):
        used = float(np.float32(self.scale.scale))
        gradient = jnp.float32(delivered(kind, used))
        self.scale, finite, unscaled = flax_step(self.scale, jnp.float32(0.0), gradient)
        if not bool(finite):
            return used, None, False

        def explains(candidate):
            return same(float(gradient / jnp.float32(candidate)), float(unscaled))

        return used, divisor((used, float(self.scale.scale)), explains), True

    def state(self):
        saved = flax.serialization.to_state_dict(self.scale)
        return {"fin_steps": int(saved["fin_steps"]), "scale": float(saved["scale"])}


def draw_jmp(rng):
    options = {
        "loss_scale": rng.choice(SCALES if rng.random() < 0.7 else EXTREMES),
        "period": rng.choice(WINDOWS),
    }
    if rng.random() < 0.4:
        options["factor"] = rng.choice((2, 3, 4, 10))
    if rng.random() < 0.4:
        options["min_loss_scale"] = rng.choice((1.0, 0.25, 2.0**-20, 3.0, 512.0))
    return options, options["period"]


def draw_flax(rng):
    options = {"growth_interval": rng.choice(WINDOWS)}
    if rng.random() < 0.95:
        options["scale"] = rng.choice(SCALES if rng.random() < 0.7 else EXTREMES)
    if rng.random() < 0.4:
        options["growth_factor"] = rng.choice((2.0, 1.5, 3.0, 10.0))
        options["backoff_factor"] = rng.choice((0.5, 0.25, 0.75, 0.1))
    if rng.random() < 0.3:
        options["minimum_scale"] = rng.choice((None, 1.0, 0.25, 3.0))
    return options, options["growth_interval"] + rng.randint(0, 1)


def main():
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "jmp", "flax", "numpy")}
    common = {"recorded_with": versions, "script": __file__}
    notes = "The test looks at the unscaled gradients: a finite scaled gradient can be refused."
    base = {"loss_scale": 2.0**10, "period": 2}
    record(
        "jmp",
        Jmp,
        draw_jmp,
        seed=410,
        package="jmp",
        version=versions["jmp"],
        api="jmp.DynamicLossScale, eager: scale, unscale, all_finite, adjust, select_tree",
        notes=notes,
        odd=[
            {**base, "period": 0},
            {**base, "factor": 1},
            {**base, "factor": 0.5},
            {**base, "factor": 1.5},
            {**base, "min_loss_scale": 512.0, "jit": True},
            {**base, "min_loss_scale": 0.25, "loss_scale": 1.0, "jit": True},
            {**base, "loss_scale": 0.0},
            {**base, "loss_scale": math.inf},
            {**base, "loss_scale": 2.0**-149},
        ],
        **common,
    )
    record(
        "flax",
        Flax,
        draw_flax,
        seed=411,
        package="flax",
        version=versions["flax"],
        api="flax.training.dynamic_scale.DynamicScale, jitted: value_and_grad",
        notes=notes,
        odd=[
            {"growth_interval": 0},
            {"growth_interval": -1},
            {"growth_interval": 2, "growth_factor": 1.0},
            {"growth_interval": 2, "growth_factor": 0.5},
            {"growth_interval": 2, "backoff_factor": 2.0},
            {"growth_interval": 2, "scale": 0.0},
            {"growth_interval": 2, "scale": math.inf},
            {"growth_interval": 2, "scale": 2.0**-149},
            {"growth_interval": 2, "scale": 2.0**-120, "minimum_scale": None},
        ],
        **common,
    )


main()
