"""The house: who imports whom, what importing loads, and that every public name is what it says."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fp16sim

PACKAGE = Path(fp16sim.__file__).parent

# Lowest first. A module imports from its own layer or from layers before it; the record types stand with the leaves.
LAYERS = (
    ("emulator.flags", "emulator.formats", "emulator.rounding", "emulator.datapath", "emulator.datapath_rules",
     "emulator.random_bits", "emulator.convolution_geometry", "emulator.philox", "emulator.programs",
     "emulator.kernels.float32_constants", "recording.histogram", "extras"),
    ("emulator.exact", "emulator.reference", "emulator.reference_order", "emulator.reference_dot",
     "emulator.reference_tensor_core", "emulator.reference_convolution", "emulator.reference_functions",
     "emulator.reference_layers", "emulator.reference_layers_norms", "emulator.reference_layers_recurrent",
     "emulator.reference_layers_updates", "emulator.enclosures"),
    ("emulator.double_double", "emulator.elementary", "emulator.activation_functions", "emulator.one_argument",
     "emulator.table_digests", "emulator.table_entries", "emulator.tables", "emulator.float32_functions",
     "emulator.float32_cores", "emulator.float32_activations", "emulator.float64_cores",
     "emulator.float64_activations", "emulator.float64_functions"),
    ("emulator.kernels",),
    ("emulator.backends", "emulator.events"),
    ("emulator",),
    ("autograd",),
    ("nn", "optim"),
    ("scaling",),
    ("training",),
    ("recording",),
    ("report",),
    ("testing",),
    ("commands", "cli", "__main__"),
)  # fmt: skip
MAY_KNOW = {
    # The definition stands on formats, rounding rules and datapaths only, and never on a NumPy ufunc.
    "emulator.exact": {"emulator.flags", "emulator.formats", "emulator.rounding"},
    "emulator.reference": {
        "emulator.exact", "emulator.flags", "emulator.formats", "emulator.reference_order", "emulator.rounding",
    },
    # Kernels take integers and literal strings, never a Format or a Datapath.
    "emulator.kernels": {"emulator.flags", "emulator.kernels"},
}  # fmt: skip


def modules() -> list[str]:
    found = ["fp16sim", *(info.name for info in pkgutil.walk_packages([str(PACKAGE)], "fp16sim."))]
    return [name.removeprefix("fp16sim").removeprefix(".") for name in found]


def source_of(module: str) -> str:
    path = PACKAGE.joinpath(*module.split(".")) if module else PACKAGE
    file = path.with_suffix(".py")
    return (file if module and file.exists() else path / "__init__.py").read_text()


def imported(source: str) -> set[str]:
    """Name the modules of the package that a source imports, inside functions too, without their "fp16sim."."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                child = PACKAGE.parent.joinpath(*node.module.split("."), alias.name)
                names.add(
                    f"{node.module}.{alias.name}"
                    if child.is_dir() or child.with_suffix(".py").exists()
                    else node.module
                )
    return {name.removeprefix("fp16sim.") for name in names if name.startswith("fp16sim.")}


def layer(module: str) -> int:
    """Find the layer of a module: that of the longest entry which names it or a package around it."""
    matches = [
        (len(entry), level)
        for level, entries in enumerate(LAYERS)
        for entry in entries
        if module == entry or module.startswith(entry + ".")
    ]
    assert matches, f"{module} stands in no layer: add it to LAYERS"
    return max(matches)[1]


def broken_rules(module: str, names: set[str]) -> list[str]:
    broken = [name for name in names if layer(name) > layer(module)]
    for entry, known in MAY_KNOW.items():
        if module == entry or module.startswith(entry + "."):
            broken += [n for n in names if not any(n == k or n.startswith(k + ".") for k in known)]
    return broken


@pytest.mark.parametrize("module", [name for name in modules() if name])
def test_imports_point_up_the_list(module: str) -> None:
    assert broken_rules(module, imported(source_of(module))) == []


def test_the_import_rule_sees_a_fault() -> None:
    planted = "def f():\n    from fp16sim.training import fit\n    import fp16sim.emulator.formats"
    assert imported(planted) == {"training.fit", "emulator.formats"}
    assert broken_rules("nn.linear", imported(planted)) == ["training.fit"]
    assert broken_rules("emulator.kernels.half", {"emulator.formats"}) == ["emulator.formats"]
    assert broken_rules("emulator.reference", {"emulator.tables"}) != []


def test_the_definition_uses_no_numpy() -> None:
    for module in (
        "exact",
        "reference",
        "reference_order",
        "reference_dot",
        "reference_tensor_core",
        "reference_convolution",
        "reference_functions",
        "reference_layers",
        "reference_layers_norms",
        "reference_layers_recurrent",
        "reference_layers_updates",
        "enclosures",
    ):
        tree = ast.parse(source_of(f"emulator.{module}"))
        roots = {
            name.split(".")[0]
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names] if isinstance(node, ast.Import)
                else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            )
        }  # fmt: skip
        assert "numpy" not in roots, module


@pytest.mark.parametrize("module", modules())
def test_numba_and_llvmlite_stay_in_the_kernels(module: str) -> None:
    tree = ast.parse(source_of(module))
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").split(".")[0])
    assert not roots & {"numba", "llvmlite"} or module.startswith("emulator.kernels")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "{'numba', 'llvmlite', 'matplotlib', 'cupy', 'hypothesis', 'pytest', 'scipy', 'torch', 'tqdm'}"
    assert run(f"import sys, fp16sim; print(sorted(set(sys.modules) & {heavy}))") == "[]"
    code = (
        f"import sys, fp16sim as fs; fs.Format, fs.scaling.names(); print(sorted(set(sys.modules) & {heavy}))"
    )
    assert run(code) == "[]"


def test_functions_of_tensors_are_reached_from_the_package() -> None:
    code = "import fp16sim as fs; print(fs.autograd.ops.relu(fs.Tensor([-1.0, 2.0])).data)"
    assert run(code) == "[0. 2.]"
    code = "import sys, fp16sim as fs; fs.autograd, fs.Policy; print('fp16sim.autograd.ops' in sys.modules)"
    assert run(code) == "False"


def test_every_public_name_is_there_and_stays_what_it_was_after_every_submodule_is_imported() -> None:
    before = {name: getattr(fp16sim, name) for name in fp16sim.__all__}
    for module in modules():
        importlib.import_module(f"fp16sim.{module}" if module else "fp16sim")
    for name, value in before.items():
        assert getattr(fp16sim, name) is value, name
    assert set(fp16sim.__all__) <= set(dir(fp16sim))


def test_editors_are_told_the_same_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    told = {
        (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    handed_on = {(module, name) for module, names in fp16sim._HOMES.items() for name in names.split()}
    assert told == handed_on | {("fp16sim", name) for name in fp16sim._SUBPACKAGES}


def test_public_names_say_what_they_are() -> None:
    for name in fp16sim.__all__:
        value = getattr(fp16sim, name)
        if callable(value):
            assert (value.__doc__ or "").strip(), name


def test_the_version_is_that_of_the_project() -> None:
    import tomllib

    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    assert fp16sim.__version__ == project["version"]


def test_modules_stay_small() -> None:
    long = {name: len(source_of(name).splitlines()) for name in modules()}
    assert {name: lines for name, lines in long.items() if lines > 480} == {}
