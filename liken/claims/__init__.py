"""Gives an allocated device to its pod: the kubelet's sockets, prepare and unprepare, CDI files, health.

`service` composes the parts. `options`, `sight`, `prepared`, `annotations` and `cdi` are pure: what a claim may ask,
what the hardware is now, what a prepared claim is, and its file. `directory` and `records` keep the files, which are
the only record; `prepare` and `refresh` write them; `server` and `registration` face the kubelet; `health` tells it
how the claimed devices are; `standalone` serves container runtimes without Kubernetes.
"""
