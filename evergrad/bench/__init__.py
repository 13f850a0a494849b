"""How fast it is: ratios measured side by side in one run, and how time and memory grow."""
