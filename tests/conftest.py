"""A hostile configuration: strict dtypes, no silent broadcasting, shapes checked at run time."""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

with install_import_hook("evergrad", "beartype.beartype"):
    import evergrad.public  # noqa: F401
