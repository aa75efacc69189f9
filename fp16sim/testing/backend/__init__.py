"""Checks of a compute backend against the definition, for backends of this package and for other people's."""

from __future__ import annotations

from fp16sim.testing.backend.running import BackendCheckError, backend_checks, check_backend

__all__ = ["BackendCheckError", "backend_checks", "check_backend"]
