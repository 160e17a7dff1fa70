"""Array annotations with shapes that cost nothing at start-up.

Where jaxtyping is already loaded (a type checker, the tests' import hook, beside JAX
code) the names are jaxtyping's. Elsewhere they stand for the plain array, so that a
command which must answer within a second need not load it.
"""

import sys
import typing

if typing.TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool as Bool
    from jaxtyping import Float as Float
    from jaxtyping import Int as Int
else:

    class _Plain:
        """`Float[array, "shape"]` is `array`."""

        def __class_getitem__(cls, item: tuple[type, str]) -> type:
            return item[0]

    Bool = Float = Int = _Plain
