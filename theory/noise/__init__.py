"""Noise, measured: estimators that are unbiased in the model, with standard errors.

- `gradient_moments`, `group_moments`, `noise_scale`: B_simple from gradients of two
  batch sizes, or of equal groups (devices, environments).
- `outer_parts`, `split_half`: signal and noise of the outer step, from the inner loop
  run on two halves of a batch.
- `ddr`: transitions per nat of KL, as a ratio of sums.
- `effective_samples`, `correlated_samples`: what correlated transitions are worth.
- `persistence_factor`: what noise that is correlated between updates does to a plateau.

An estimate that cannot be told from zero comes back as it is, negative too, with a
status; nothing is clipped.
"""

from theory.noise.effective_samples import (
    EffectiveSamples,
    correlated_samples,
    effective_samples,
    persistence_factor,
)
from theory.noise.ratio import RESOLVED, UNRESOLVED, Ratio, ddr, ratio_of_means
from theory.noise.split_half import OuterParts, SplitHalf, outer_parts, split_half
from theory.noise.two_batch import (
    GradientMoments,
    gradient_moments,
    group_moments,
    noise_scale,
)

__all__ = [
    "RESOLVED",
    "UNRESOLVED",
    "EffectiveSamples",
    "GradientMoments",
    "OuterParts",
    "Ratio",
    "SplitHalf",
    "correlated_samples",
    "ddr",
    "effective_samples",
    "gradient_moments",
    "group_moments",
    "noise_scale",
    "outer_parts",
    "persistence_factor",
    "ratio_of_means",
    "split_half",
]
