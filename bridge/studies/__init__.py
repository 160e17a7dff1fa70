"""Studies: what an intervention on the knobs should do, said before it is tried."""
