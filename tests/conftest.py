"""A hostile configuration: strict dtypes, no silent broadcasting, shapes checked at run time."""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

with install_import_hook("evergrad", "beartype.beartype"):
    import evergrad.public  # noqa: F401

# compiling is most of the time that these take, and what they compile is run once
COMPILE_BOUND = {"test_exact.py", "test_contract.py", "test_errors.py", "test_cells.py", "test_adapters.py"}


def pytest_runtest_setup(item):
    jax.config.update("jax_disable_most_optimizations", item.path.name in COMPILE_BOUND)
