"""Arithmetic on arrays that passes by the backend, caught in the act: run as a program, it lists every place.

The modules of the engine are imported with each arithmetic operator, each call of a NumPy function and each method
such as `sum` replaced by one that first looks at its operands. If one of them is an array of floating-point numbers, or
a number of a narrow format, its place and its text are noted. Then every operation of the table, every kind of layer,
loss and optimizer, clipping, unscaling and measuring runs once under each policy.

``python fp16sim_engine_guard.py`` prints the places as JSON. With arguments ``module old new`` it replaces a piece of
the source of a module first, to see whether that is caught.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

ENGINE = ("fp16sim.autograd", "fp16sim.nn", "fp16sim.optim", "fp16sim.scaling", "fp16sim.training")
PACKAGE = Path(__file__).parents[1] / "fp16sim"
ARITHMETIC = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult,
)  # fmt: skip
METHODS = ("sum", "mean", "dot", "prod", "cumsum", "cumprod", "var", "std", "round", "trace")
EXACT = {
    "absolute", "copysign", "equal", "greater", "greater_equal", "isfinite", "isinf", "isnan", "less", "less_equal",
    "logical_and", "logical_not", "logical_or", "maximum", "minimum", "not_equal", "signbit", "frexp",
}  # fmt: skip
"""Ufuncs that choose, compare or take apart and round nothing. All others are arithmetic."""

ROUNDING = {
    "average", "convolve", "correlate", "cumprod", "cumsum", "diff", "dot", "einsum", "gradient", "inner", "interp",
    "mean", "nansum", "outer", "prod", "std", "sum", "tensordot", "trace", "trapezoid", "var", "vdot", "around",
    "round",
}  # fmt: skip
"""NumPy functions that are no ufuncs and compute."""

found: set[tuple[str, str, str]] = set()
"""(module, function, text) of every place."""


def is_data(x: Any) -> bool:
    """Whether x is an array of floating-point numbers, or a number of a format that tensors have, binary64 excepted."""
    if isinstance(x, np.ndarray):
        return x.dtype.kind == "f" or x.dtype.name == "bfloat16"
    return isinstance(x, (np.float16, np.float32)) or type(x).__name__ == "bfloat16"


def watch(place: tuple[str, str, str], *operands: Any) -> None:
    """Note a place if one of its operands is data."""
    for x in operands:
        if is_data(x) or (isinstance(x, (list, tuple)) and any(map(is_data, x))):
            found.add(place)


def looked_at(place: tuple[str, str, str], left: Any, right: Any) -> tuple[Any, Any]:
    watch(place, left, right)
    return left, right


def called(place: tuple[str, str, str], owner: Any, name: str, *operands: Any, **options: Any) -> Any:
    """Call a function of NumPy or a method, and note it if it computes with data."""
    function = getattr(owner, name)
    if isinstance(owner, ModuleType) and owner.__name__.startswith("numpy"):
        exact = function.__name__ in EXACT if isinstance(function, np.ufunc) else name not in ROUNDING
        if owner is not np or not exact:  # np.linalg and its like all compute
            watch(place, *operands, *options.values())
    elif name in METHODS:
        watch(place, owner)
    return function(*operands, **options)


class Instrument(ast.NodeTransformer):
    """Replaces operators and calls in the source of a module."""

    def __init__(self, module: str) -> None:
        self.module, self.function = module, "<module>"

    def _place(self, node: ast.AST) -> ast.expr:
        text = (self.module, self.function, ast.unparse(node))
        return ast.Tuple([ast.Constant(part) for part in text], ast.Load())

    def _watched(self, name: str, *arguments: ast.expr, keywords: Sequence[ast.keyword] = ()) -> ast.Call:
        return ast.Call(ast.Name(name, ast.Load()), list(arguments), list(keywords))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer, self.function = self.function, node.name
        self.generic_visit(node)
        self.function = outer
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        place = self._place(node)
        self.generic_visit(node)
        if not isinstance(node.op, ARITHMETIC):
            return node
        # (lambda pair: pair[0] op pair[1])(looked_at(place, left, right)): both are evaluated once, left first.
        pair = ast.Name("_pair", ast.Load())
        sides = [ast.Subscript(pair, ast.Constant(n), ast.Load()) for n in (0, 1)]
        body = ast.BinOp(sides[0], node.op, sides[1])
        arguments = ast.arguments([], [ast.arg("_pair")], None, [], [], None, [])
        return ast.Call(
            ast.Lambda(arguments, body), [self._watched("_guard_looked_at", place, node.left, node.right)], []
        )

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        place = self._place(node)
        self.generic_visit(node)
        if not isinstance(node.op, ast.USub) or isinstance(node.operand, ast.Constant):
            return node
        pair = self._watched("_guard_looked_at", place, node.operand, ast.Constant(None))
        return ast.UnaryOp(ast.USub(), ast.Subscript(pair, ast.Constant(0), ast.Load()))

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        place = self._place(node)
        self.generic_visit(node)
        if not isinstance(node.op, ARITHMETIC):
            return node
        target = ast.parse(ast.unparse(node.target), mode="eval").body
        before = ast.Expr(self._watched("_guard_watch", place, target))
        node.value = ast.Subscript(
            self._watched("_guard_looked_at", place, node.value, ast.Constant(None)),
            ast.Constant(0),
            ast.Load(),
        )
        return [before, node]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        place = self._place(node)
        self.generic_visit(node)
        function = node.func
        if not isinstance(function, ast.Attribute):
            return node
        numpy = ast.unparse(function).startswith("np.")
        if not numpy and function.attr not in METHODS:
            return node
        return self._watched(
            "_guard_called",
            place,
            function.value,
            ast.Constant(function.attr),
            *node.args,
            keywords=node.keywords,
        )


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles the instrumented source, whatever is cached."""

    replaced: tuple[str, str, str] | None = None

    def get_code(self, fullname: str) -> Any:
        source = Path(self.path).read_text()
        if self.replaced is not None and self.replaced[0] == fullname:
            _, old, new = self.replaced
            assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {fullname}"
            source = source.replace(old, new)
        return compile(instrumented(source, fullname), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(GUARDS)
        super().exec_module(module)


GUARDS = {"_guard_looked_at": looked_at, "_guard_called": called, "_guard_watch": watch}


def instrumented(source: str, module: str) -> ast.Module:
    return ast.fix_missing_locations(Instrument(module.removeprefix("fp16sim.")).visit(ast.parse(source)))


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the engine before anybody else."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not any(fullname == home or fullname.startswith(home + ".") for home in ENGINE):
            return None
        file = PACKAGE.joinpath(*fullname.split(".")[1:])
        package = file.is_dir()
        file = file / "__init__.py" if package else file.with_suffix(".py")
        places = [str(file.parent)] if package else None
        return importlib.util.spec_from_file_location(
            fullname, file, loader=Loader(fullname, str(file)), submodule_search_locations=places
        )


# ------------------------------------------------------------------------------------------- what runs


def table() -> Any:
    """Give the examples of every operation, which the tests of the table have."""
    place = Path(__file__).parent / "autograd" / "ops" / "test_table.py"
    spec = importlib.util.spec_from_file_location("fp16sim_table", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def operations() -> None:
    from fp16sim.autograd.backward import gradients
    from fp16sim.autograd.policy import autocast

    examples = table()
    for policy in ("float16", "mixed_float16", "mixed_bfloat16", "float32", "float64"):
        for name, (function, *_) in examples.EXAMPLES.items():
            inputs = [tensor.cast("float32") for tensor in examples.inputs(name)]
            with autocast(policy):
                result = function(*inputs)
            for wide in (False, True):
                gradients(result, inputs, np.ones(result.shape), wide=wide)


def training() -> None:
    from fp16sim import nn, optim
    from fp16sim.autograd import ops
    from fp16sim.training.fit import fit

    class Everything(nn.Module):
        def __init__(self) -> None:
            self.parts = [
                nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool1d(2),
                nn.AvgPool1d(2), nn.Dropout(0.25),
            ]  # fmt: skip
            self.block = nn.TransformerBlock(4, 2, dropout=0.1)
            self.recurrent, self.memory = nn.GRU(4, 4, batch_first=True), nn.LSTM(4, 4, batch_first=True)
            self.norm, self.rms, self.table = nn.LayerNorm(4), nn.RMSNorm(4), nn.Embedding(3, 4)
            self.last = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            for part in self.parts:
                x = part(x)
            x = self.block(ops.swapaxes(x, 1, 2))
            x, _ = self.recurrent(x)
            x, _ = self.memory(x, lengths=[2, 1, 2, 2])
            x = self.rms(self.norm(x[:, 0])) + self.table(np.array([0, 1, 1, 2]))
            return self.last(ops.silu(x))

    rng = np.random.default_rng(0)
    data = [(rng.normal(size=(4, 4, 8)).astype(np.float32), np.array([0, 1, 2, 1]))]
    losses = [
        nn.CrossEntropyLoss(label_smoothing=0.1),
        lambda y, labels: nn.MSELoss()(y, np.eye(3)[labels]),
        lambda y, labels: nn.BCEWithLogitsLoss()(y, np.eye(3)[labels]),
        lambda y, labels: nn.NLLLoss()(nn.LogSoftmax(-1)(y), labels),
    ]
    optimizers = [
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
        lambda p: optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
        lambda p: optim.Adam(p, lr=0.01, weight_decay=0.01),
        lambda p: optim.AdamW(p, lr=0.01),
    ]
    for policy in ("float16", "mixed_float16", "mixed_bfloat16", "float32", "float64"):
        for loss, optimizer in zip(losses, optimizers, strict=True):
            model = Everything()
            fit(
                model, data, policy=policy, scaler="static,scale=8", optimizer=optimizer(model.parameters()), steps=2,
                loss_function=loss, clip_norm=1.0, clip_value=0.5, accumulate=2, loss_factor=0.5,
                schedule=optim.cosine(0.1, 10),
            )  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    if arguments:
        module, old, new = arguments
        Loader.replaced = (f"fp16sim.{module}", old, new)
    assert not any(name.startswith(ENGINE) for name in sys.modules)
    sys.meta_path.insert(0, Finder())
    operations()
    training()
    print(json.dumps(sorted(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
