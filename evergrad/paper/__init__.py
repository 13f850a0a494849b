"""The machinery behind `evergrad paper`: runs in child processes, results in small files, one page made of them."""
