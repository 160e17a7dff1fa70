"""Other people's simulators inside `shard_map`, whose type checker they do not pass.

The checker (`check_vma`) wants both branches of a condition, and a loop's carry before
and after its turns, to vary over the same mesh axes; code written before it mixes
constants with data. `opaque` makes a function one primitive: what is inside was traced
for plain arrays, and what comes out varies wherever anything that goes in does. It can
be vmapped but not differentiated, and must not talk to other devices.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import batching, mlir
from jax.sharding import PartitionSpec

_opaque = Primitive("opaque")
_opaque.multiple_results = True


def opaque(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of PyTrees of arrays, closed to the checker."""

    def call(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        jaxpr, shapes = jax.make_jaxpr(
            lambda *parts: function(*jax.tree.unflatten(tree, parts)),
            return_shape=True,
        )(*map(_plain, leaves))
        out = _opaque.bind(*leaves, jaxpr=jaxpr)
        return jax.tree.unflatten(jax.tree.structure(shapes), out)

    return call


def _plain(x: Any) -> jax.ShapeDtypeStruct:
    """Its shape and type, varying over nothing."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


@_opaque.def_impl
def _run(*arguments: Any, jaxpr: ClosedJaxpr) -> Any:
    return jax.jit(jaxpr_as_fun(jaxpr))(*arguments)


@_opaque.def_abstract_eval
def _types(*arguments: Any, jaxpr: ClosedJaxpr) -> list:
    axes: frozenset = frozenset().union(*(x.vma for x in arguments))
    if not axes:
        return list(jaxpr.out_avals)
    grid = next(x.sharding for x in arguments if x.vma)  # a constant would have none
    return [
        x.update(sharding=grid.update(spec=PartitionSpec(*[None] * x.ndim)), vma=axes)
        for x in jaxpr.out_avals
    ]


def _batch(arguments: tuple, axes: tuple, *, jaxpr: ClosedJaxpr) -> tuple[Any, list]:
    function = jax.vmap(jaxpr_as_fun(jaxpr), in_axes=axes)
    batched = jax.make_jaxpr(function)(*map(_plain, arguments))
    out = _opaque.bind(*arguments, jaxpr=batched)
    return out, [0] * len(out)


def _lower(context: Any, *arguments: Any, jaxpr: ClosedJaxpr) -> Any:
    return mlir.core_call_lowering(context, *arguments, name="opaque", call_jaxpr=jaxpr)


batching.primitive_batchers[_opaque] = _batch
mlir.register_lowering(_opaque, _lower)
