"""A model whose exponents are chosen, to stand in for a fit."""

import numpy as np

from theory.ddr_map import DdrMap
from theory.forecast import Model, Parameters

Real = float | int


def from_exponents(
    *,
    exponents: tuple[Real, Real, Real],
    num_envs_exponent: Real,
    optimum: tuple[Real, Real, Real, Real],
    asymptote: Real,
    sds: tuple[Real, Real, Real],
    num_draws: int,
) -> tuple[Model, Parameters]:
    """The free law with its optimum in a given place.

    Args:
        exponents: (b, d, γ) of bias·B^(−b)·D^d + noise·D^(−γ).
        num_envs_exponent: slope of log D in log num_envs.
        optimum: budget, best num_envs, its DDR and its gap.
        asymptote: the known optimum.
        sds: (config_sd, seed_sd, relative sd of b between draws).
        num_draws: rows after the first.

    Returns:
        The model, and parameters whose first row is the point.
    """
    b, d, gamma = exponents
    at_budget, best_num_envs, ddr, best_gap = optimum
    config_sd, seed_sd, exponent_sd = sds
    levels = (np.arange(num_draws) + 0.5) / num_draws
    spread = np.sqrt(12) * (levels - 0.5) * exponent_sd
    drawn = b * np.concatenate([[1.0], np.maximum(1 + spread, 0.0)])
    ones = np.ones_like(drawn)
    # At the optimum d·bias part = γ·noise part, and the two add up to the gap.
    noise = best_gap / (1 + gamma / d)
    bias = noise * gamma / d * float(at_budget) ** drawn * float(ddr) ** -d
    law = [0 * ones, bias, noise * float(ddr) ** gamma * ones, drawn, d * ones]
    parameters = Parameters(
        ddr_map=np.stack([np.log(ddr) * ones, num_envs_exponent * ones], axis=-1),
        pace=np.zeros((len(ones), 0)),
        law=np.stack([*law, gamma * ones], axis=-1),
        asymptote=asymptote * ones,
        config_sd=config_sd * ones,
        seed_sd=seed_sd * ones,
        ddr_sd=config_sd * ones,
    )
    ddr_map = DdrMap(
        terms=("num_envs",),
        transient_terms=None,
        centres={"num_envs": float(best_num_envs)},
    )
    model = Model(ddr_map=ddr_map, family="free", law_ddr="limit", asymptote="known")
    return model, parameters
