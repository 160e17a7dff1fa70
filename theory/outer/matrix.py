"""Plain descent in all directions at once, with any preconditioner."""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.arithmetic import (
    Number,
    check_nonnegative,
    check_positive,
    one_number,
    whole_number,
)
from theory.matrices import check_metric
from theory.outer.inner import share_covered

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MatrixStationary:
    """The stationary state of `matrix_sgd`.

    Attributes:
        covariance: C = E xxᵀ, shape [parameter, parameter].
        step_covariance: E ΔΔᵀ of the steps Δ = x' − x, likewise.
        kl_per_update: ½·tr(F·E ΔΔᵀ), F the Fisher information.
        loss: ½·tr(HC), the expected gap.
    """

    covariance: Array
    step_covariance: Array
    kl_per_update: float
    loss: float


def matrix_sgd(
    outer_step: Number, hessian: ArrayLike, preconditioner: ArrayLike | None = None
) -> "MatrixSgd":
    """The loop x' = x − ηP(Hx + ξ), with loss ½xᵀHx and Cov ξ = Σ/n.

    With P = LLᵀ, y = L⁻¹x is plain descent with H̃ = LᵀHL and Σ̃ = LᵀΣL. In the
    eigenbasis of H̃, of eigenvalues h_i > 0, it is stationary for 0 < η < 2/max h_i:

        E y_i y_j = ηΣ̃_ij/n/(h_i + h_j − ηh_i h_j)

    the solution of H̃C + CH̃ − ηH̃CH̃ = ηΣ̃/n (derived here; Liu, Ziyin & Ueda 2021).
    P = I is plain descent, P = F⁻¹ the natural gradient.

    Args:
        outer_step: η ≥ 0.
        hessian: H, shape [parameter, parameter], symmetric, no eigenvalue below 0.
        preconditioner: P, likewise, every eigenvalue above 0; None is the identity.

    Returns:
        The loop.

    Raises:
        ValueError: if a matrix is not of that kind, or η is negative or not finite.
    """
    check_nonnegative("outer_step", outer_step)
    eta = one_number("outer_step", outer_step)
    H = check_metric("hessian", hessian)
    size = len(H)
    if preconditioner is None:
        return MatrixSgd(eta, H, np.eye(size))
    P = check_metric("preconditioner", preconditioner, size)
    least, most = np.linalg.eigvalsh(P)[[0, -1]]
    if not least > size * np.finfo(float).eps * most:
        msg = f"preconditioner has the eigenvalue {least}; every one must be above 0."
        raise ValueError(msg)
    return MatrixSgd(eta, H, P)


@dataclass(frozen=True, eq=False)
class MatrixSgd:
    """See `matrix_sgd`, which builds it.

    Attributes:
        outer_step: η.
        hessian: H.
        preconditioner: P.
    """

    outer_step: float
    hessian: Array
    preconditioner: Array

    @property
    def stability_limit(self) -> float:
        """2/max h_i, supremum of the stable steps; 0 if a direction is flat."""
        rates, _, _ = self._eigenbasis
        flat = rates[0] <= len(rates) * np.finfo(float).eps * rates[-1]
        return 0.0 if flat else float(2 / rates[-1])

    @property
    def stable(self) -> bool:
        """Whether a stationary state exists."""
        return 0 < self.outer_step < self.stability_limit

    def stationary(
        self,
        noise_covariance: ArrayLike,
        samples_per_update: Number,
        fisher: ArrayLike | None = None,
    ) -> MatrixStationary:
        """The stationary state under per-sample gradient noise.

        Args:
            noise_covariance: Σ of one sample's gradient, shape [parameter, parameter].
            samples_per_update: n > 0; an update's gradient has the covariance Σ/n.
            fisher: F, likewise, the Fisher information; None is the identity.

        Returns:
            Covariances, KL per update and loss.

        Raises:
            ValueError: if the loop is unstable or an argument is invalid.
        """
        noise = self._noise(noise_covariance, samples_per_update)
        size = len(self.hessian)
        F = np.eye(size) if fisher is None else check_metric("fisher", fisher, size)
        if not self.stable:
            limit = self.stability_limit
            right = f"above 0 and below {limit}" if limit else "without flat directions"
            msg = f"outer_step is {self.outer_step}; a plateau needs it {right}."
            raise ValueError(msg)
        rates, _, _ = self._eigenbasis
        eta = self.outer_step
        inside = eta**2 * noise / self._pull()
        step = eta**2 * (np.outer(rates, rates) * inside + noise)
        covariance, step_covariance = self._outside(inside), self._outside(step)
        return MatrixStationary(
            covariance=covariance,
            step_covariance=step_covariance,
            kl_per_update=float((F * step_covariance).sum() / 2),
            loss=float((self.hessian * covariance).sum() / 2),
        )

    def second_moment(
        self,
        initial: ArrayLike,
        updates: Number,
        noise_covariance: ArrayLike,
        samples_per_update: Number,
    ) -> Array:
        """E xxᵀ after some updates: the exact transient, at once.

        With ρ_i = 1 − ηh_i, in the eigenbasis,

            E y_i y_j = (ρ_iρ_j)ᵗ·E y_i y_j(0) + η²Σ̃_ij/n·(1 − (ρ_iρ_j)ᵗ)/(1 − ρ_iρ_j)

        Args:
            initial: E xxᵀ at the start, shape [parameter, parameter].
            updates: t, how many updates.
            noise_covariance: Σ of one sample's gradient, likewise.
            samples_per_update: n > 0.

        Returns:
            Shape [parameter, parameter]; inf throughout where an unstable loop has
            overflowed.

        Raises:
            ValueError: if an argument is invalid.
        """
        start = check_metric("initial", initial, len(self.hessian))
        count = whole_number("updates", updates)
        noise = self._noise(noise_covariance, samples_per_update)
        _, _, inward = self._eigenbasis
        pull = self._pull()
        with np.errstate(all="ignore"):
            gone = share_covered(pull, count)
            terms = np.where(pull == 0, count, gone / pull)
            inside = (1 - gone) * (inward @ start @ inward.T)
            found = self._outside(inside + self.outer_step**2 * noise * terms)
        return found if np.isfinite(found).all() else np.full_like(found, math.inf)

    @functools.cached_property
    def _eigenbasis(self) -> tuple[Array, Array, Array]:
        """The h_i, x = outward @ y and y = inward @ x."""
        factor = np.linalg.cholesky(self.preconditioner)
        whitened = factor.T @ self.hessian @ factor
        rates, axes = np.linalg.eigh((whitened + whitened.T) / 2)
        outward = factor @ axes
        return np.maximum(rates, 0), outward, np.linalg.inv(outward)

    def _pull(self) -> Array:
        """1 − ρ_iρ_j = η(h_i + h_j − ηh_i h_j)."""
        rates, _, _ = self._eigenbasis
        a = self.outer_step * rates
        return a[:, None] + a[None, :] - np.outer(a, a)

    def _noise(self, noise_covariance: ArrayLike, samples_per_update: Number) -> Array:
        """Σ̃/n in the eigenbasis: the gradient transforms by the transpose."""
        check_positive("samples_per_update", samples_per_update)
        size = len(self.hessian)
        noise = check_metric("noise_covariance", noise_covariance, size)
        _, outward, _ = self._eigenbasis
        samples = one_number("samples_per_update", samples_per_update)
        return outward.T @ noise @ outward / samples

    def _outside(self, inside: Array) -> Array:
        _, outward, _ = self._eigenbasis
        found = outward @ inside @ outward.T
        return (found + found.T) / 2
