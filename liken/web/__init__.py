"""liken seen from outside: metrics, health and the status page over HTTP, on loopback unless told otherwise.

Reads snapshots and what the composition root hands in; changes nothing. The page and its data are answered to
loopback peers only, since they show serials and claims; metrics and health carry neither.
"""
