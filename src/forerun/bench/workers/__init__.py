"""Other engines, each run by protocol.py in a process and, if need be, a Python of its own. Nothing here imports forerun."""
