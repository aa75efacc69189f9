"""The README's Python blocks are run, and what they print is compared."""

import re
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.example import SybilFailure
from sybil.parsers.markdown import PythonCodeBlockParser

README = Path(__file__).parents[1] / "README.md"


def run_examples(path: Path) -> int:
    """Run the blocks in order, in one namespace; the number of prompts that were run."""
    document = Sybil([PythonCodeBlockParser()]).parse(path)
    return sum(1 for example in document.examples() if example.evaluate() is None)


def test_every_block_does_what_it_shows() -> None:
    assert run_examples(README) == len(re.findall(r"(?m)^>>> ", README.read_text("utf-8")))


def test_a_wrong_output_would_be_noticed(tmp_path: Path) -> None:
    wrong = tmp_path / "README.md"
    wrong.write_text("```python\n>>> 1 + 1\n3\n\n```\n")
    with pytest.raises(SybilFailure):
        run_examples(wrong)


def test_every_file_that_is_named_exists() -> None:
    text = README.read_text("utf-8")
    named = re.findall(r"\]\(([^)#]+)\)", text) + re.findall(r"`(fp16sim/[^`]+)`", text)
    assert named
    assert [name for name in named if not (README.parent / name).exists()] == []


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (README.parent / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"make ([a-z-]+)", README.read_text("utf-8")))
    assert targets >= {"run", "test"}
    assert [target for target in targets if not re.search(rf"(?m)^{target}:", makefile)] == []
