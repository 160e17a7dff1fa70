"""Valid inputs of the closed forms, up to the edges of their domains.

Rational strategies are for exact checks; floats span many orders of magnitude.
"""

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

SearchFractions = st.SearchStrategy[Fraction]


def fractions_between(low: int | Fraction, high: int | Fraction) -> SearchFractions:
    """Fractions strictly between two numbers; the ends are approached, not reached."""
    width = Fraction(high) - Fraction(low)
    parts = st.integers(2, 1000).flatmap(
        lambda size: st.integers(1, size - 1).map(lambda part: Fraction(part, size))
    )
    return parts.map(lambda share: Fraction(low) + width * share)


def positive_fractions() -> SearchFractions:
    """Fractions above 0, from 1/1000 to 1000."""
    whole = st.integers(1, 1000)
    return st.builds(Fraction, whole, whole)


def nonnegative_fractions() -> SearchFractions:
    """Fractions from 0 to 1000, 0 included."""
    return st.just(Fraction(0)) | positive_fractions()


def coms() -> SearchFractions:
    """Centres of mass: none, small, and far past any inner loop."""
    return nonnegative_fractions() | st.just(Fraction(10**6))


def positive_floats(low: float = 1e-6, high: float = 1e6) -> st.SearchStrategy[float]:
    """Floats above 0, evenly spread in the logarithm."""
    exponents = st.floats(float(np.log(low)), float(np.log(high)))
    return exponents.map(lambda exponent: float(np.exp(exponent)))


def logits(arms: int) -> st.SearchStrategy[np.ndarray]:
    """Logits of a softmax policy, from uniform to nearly deterministic."""
    return hnp.arrays(np.float64, arms, elements=st.floats(-20, 20))


def gains(centre: np.ndarray, spread: float = 0.3) -> st.SearchStrategy[np.ndarray]:
    """Gains around a stable one; whether they are stable is for the test to ask."""
    changes = hnp.arrays(np.float64, centre.shape, elements=st.floats(-1, 1))
    return changes.map(lambda change: centre + spread * change)


def rotations(size: int) -> st.SearchStrategy[np.ndarray]:
    """Orthogonal matrices, from the QR decomposition of a seeded normal matrix."""
    return st.integers(0, 2**32 - 1).map(
        lambda seed: np.linalg.qr(
            np.random.default_rng(seed).normal(size=(size, size))
        )[0]
    )


def spectra(size: int = 4) -> st.SearchStrategy[list[Fraction]]:
    """Curvatures in (0, 1], repeats allowed."""
    return st.lists(fractions_between(0, 1), min_size=1, max_size=size)


def positive_matrices(size: int, spread: float = 10) -> st.SearchStrategy[np.ndarray]:
    """Symmetric positive matrices, of eigenvalues from 1/spread to spread."""
    exponents = hnp.arrays(np.float64, size, elements=st.floats(-1, 1))
    return st.builds(
        lambda axes, e: axes * spread**e @ axes.T, rotations(size), exponents
    ).map(lambda matrix: (matrix + matrix.T) / 2)
