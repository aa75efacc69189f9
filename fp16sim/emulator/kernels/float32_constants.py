"""The constants of the float32 functions: what the definition (`emulator/float32_functions.py`) and its kernels share.

They stand among the kernels because numba's cache has to notice when they change; nothing here needs numba.
Polynomials have their highest coefficient first. Those with hexadecimal coefficients interpolate a function at the
Chebyshev nodes of an interval, computed with 300 bits and rounded to float64 (the tests do that again).
"""

from __future__ import annotations

__all__ = [
    "ATANH",
    "COS",
    "ERF",
    "EXPM1",
    "GELU_CUBIC",
    "GELU_LINEAR",
    "GELU_ROOT",
    "GELU_SLOPE",
    "GELU_TANH_ROOT",
    "GELU_TANH_SLOPE",
    "HALF_PI",
    "INVERSE_LN2",
    "INVERSE_SQRT_TWO_PI",
    "LN2",
    "LN2_HIGH",
    "LN2_LOW",
    "MILLS",
    "NEAR_ROOT",
    "SILU_ROOT",
    "SILU_SLOPE",
    "SIN",
    "SQRT_HALF",
    "SQRT_TWO",
]


def _numbers(*hexadecimal: str) -> tuple[float, ...]:
    return tuple(map(float.fromhex, hexadecimal))


def _factorials(degrees: range) -> list[float]:
    """1/n! for each n: the quotient of two exact integers, rounded once (18! is below 2^53)."""
    factorial = [1]
    for n in range(1, 19):
        factorial.append(factorial[-1] * n)
    return [1.0 / factorial[n] for n in degrees]


# ln 2 in two pieces: k * LN2_HIGH is exact for |k| < 2^13, because the piece has 40 bits.
LN2_HIGH = float.fromhex("0x1.62e42fefa2000p-1")
LN2_LOW = float.fromhex("0x1.9ef35793c7673p-41")
LN2 = float.fromhex("0x1.62e42fefa39efp-1")
INVERSE_LN2 = float.fromhex("0x1.71547652b82fep+0")
HALF_PI = float.fromhex("0x1.921fb54442d18p+0")
SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
SQRT_TWO = float.fromhex("0x1.6a09e667f3bcdp+0")
INVERSE_SQRT_TWO_PI = float.fromhex("0x1.9884533d43651p-2")

# Taylor series: expm1(r)/r, 2^-57 relative for |r| <= ln(2)/2; sine and cosine of up to pi/4 in the square;
# atanh(z)/z in the square, 2^-61 for |z| < 0.1716.
EXPM1 = tuple(_factorials(range(14, 0, -1)))
SIN = tuple(sign * c for sign, c in zip((1, -1) * 5, _factorials(range(17, 0, -2)), strict=False))
COS = tuple(sign * c for sign, c in zip((1, -1) * 5, _factorials(range(16, -1, -2)), strict=False))
ATANH = tuple(1.0 / n for n in range(23, 0, -2))

ERF = _numbers(
    "-0x1.c0b68bc7545bbp-17", "0x1.f70acf658bd21p-14", "-0x1.c01c4d48c53fbp-11", "0x1.565b8c26bce7fp-8",
    "-0x1.b82ce20b0d02dp-6", "0x1.ce2f219e34cc1p-4", "-0x1.812746b0360e2p-2", "0x1.20dd750429b6ap+0",
)  # fmt: skip
"""erf(u)/u in u^2 from 0 to 1/4, to 2^-50."""

MILLS = _numbers(
    "0x1.c3c7c4b59b162p-24", "0x1.929d93fa69eb7p-22", "-0x1.e71a4096a9e90p-22", "-0x1.754257a4a44a2p-19",
    "0x1.0fd50c3c5767cp-18", "0x1.1850fc7ddc6a4p-16", "-0x1.a19ab0dee4416p-15", "-0x1.f22c669a56179p-15",
    "0x1.1daf7da8aba4bp-11", "-0x1.a24fed1dbfcc2p-11", "-0x1.8859107008679p-9", "0x1.54b4d4b8afa36p-6",
    "-0x1.1b1c254c177a7p-4", "0x1.51f6329f5f51fp-3", "-0x1.410ed5f8764e1p-2", "0x1.fb31653876192p-2",
    "-0x1.54ad03f27ca07p-1", "0x1.89d3abe1f95b3p-1",
)  # fmt: skip
"""(y + 5) exp(y^2/2) Phi(-y) in t = (y - 5)/(y + 5) from -1 to 1/2 (y from 0 to 15), to 2^-50."""

GELU_LINEAR = float.fromhex("0x1.9884533d43651p+0")
GELU_CUBIC = float.fromhex("0x1.2444f2a4d8b4bp-4")
"""2 sqrt(2/pi), and 0.044715 times that: the tanh form of gelu is x sigmoid(x (linear + cubic x^2))."""

# The derivatives of gelu, its tanh form and silu have one root each, given by two float64. Within 1/16 of it the
# derivative is the distance from the root times a polynomial in the distance, to 2^-48.
NEAR_ROOT = 0.0625
GELU_ROOT = _numbers("-0x1.80ead197f00b4p-1", "0x1.13e74c58cada8p-56")
GELU_SLOPE = _numbers(
    "-0x1.255998838ae90p-9", "0x1.291a0cb7ac1a9p-8", "0x1.3e346a1eb6dbdp-6", "-0x1.e40863c93f250p-7",
    "-0x1.d2fa4c1797150p-4", "-0x1.2a2ef9be92ab0p-6", "0x1.8d9a941de3abfp-2", "0x1.b9d98fa5a322ep-2",
)  # fmt: skip
GELU_TANH_ROOT = _numbers("-0x1.81429f9e97e4dp-1", "0x1.4f523ed77dbdcp-55")
GELU_TANH_SLOPE = _numbers(
    "0x1.1463ffda87655p-12", "-0x1.e59c6f10304e9p-11", "-0x1.3d8d5a14e268ap-9", "0x1.58c9dba605be6p-8",
    "0x1.427996dbb23f8p-6", "-0x1.104a83ec2a337p-6", "-0x1.d2b7734647072p-4", "-0x1.029615edb0aa7p-6",
    "0x1.8cd1a2b2fff33p-2", "0x1.b8bacd2c96b91p-2",
)  # fmt: skip
SILU_ROOT = _numbers("-0x1.474973c84120bp+0", "-0x1.f8d74bc9ac154p-54")
SILU_SLOPE = _numbers(
    "0x1.84f82898708a5p-13", "0x1.a27ce2428cfa7p-11", "0x1.098ee09fb6667p-13", "-0x1.b0f828ef48065p-8",
    "-0x1.f2d0e32c00eaap-7", "0x1.353eb5739f5afp-6", "0x1.2c563458cc0afp-3", "0x1.be14104605282p-3",
)  # fmt: skip
