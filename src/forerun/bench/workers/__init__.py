"""Other engines, each run by wire.py in a process and, if need be, a Python of its own. Nothing here imports forerun."""
