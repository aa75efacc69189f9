"""SHA-256 of each table of `table_entries`, checked whenever a table is made.

Printed by ``python -m fp16sim.emulator.table_digests`` after a deliberate change; `make test-all` holds the
tables themselves to MPFR.
"""

from __future__ import annotations

__all__ = ["DIGESTS"]

DIGESTS = {
    "sqrt": "18ccaf49b5dafe4e210fc12136e40cdb804a1f1f795fd3b565bc6d686e0c5d88",
    "rsqrt": "2c3781850eeb3aa59e8168b12d6038513a7673c21043994e1a8601325d224c7e",
    "reciprocal": "7f82c95931979f73c146c393a0b38989f8e13f35f7acea4bf7cea21887290215",
    "cbrt": "ffd8733c775bceea9330bfbd19a6c95d0a89c2dc704bc523e49ee3b7172da2aa",
    "square": "381bfce8b2584d31b1f7d5108e0c8e6590a323b0491168966d5a3cb80a9dfad2",
    "logb": "56dde2588fad8930e604ff2aa1ff9e7a8436a9265d9cf1fc60ef0dfb536a9604",
    "exp": "ff1385c6c77dd0ae36ea61ac5d351158c113cbf94406aa5a681b17fcaee6d54c",
    "exp2": "217f008c32f06c08142788a30b6486ce9e7eac5c6ee02c635297e0d0dba73f04",
    "expm1": "21bde4b5462aa7959f71b58b75c1df93953f08f264757666b8edfe3fabf81532",
    "log": "f5368d55fcd5286dcd0a606e7cc21772c1bbd71582d8caac0eab3a44671812b6",
    "log2": "625b56e7b1d9ba68eb066c2347f9f97a70f40d96cd8f012742c6ccb8b6ac34ea",
    "log10": "a9c5a60259f910ff816f1e85dc9a758b7562e2a16c3444bfe3c5bce855a5773b",
    "log1p": "92c7e961ce00c99a4424fc781e82d8c7cae073733966eea1e0a7323c9e848f89",
    "sin": "9c653670e258a0a8c1dcde576d8589ab67d0f356d452c569a11d154cb6ff57b2",
    "cos": "5880fd477a31eeb5402d88cd921bea55948499d58490e4ab3c65a63583264746",
    "tan": "11a3714ae9c1c1aef52d69d825989f81bd38d5e8becff18f37305accd6e5cd70",
    "atan": "057629e4cbf2f0c6db41783919ccce04f3f481625a7536a5c90bf73e3d739266",
    "sinh": "371943ed529e3c09200ddce7686e3411742a0abfb6eddc9a25296c53710cdc33",
    "cosh": "b7c1291ed1c090854bd90f585b9c4cf4bb8ece4566ef39e26ffe6fc37fd63f70",
    "tanh": "41be66b6b90778c0897481712a3bf5ed16535e87e54992e59c9b80855fcd0176",
    "sigmoid": "0fb490da4444f255d2f3694351693669a072c684864f151b9cf7ee8e98025175",
    "softplus": "dc178f94d96c69a81c94c80be9521f3addcc5d64a51648b79e00c3c3297b7232",
    "silu": "0e8e7275e3c8065cb5d9d53e233c17bc7a03300849e89fc45a984ccae6e55481",
    "erf": "81ddb57a24660f480f772714e475506411aa0d73dfdd945a5cac003e93edd834",
    "gelu": "8d2634219d3ed878d8c1b59fe206c698f5f5329df240377e75346f889d8d443c",
    "gelu_tanh": "95e162f408322411472a90c76e7d2651e913d84451fff86d47a4c4ed79e47603",
}
"""Digest by name of function."""

if __name__ == "__main__":
    from fp16sim.emulator.one_argument import FUNCTIONS
    from fp16sim.emulator.table_entries import make_entries

    for name, function in FUNCTIONS.items():
        print(f'    "{name}": "{make_entries(function, name).digest()}",')
