"""The kernel's side: uevents and sysfs in, facts about devices out.

`kernel` hears that something changed, `sysfs` reads what is there now, `settle` decides when to look, and `mirror`
keeps the store equal to the kernel. `recording` turns a recording into a sysfs tree that the same reader reads.
"""
