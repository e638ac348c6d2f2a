"""The budgets of the architecture, measured.

`python -m benchmarks [NAME…]` prints a table, `--write` puts it into the docs. Each module has `rows()`, which yields
`Row`s. Modules run in a process of their own, one after the other, so that memory and imports of one do not colour the
next. Ratios are taken within one run on one machine; absolute times are only as good as the machine was idle.
"""
