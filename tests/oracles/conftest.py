"""The large other programs, imported by the tests that use them alone, which skip where they are absent."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def torch() -> Any:
    return pytest.importorskip(
        "torch",
        minversion="2.13.0",
        reason="torch is not installed: pip install torch==2.13.0",
        exc_type=ImportError,
    )


@pytest.fixture(scope="session")
def gfloat() -> Any:
    return pytest.importorskip(
        "gfloat", reason="gfloat is not installed: pip install 'fp16sim[oracles]'", exc_type=ImportError
    )
