"""Design study: what a fit of 24 small cells can promise, on tables with a known truth.

`scenarios` are the truths, `one_table` fits a table and compares with its truth,
`report` sums up, `python -m theory.design_study` runs them all.
"""
