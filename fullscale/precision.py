"""Half precision where it is asked for: of matrix products, and of what is stored.

A number is rounded to bfloat16 (8 bits of mantissa) by `reduce_precision`, which a
compiler has to carry out; a conversion there and back it may leave out, and then one
program acts on numbers that another one has not seen. What is stored is stored as bit
patterns: where a processor has no bfloat16, XLA moves arrays of it about in single
precision, which takes more memory than no rounding at all.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped, UInt16

from fullscale.varying import as_varying

_EXPONENT, _MANTISSA = 8, 7  # bits of bfloat16 besides the sign


def to_bfloat16(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The nearest bfloat16 numbers, relative error at most 2⁻⁸, stored as such."""
    return jax.lax.reduce_precision(x, _EXPONENT, _MANTISSA).astype(jnp.bfloat16)


def pack(x: Float[Array, "*shape"]) -> UInt16[Array, "*shape"]:
    """The upper halves of the bit patterns of the nearest bfloat16 numbers."""
    rounded = jax.lax.reduce_precision(x, _EXPONENT, _MANTISSA).astype(jnp.float32)
    bits = jax.lax.bitcast_convert_type(rounded, jnp.uint32)
    return (bits >> 16).astype(jnp.uint16)


def full(x: Shaped[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The same numbers in JAX's default float; packed ones are unpacked."""
    if x.dtype == jnp.uint16:
        bits = x.astype(jnp.uint32) << 16
        x = jax.lax.bitcast_convert_type(bits, jnp.float32)
    return x.astype(jnp.result_type(float))


def bfloat16_product(
    x: Float[Array, "*batch input"],
    kernel: Float[Array, "input output"],
    dimensions: object = None,
    precision: object = None,
) -> Float[Array, "*batch output"]:
    """The product x · kernel with both rounded to bfloat16 and sums in full precision.

    The same in the backward pass, whose incoming gradient is rounded likewise. A
    drop-in for the `dot_general` of a dense layer, whose last two arguments it ignores.
    """
    del dimensions, precision
    return _product(as_varying(x, kernel), as_varying(kernel, x))


@jax.custom_vjp
def _product(x: Array, kernel: Array) -> Array:
    return _matmul(to_bfloat16(x), to_bfloat16(kernel))


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    operands = to_bfloat16(x), to_bfloat16(kernel)
    return _matmul(*operands), operands


def _backward(operands: tuple[Array, Array], incoming: Array) -> tuple[Array, Array]:
    x, kernel = operands
    incoming = to_bfloat16(incoming)
    rows, columns = (y.reshape(-1, y.shape[-1]) for y in (x, incoming))
    return _matmul(incoming, kernel.T), _matmul(rows.T, columns)


_product.defvjp(_forward, _backward)


def _matmul(x: Array, kernel: Array) -> Array:
    return jnp.matmul(x, kernel, preferred_element_type=jnp.result_type(float))
