"""liken gives a workload a device: a DRA node driver that follows the kernel's own events."""

__version__ = "0.1.0"
