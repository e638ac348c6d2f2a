"""Snapshots to ResourceSlices on the API server: pace, retries, repair, and what to do when the server says no.

`publisher.Publisher` is the loop; the modules beside it are what it decides with: `stored` (what the server holds),
`plan` (what to write), `pace` (when), `losses` (what the server does not keep), `refused` (devices it refuses).
"""
