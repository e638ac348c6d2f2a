"""The Machine resource: drivers declared by a person, loaded live, and a report of hardware that still lacks one."""
