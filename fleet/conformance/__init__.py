"""Whether a worker, in whatever language, keeps to docs/ROW_PROTOCOL.md: `python -m fleet.conformance -- COMMAND`.

The kit starts the command against fresh databases, plays the other parts of a fleet, and looks at the rows.
"""
