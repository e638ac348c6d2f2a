"""The command line: one module a command, each talking to a person and leaving the work to the rows below.

Results go to stdout, everything said to a person to stderr. Text from hardware is made plain before it is shown.
Commands are imported when they are called, so that completion and small commands stay fast.
"""
