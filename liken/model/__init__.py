"""The vocabulary every other package speaks: plain, frozen values and the errors of the API server.

`hardware` holds what was read from the kernel, `offers` what liken makes of it, `machine` what a person
declares, `api` what the API server says. Nothing here does I/O, waits or reads a clock, so any row of the
architecture may import it. Shapes of the kernel, Kubernetes and protobuf are converted to these at the edge.
"""
