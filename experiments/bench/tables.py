"""Write docs/benchmarks.md from the JSON that the benchmarks left: no figure there is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from timing import RESULTS

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Format a Markdown table; all columns but the first are numbers."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def elementwise(data: dict[str, Any]) -> str:
    """Write the section on conversions and elementwise arithmetic."""
    about = ", ".join(f"{key} {value}" for key, value in data["machine"].items())
    conversions = [
        [
            name,
            f"{row['rate'] / 1e9:.3f}",
            f"{row['spread']:.0%}",
            f"{row['to_copy']:.2f}",
            f"{row['to_numpy']:.2f}",
        ]
        for name, row in data["conversions"].items()
    ]
    arithmetic = [
        [
            name,
            f"{int(size):,}",
            f"{row['fp16sim']['rate'] / 1e9:.2f}",
            f"{row['fp16sim']['spread']:.0%}",
            f"{row['numpy']['rate'] / 1e9:.3f}",
            f"{row['ratio']:.1f}",
        ]
        for size, rows in data["arithmetic"].items()
        for name, row in rows.items()
    ]
    seconds = [[name, f"{value:.2f}"] for name, value in data["seconds"].items()]
    return "\n\n".join(
        [
            "## Conversions and elementwise arithmetic",
            f"`make bench` on: {about}. Processor time of one thread, medians of {data['rounds']} alternating rounds; "
            "the spread is the distance of the quartiles over the median.",
            f"float32 to binary16, {data['size']:,} values, one thread:",
            table(["", "Gvalue/s", "spread", "to a copy of the bytes", "to NumPy's astype"], conversions),
            "binary16 arithmetic into an existing array, against NumPy's float16:",
            table(["", "values", "Gvalue/s", "spread", "NumPy", "ratio"], arithmetic),
            "A copy of the same bytes bounds what any conversion of that many values can reach, and an addition "
            "moves as many bytes as a conversion.",
            table(["", "seconds"], seconds),
        ]
    )


def products(data: dict[str, Any]) -> str:
    """Write the section on matrix products."""
    about = ", ".join(f"{key} {value}" for key, value in data["machine"].items())
    names = list(next(iter(data["shapes"].values()))["rows"])

    def cell(shape: dict[str, Any], name: str) -> str:
        row, bar = shape["rows"][name], shape["bars"].get(name)
        return f"{row['rate'] / 1e9:.1f} ({row['to_sgemm']:.2f}{'' if bar is None else f'; bar {bar}'})"

    by_shape = [[name, *(cell(shape, name) for shape in data["shapes"].values())] for name in names]
    peers = [
        [name, f"{row['rate'] / 1e9:.2f}", f"{row['to_sgemm']:.3f}"]
        for name, row in data["peers"]["rows"].items()
    ]
    convolution = [
        [name, f"{row['rate'] / 1e9:.1f}", f"{row['to_matmul']:.2f}"]
        for name, row in data["convolution"].items()
    ]
    gains = [[name, f"{gain:.2f}"] for name, gain in data["two_threads"].items()]
    size = data["peers"]["size"]
    return "\n\n".join(
        [
            "## Matrix products",
            f"`make bench` on: {about}. Processor time of one thread, medians of {data['rounds']} alternating rounds. "
            "The bars hold for OpenBLAS's AVX2 kernels; with others the ratios are reported.",
            "GMAC/s by datapath, and in parentheses the ratio to OpenBLAS sgemm in the same run; `fs.matmul` with its "
            "packing and checks:",
            table(["", *data["shapes"]], by_shape),
            f"Programs that multiply binary16 matrices, {size} by {size} by {size}:",
            table(["", "GMAC/s", "to sgemm"], peers),
            f"Datapath `float16` is {data['peers']['to_numpy_loop']:.0f} times as fast as the loop of NumPy operations "
            "that gives the same bits.",
            "conv2d 3x3 on 32 x 64 x 28 x 28, and the product of its size:",
            table(["", "GMAC/s", "to the product"], convolution),
            "Two threads against one at 1024 x 1024 x 1024, best wall times:",
            table(["", "times as fast"], gains),
            "![Rates of square products as their size grows](../experiments/results/bench_matmul.png)",
        ]
    )


def training(data: dict[str, Any]) -> str:
    """Write the section on training steps."""
    about = ", ".join(f"{key} {value}" for key, value in data["machine"].items())
    names = list(next(iter(data["steps"].values()))["rows"])

    def cell(row: dict[str, float]) -> str:
        return f"{row['milliseconds']:.2f} ({row['to_torch_float32']:.2f})"

    by_model = [[name, *(cell(each["rows"][name]) for each in data["steps"].values())] for name in names]
    bars = ["bar for mixed_float16", *(f"({each['bar']:g})" for each in data["steps"].values())]
    faster = [
        "mixed_float16, times as fast as torch's autocast",
        *(f"{each['faster_than_autocast']:.1f}" for each in data["steps"].values()),
    ]
    small = [
        [name, f"{row['forward']:.1f}", f"{row['backward']:.1f}"] for name, row in data["overhead"].items()
    ]
    policies = list(next(iter(data["memory"].values())))
    held = [
        [name, *(f"{sizes[policy]:,}" for policy in policies), f"{sizes['float16'] / sizes['float32']:.2f}"]
        for name, sizes in data["memory"].items()
    ]
    return "\n\n".join(
        [
            "## Training steps",
            f"`make bench` on: {about}. Wall time with {data['threads']} threads each, medians of {data['rounds']} "
            "alternating rounds: forward, loss, backward, loss scale and optimizer, on the same network, batch and "
            "optimizer. The bars are meant for AVX2 machines; elsewhere the ratios are reported.",
            "Milliseconds a step, and in parentheses the ratio to torch float32 in the same run:",
            table(["", *data["steps"]], [*by_model, bars, faster]),
            f"An operation on tensors of one element, in microseconds (bar {data['bars']['overhead']:g}):",
            table(["", "forward", "its part of a backward pass"], small),
            "Bytes that the tape of a step keeps for the gradients, parameters and their rounded copies not "
            "counted:",
            table(["", *policies, "float16 to float32"], held),
        ]
    )


def scalers(data: dict[str, Any]) -> str:
    """Write the section on simulated loss scalers."""
    about = ", ".join(f"{key} {value}" for key, value in data["machine"].items())
    rows = [
        [
            name,
            f"{row['rate'] / 1e6:.0f}",
            f"{row['spread']:.0%}",
            f"{row['a_core'] / 1e6:.0f}",
            f"{row['objects']:,.0f}",
            f"{row['ratio']:,.0f}",
            f"{row['overflows']:.2%}",
        ]
        for name, row in data["rows"].items()
    ]
    held = data["memory"]
    return "\n\n".join(
        [
            "## Simulated loss scalers",
            f"`make bench` on: {about}. Wall time with {data['threads']} threads, medians of {data['rounds']} rounds: "
            f"`fs.scaling.simulate` over {data['histories']:,} histories of {data['steps']:,} steps each, closed loop, "
            "summaries only, with the default options. In processor time, one core against one: the simulation against "
            "the scaler's own object in a Python loop.",
            f"Bars for torch's rule: {data['bars']['rate'] / 1e6:g} million scaler steps a second, and "
            f"{data['bars']['ratio']:,.0f} times the objects.",
            table(
                [
                    "",
                    "million steps/s",
                    "spread",
                    "a core",
                    "objects, steps/s",
                    "ratio",
                    "steps that overflow",
                ],
                rows,
            ),
            f"From a tenth of {held['steps']:.2g} steps to all of them the peak of resident memory grows by "
            f"{held['growth']:.1f} MiB.",
        ]
    )


def main() -> None:
    """Write the page, with a section for each benchmark that has been run."""
    sections = []
    for name, section in (
        ("elementwise", elementwise),
        ("matmul", products),
        ("training", training),
        ("scalers", scalers),
    ):
        path = RESULTS / f"bench_{name}.json"
        if path.exists():
            sections.append(section(json.loads(path.read_text())))
    PAGE.parent.mkdir(exist_ok=True)
    body = "\n\n".join(["# Benchmarks", "Generated by `make bench`; do not edit.", *sections])
    PAGE.write_text(f"{body}\n", encoding="utf-8")
    print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
