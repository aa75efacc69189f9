"""The pool of threads: its size, use from many threads at once, nested use, forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fp16sim as fs
from fp16sim.emulator.backends import products, threads


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(products, "_WORTH_A_PACKED_THREAD", 1)  # small products are divided too
    before = fs.set_threads(3)
    yield
    fs.set_threads(before)


def test_set_threads_gives_what_held_before() -> None:
    assert fs.set_threads(2) == 3
    assert (fs.set_threads(), threads.threads()) == (2, threads._processors())


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2"])
def test_no_threads_are_refused(n: Any) -> None:
    with pytest.raises(ValueError, match=r"n=.*: pass a number of threads of at least 1"):
        fs.set_threads(n)
    assert threads.threads() == 3


def test_tasks_run_on_other_threads_and_results_keep_their_order() -> None:
    barrier = threading.Barrier(3, timeout=30)

    def task(n: int) -> tuple[int, int, int]:
        barrier.wait()  # three at once, or none
        inner = threads.run([threading.get_ident] * 4)  # inside a task there is one thread
        assert set(inner) == {threading.get_ident()}
        return n, threads.threads(), threading.get_ident()

    results = threads.run([lambda n=n: task(n) for n in range(3)])  # type: ignore[misc]
    assert [n for n, _, _ in results] == [0, 1, 2]
    assert {inside for _, inside, _ in results} == {1}
    assert len({who for _, _, who in results}) == 3
    assert results[0][2] == threading.get_ident()  # which does the first itself


def test_an_error_in_a_task_comes_out() -> None:
    def fail() -> None:
        raise ArithmeticError("planted")

    with pytest.raises(ArithmeticError, match="planted"):
        threads.run([fail, fail])


def test_many_callers_share_the_pool_while_its_size_changes() -> None:
    x = np.random.Generator(np.random.PCG64(1)).standard_normal((40, 40)).astype(np.float16)
    expected = fs.matmul(x, x).tobytes()

    def work(n: int) -> bool:
        fs.set_threads(1 + n % 4)
        return all(fs.matmul(x, x).tobytes() == expected for _ in range(20))

    with ThreadPoolExecutor(6) as callers:
        assert all(callers.map(work, range(24)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_a_pool_of_its_own() -> None:
    x = np.ones((40, 40), np.float16)
    fs.matmul(x, x)
    child = os.fork()
    if child == 0:
        ok = float(fs.matmul(x, x)[39, 39]) == 40.0
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
