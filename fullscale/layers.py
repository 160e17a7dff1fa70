"""What networks are made of: tanh layers, a recurrent layer, heads."""

import dataclasses
import itertools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from fullscale.distributions import (
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
)
from fullscale.environments.protocol import Box, Discrete, MultiDiscrete
from fullscale.precision import bfloat16_product
from fullscale.varying import as_varying

Product = Callable[..., Array] | None  # of a layer; None is the plain one
Action = Box | Discrete | MultiDiscrete


def product_of(compute_precision: str) -> Product:
    """The matrix product of hidden layers; heads always have the plain one."""
    return bfloat16_product if compute_precision == "bfloat16" else None


class Torso(nn.Module):
    """Fully connected tanh layers, orthogonal initialisation with gain √2."""

    widths: tuple[int, ...]
    product: Product = None

    @nn.compact
    def __call__(self, x: Float[Array, "*batch obs"]) -> Float[Array, "*batch width"]:
        """Features of a batch of observations."""
        for width in self.widths:
            init = nn.initializers.orthogonal(math.sqrt(2.0))
            layer = nn.Dense(
                width,
                kernel_init=init,
                param_dtype=x.dtype,
                dot_general=self.product,
            )
            x = nn.tanh(layer(x))
        return x


class GatedRecurrence(nn.Module):
    """A GRU layer over time, which starts from zero wherever an episode starts.

    r = σ(W_r x + b_r + U_r h), z = σ(W_z x + b_z + U_z h),
    c = tanh(W_c x + b_c + r ⊙ (U_c h + b_u)), h' = (1 − z) ⊙ c + z ⊙ h
    (Cho et al. 2014, with the reset gate after the product). What depends on x alone is
    computed for all times at once; the scan has one matrix product a step.
    """

    width: int
    product: Product = None

    @nn.compact
    def __call__(
        self,
        carry: Float[Array, "*batch width"],
        x: Float[Array, "time *batch features"],
        start: Bool[Array, "time *batch"],
    ) -> tuple[Float[Array, "*batch width"], Float[Array, "time *batch width"]]:
        """The carry after the last step, and the features h' of every step.

        Args:
            carry: h before the first step.
            x: inputs.
            start: whether a new episode begins at the step; h is zeroed *before* it.
        """
        gates = nn.Dense(
            3 * self.width,
            kernel_init=_blocks(nn.initializers.lecun_normal()),
            param_dtype=x.dtype,
            dot_general=self.product,
            name="input",
        )(x)
        kernel = self.param(
            "recurrent",
            _blocks(nn.initializers.orthogonal()),
            (self.width, 3 * self.width),
            x.dtype,
        )
        bias = self.param("bias", nn.initializers.zeros, (self.width,), x.dtype)
        multiply = self.product or jnp.matmul

        def step(h: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            gates, start = now
            h = jnp.where(start[..., None], 0.0, h)
            h = gated(h, gates, multiply(h, kernel), bias)
            return h, h

        carry = as_varying(carry, gates, start, kernel)
        return jax.lax.scan(step, carry, (gates, start))


def gated(
    h: Float[Array, "*batch width"],
    from_input: Float[Array, "*batch gates"],
    from_carry: Float[Array, "*batch gates"],
    bias: Float[Array, " width"],
) -> Float[Array, "*batch width"]:
    """The next h from the three gates' shares (r, z, c) of the input and of h."""
    r_x, z_x, c_x = jnp.split(from_input, 3, axis=-1)
    r_h, z_h, c_h = jnp.split(from_carry, 3, axis=-1)
    reset, keep = nn.sigmoid(r_x + r_h), nn.sigmoid(z_x + z_h)
    bias = jnp.broadcast_to(bias, c_h.shape)
    candidate = nn.tanh(c_x + reset * (c_h + bias))
    return (1.0 - keep) * candidate + keep * h


class GaussianHead(nn.Module):
    """State-independent standard deviation, trained or fixed, around given means."""

    initial_std: float
    learn_std: bool

    @nn.compact
    def __call__(self, mean: Float[Array, "*batch action"]) -> Gaussian:
        """Attach the standard deviation to the means."""
        start = math.log(self.initial_std)
        shape = mean.shape[-1:]
        if self.learn_std:
            init = nn.initializers.constant(start, mean.dtype)
            log_std = self.param("log_std", init, shape)
        else:
            log_std = jnp.full(shape, start, mean.dtype)
        log_std = jnp.broadcast_to(jnp.asarray(log_std, mean.dtype), mean.shape)
        return Gaussian(mean=mean, log_std=log_std)


@dataclasses.dataclass(frozen=True)
class PolicyHead:
    """The last layer of a policy on an action space.

    Attributes:
        action: the action space.
        initial_std: of a Gaussian.
        learn_std: whether it is trained.
        linear: no bias, and all weights start from zero.
    """

    action: Action
    initial_std: float
    learn_std: bool
    linear: bool = False

    def __call__(self, x: Float[Array, "*batch features"]) -> Distribution:
        """Action distribution; its layers become those of the calling module."""
        zeros, small = nn.initializers.zeros, nn.initializers.orthogonal(0.01)
        out = nn.Dense(
            self._outputs(),
            use_bias=not self.linear,
            kernel_init=zeros if self.linear else small,
            param_dtype=x.dtype,
        )(x)
        if isinstance(self.action, Box):
            return GaussianHead(self.initial_std, self.learn_std)(out)
        if isinstance(self.action, Discrete):
            return Categorical(logits=out)
        ends = list(itertools.accumulate(self.action.sizes))[:-1]
        return MultiCategorical(logits=tuple(jnp.split(out, ends, axis=-1)))

    def _outputs(self) -> int:
        """Means or logits."""
        if isinstance(self.action, MultiDiscrete):
            return sum(self.action.sizes)
        return self.action.size


def value_head(
    x: Float[Array, "*batch features"], *, linear: bool = False
) -> Float[Array, "*batch"]:
    """Values in units of return; the layer becomes that of the calling module."""
    init = nn.initializers.zeros if linear else nn.initializers.orthogonal(1.0)
    return nn.Dense(1, kernel_init=init, param_dtype=x.dtype)(x)[..., 0]


def _blocks(init: Callable[..., Array]) -> Callable[..., Array]:
    """An initialiser that draws each of three gates' square or oblong block alone."""

    def initialise(
        key: PRNGKeyArray, shape: tuple[int, int], dtype: object
    ) -> Float[Array, "input gates"]:
        keys = jax.random.split(key, 3)
        one = (shape[0], shape[1] // 3)
        return jnp.concatenate([init(k, one, dtype) for k in keys], axis=1)

    return initialise
