"""Pure decisions about the inventory, and the single-writer store that applies them.

Facts of the kernel come in (`Store.replace`), immutable revisioned snapshots come out (`Store.settled`). What a
snapshot says is decided by pure functions: delivery and policy (which nodes, which devices), names and attributes,
verdicts (the one reason), slices and patches (the API form), the unclaimed report. None of them does I/O.
"""
