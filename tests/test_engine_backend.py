"""The engine reaches arrays through the backend: nothing above imports kernels, and nothing else computes with data."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fp16sim_engine_guard import ENGINE, GUARDS, PACKAGE, found, instrumented, table

from fp16sim import nn, optim
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.emulator import backends
from fp16sim.emulator.backends import use_backend
from fp16sim.emulator.backends.base import Backend
from fp16sim.emulator.backends.cpu import CpuBackend
from fp16sim.training.fit import fit
from fp16sim.training.models import mlp

HERE = Path(__file__).parent
POLICIES = ("float16", "mixed_float16", "mixed_bfloat16", "float32", "float64")

# ------------------------------------------------------------------------------------------- imports

MAY_IMPORT_KERNELS = {
    "fp16sim/emulator/kernels/": "they are the kernels",
    "fp16sim/emulator/backends/": "a backend calls them",
    "fp16sim/emulator/float32_": "the coefficients of fixed sequences stand in one file, which has no loop in it",
}


def kernels_imported(source: str) -> list[str]:
    """List the imports of kernels, and of what compiles them, inside functions too and by name in strings."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            names.append(node.value)
    parts = [(name, name.split(".")) for name in names]
    return [
        name
        for name, words in parts
        if (words[:1] == ["fp16sim"] and "kernels" in words) or words[0] in ("numba", "llvmlite")
    ]


def test_nothing_above_the_backends_imports_kernels() -> None:
    broken = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE.parent).as_posix()
        names = kernels_imported(path.read_text())
        if place.startswith("fp16sim/emulator/float32_"):
            names = [name for name in names if name != "fp16sim.emulator.kernels.float32_constants"]
        elif place.startswith(tuple(MAY_IMPORT_KERNELS)):
            names = []
        if names:
            broken[place] = names
    assert broken == {}


@pytest.mark.parametrize(
    "planted",
    [
        "from fp16sim.emulator.kernels import half",
        "def f():\n    import fp16sim.emulator.kernels.gemm as g",
        "from fp16sim.emulator import kernels",
        "from importlib import import_module\nimport_module('fp16sim.emulator.kernels.half')",
        "import numba",
    ],
)
def test_an_import_of_kernels_is_seen(planted: str) -> None:
    assert kernels_imported(planted) != []


# ------------------------------------------------------------------------------------------- nothing else computes

ALLOWED = {
    ("optim.clipping", "clip_grad_value"): "the sign of a limit",
    (
        "nn.random",
        "*",
    ): "random numbers: fixed formulas of binary64, on numbers that no training step has made",
    ("nn.initial", "*"): "likewise, rounded to float32 once",
}
"""Places where the engine itself computes with floating-point arrays, and why each may."""


def passed_by(*planted: str) -> list[list[str]]:
    """Give the places where something ran beside the backend and is not allowed to."""
    command = [sys.executable, str(HERE / "fp16sim_engine_guard.py"), *planted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    places = json.loads(done.stdout)
    return [
        place for place in places if (place[0], place[1]) not in ALLOWED and (place[0], "*") not in ALLOWED
    ]


def test_every_rounding_of_operations_layers_losses_and_optimizers_is_the_backends() -> None:
    assert passed_by() == []


FAULTS = [
    ("scaling.protocol", "(result,) = r.perform(_TIMES, wide, constants=(float(1.0 / scale),))",
     "result = wide / scale"),
    ("autograd.backward", "part if before is None else context.arithmetic.add(before, part)",
     "part if before is None else before + part"),
    ("autograd.ops.reductions", "arithmetic.divide(squares, arithmetic.constant(terms, a))",
     "squares * (1.0 / terms)"),
    ("autograd.ops.products", "second = context.arithmetic.matmul(rows.T, x.reshape(len(rows), x.shape[-1]))",
     "second = rows.T @ x.reshape(len(rows), x.shape[-1])"),
]  # fmt: skip
"""The first is planted always, the others in the slow tests: each runs the engine once."""


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [pytest.param(*fault, marks=[pytest.mark.slow] * (n > 0), id=fault[0]) for n, fault in enumerate(FAULTS)],
)
def test_arithmetic_that_passes_by_the_backend_is_caught(module: str, old: str, new: str) -> None:
    assert {place[0] for place in passed_by(module, old, new)} == {module}


def test_what_the_guard_sees_and_what_it_lets_pass() -> None:
    source = """
def f(a, n):
    exact = np.where(a > 0, a, np.maximum(a, -1)), np.abs(a), a.reshape(-1), n * 2 + 1, np.isnan(a)
    b = a
    b += 1
    return [a * 2, 2 - a, a ** 2, -a, a @ a, np.exp(a), np.sum(a), a.mean(), np.dot(a, a), np.linalg.norm(a)]
"""
    found.clear()
    space: dict[str, Any] = {"np": np, **GUARDS}
    exec(compile(instrumented(source, "planted"), "planted", "exec"), space)
    space["f"](np.float32([0.5, 1.0]), 3)
    seen = Counter(text for _, _, text in found)
    found.clear()
    assert sorted(seen) == sorted(
        ["b += 1", "a * 2", "2 - a", "a ** 2", "-a", "a @ a", "np.exp(a)", "np.sum(a)", "a.mean()", "np.dot(a, a)",
         "np.linalg.norm(a)"]
    )  # fmt: skip
    space["f"](np.array([1, 2]), 3)  # integers are geometry
    assert not found


def test_the_guard_covers_the_engine() -> None:
    for home in ENGINE:
        assert (PACKAGE.parent / home.replace(".", "/")).is_dir()


# ------------------------------------------------------------------------------------------- both backends

EXAMPLES = table().EXAMPLES


def results(name: str, policy: str) -> list[bytes]:
    """Run an operation and its gradients under a policy, on numbers that are not all nice, and give all bits."""
    rng = np.random.default_rng(3)
    function, *shapes = EXAMPLES[name]
    inputs = []
    for shape in shapes:
        values = rng.uniform(0.5, 2.0, shape).astype(np.float32)
        values.reshape(-1)[:1] *= 2.0**-12
        inputs.append(Tensor(values, requires_grad=True))
    with autocast(policy):
        result = function(*inputs)
    seed = rng.normal(size=result.shape).astype(np.float32)
    found = gradients(result, inputs, seed)
    arrays = [result.data, *(part for part in found if part is not None)]
    assert len(arrays) == 1 + len(inputs)
    return [array.dtype.name.encode() + array.tobytes() for array in arrays]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_operation_has_the_same_bits_on_the_plain_backend(name: str) -> None:
    for policy in POLICIES:
        fast = results(name, policy)
        with use_backend("reference"):
            assert results(name, policy) == fast, policy


METHODS = {name for name, value in vars(Backend).items() if callable(value) and not name.startswith("_")}


class Counting(CpuBackend):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in METHODS:
            object.__getattribute__(self, "asked")[name] += 1
        return super().__getattribute__(name)


def run_on(backend: Backend | None) -> str:
    """Train a small network for two steps on a backend, or on the usual one."""
    model = mlp(inputs=4, hidden=5, layers=1, outputs=3)
    data = [(np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32), np.array([0, 1, 2, 1]))]
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with pytest.MonkeyPatch.context() as patch:
        if backend is not None:
            patch.setattr(backends, "_make", lambda name: backend)
        return fit(
            model, data, policy="mixed_float16", scaler="static,scale=8", optimizer=optimizer, steps=2, measure=False,
            loss_function=nn.CrossEntropyLoss(),
        ).digest  # fmt: skip


def asked_for() -> Counter[str]:
    counting = Counting()
    assert run_on(counting) == run_on(None)
    return counting.asked


def test_a_step_asks_the_backend_for_what_it_computes() -> None:
    asked = asked_for()
    # In two steps: two products forward, and three backward (the data need no gradient); exp and log of the loss; the
    # sums of a loss (exponentials, rows) and of two gradients of biases.
    assert (asked["matmul"], asked["real_function"], asked["sum"]) == (10, 4, 8)
    assert (asked["relu"], asked["maximum_of"]) == (2, 2)
    assert asked["convert"] + asked["elementwise"] > 20


NAN = {2: 0x7E00, 4: 0x7FC00000}


def spoiled(outcome: Any) -> Any:
    """Put a NaN in the place of the first number that a method gave: a smaller change can vanish in later roundings."""
    if isinstance(outcome, np.ndarray):
        changed = outcome.copy()
        changed.reshape(-1)[:1].view(f"u{changed.itemsize}")[...] = NAN[changed.itemsize]
        return changed
    if hasattr(outcome, "bits"):
        return outcome._replace(bits=spoiled(outcome.bits))
    results, counts = outcome
    return [spoiled(results[0]), *results[1:]], counts


@pytest.mark.parametrize(
    "method", ["convert", "elementwise", "matmul", "maximum_of", "real_function", "relu", "sum"]
)
def test_what_a_method_gives_decides_about_the_run(method: str) -> None:
    class Spoiling(CpuBackend):
        pass

    def wrong(self: Any, *arguments: Any, **options: Any) -> Any:
        return spoiled(getattr(CpuBackend, method)(self, *arguments, **options))

    setattr(Spoiling, method, wrong)
    assert asked_for()[method]
    assert run_on(Spoiling()) != run_on(None)
