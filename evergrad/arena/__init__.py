"""`evergrad arena`: every estimator against tasks whose lag can be turned, beside rolling TBPTT of every horizon."""
