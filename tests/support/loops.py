"""Outer loops written out as one step of their state, from their definitions.

The slow twins of `theory.outer`: a step maps (state, ξ) to the next state, of any kind
of number; nothing here knows a closed form.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tests.support.strategies import fractions_between
from theory import outer

State = tuple[Any, ...]


class Written(NamedTuple):
    """A loop, one step of it written out, the state's size, and the noise's growth.

    The state starts with x; `has_reference` says that r comes second.
    """

    loop: outer.Loop
    step: Callable[[State, Any], State]
    size: int
    has_reference: bool = False
    noise_slope: Any = 0


def sgd(eta: Any, h: Any) -> Written:
    return Written(outer.sgd(eta, h), lambda z, xi: (z[0] - eta * (h * z[0] + xi),), 1)


def multiplicative(eta: Any, h: Any, slope: Any) -> Written:
    loop = outer.multiplicative(eta, h, slope, 1)
    return Written(loop, sgd(eta, h).step, 1, noise_slope=slope)


def heavy_ball(eta: Any, h: Any, mu: Any) -> Written:
    def step(z: State, xi: Any) -> State:
        return z[0] - eta * (h * z[0] + xi) + mu * (z[0] - z[1]), z[0]

    return Written(outer.heavy_ball(eta, h, mu), step, 2)


def nesterov(eta: Any, h: Any, mu: Any) -> Written:
    def step(z: State, xi: Any) -> State:
        ahead = z[0] + mu * (z[0] - z[1])
        return ahead - eta * (h * ahead + xi), z[0]

    return Written(outer.nesterov(eta, h, mu), step, 2)


def averaged_gradient(eta: Any, h: Any, mu: Any) -> Written:
    def step(z: State, xi: Any) -> State:
        m = mu * (z[1] - z[0]) / eta + (1 - mu) * (h * z[0] + xi)
        return z[0] - eta * m, z[0]

    return Written(outer.averaged_gradient(eta, h, mu), step, 2)


def ewma_linear(eta: Any, h: Any, com: Any) -> Written:
    def step(z: State, xi: Any) -> State:
        new = z[1] - eta * (h * z[0] + xi)
        return new, (com * z[1] + new) / (1 + com)

    return Written(outer.ewma_linear(eta, h, com), step, 2, has_reference=True)


def ewma_proximal(eta: Any, h: Any, com: Any) -> Written:
    def step(z: State, xi: Any) -> State:
        new = (z[1] / eta - xi) / (h + 1 / eta)  # zero of h·y + ξ + (y − r)/η
        return new, (com * z[1] + new) / (1 + com)

    return Written(outer.ewma_proximal(eta, h, com), step, 2, has_reference=True)


def ewma_inner(alpha: Any, h: Any, kappa: Any, com: Any, steps: int) -> Written:
    def step(z: State, xi: Any) -> State:
        x, r = z
        for _ in range(steps):
            x = x - alpha * (h * x + xi) - kappa * (x - r)
            r = (com * r + x) / (1 + com)
        return x, r

    loop = outer.ewma_inner(alpha, h, kappa, com, steps)
    return Written(loop, step, 2, has_reference=True)


def ewma_gradient(alpha: Any, h: Any, kappa: Any, com: Any) -> Written:
    loop = outer.ewma_gradient(alpha, h, kappa, com)
    return ewma_inner(alpha, h, kappa, com, 1)._replace(loop=loop)


def damped(written: Written, sigma: Any, mu: Any) -> Written:
    size = written.size

    def step(z: State, xi: Any) -> State:
        now, before = z[:size], z[size:]
        moved = written.step(now, xi)
        kept = (
            x + sigma * (new - x) + mu * (x - old)
            for x, new, old in zip(now, moved, before, strict=True)
        )
        return *kept, *now

    loop = outer.damped(written.loop, sigma, mu)
    return written._replace(loop=loop, step=step, size=2 * size)


def matrix_of(written: Written) -> tuple[tuple[State, ...], tuple[State, ...]]:
    """M and the column g, probed one unit vector at a time."""
    one, zero = Fraction(1), Fraction(0)
    units = [
        tuple(one if i == j else zero for i in range(written.size))
        for j in range(written.size)
    ]
    columns = [written.step(unit, zero) for unit in units]
    gain = written.step((zero,) * written.size, one)
    return tuple(zip(*columns, strict=True)), tuple((entry,) for entry in gain)


UNIT = fractions_between(0, 1)
COMS = st.just(Fraction(0)) | fractions_between(0, 20)


def _sgd(a: Fraction, h: Fraction, one: Fraction, com: Fraction) -> Written:
    return sgd(2 * a / h, h)


# Each builds a loop from a step in (0, 1), a curvature, a share in (0, 1) and a COM.
KINDS: dict[str, Callable[[Any, Any, Any, Any], Written]] = {
    "sgd": _sgd,
    "multiplicative": lambda a, h, one, com: multiplicative(2 * a / h, h, h * h * com),
    "heavy_ball": lambda a, h, one, com: heavy_ball(4 * a / h, h, 2 * one - 1),
    "nesterov": lambda a, h, one, com: nesterov(2 * a / h, h, one),
    "averaged_gradient": lambda a, h, one, com: averaged_gradient(4 * a / h, h, one),
    "ewma_linear": lambda a, h, one, com: ewma_linear(2 * a / h, h, com),
    "ewma_proximal": lambda a, h, one, com: ewma_proximal(9 * a / h, h, com),
    "ewma_gradient": lambda a, h, one, com: ewma_gradient(a / h, h, one, com),
    "ewma_inner": lambda a, h, one, com: ewma_inner(a / h, h, one, com, 1 + int(com)),
    "damped_sgd": lambda a, h, one, com: damped(sgd(3 * a / h, h), one, one / 2),
    "damped_linear": lambda a, h, one, com: damped(
        ewma_linear(a / h, h, com), 2 * one, 0
    ),
    "damped_inner": lambda a, h, one, com: damped(
        ewma_inner(a / h, h, one, com, 2), 1 - one / 2, one - a
    ),
}


@st.composite
def stable_loops(draw: st.DrawFn, kind: str) -> Written:
    """Stable loops of a kind, of exact numbers."""
    knobs = (draw(UNIT), draw(fractions_between(0, 4)), draw(UNIT), draw(COMS))
    written = KINDS[kind](*knobs)
    assume(written.loop.stable)
    return written


def as_floats(rows: Sequence[Sequence[Any]]) -> np.ndarray:
    return np.array([[float(entry) for entry in row] for row in rows])
