"""python -m forerun: the command line."""

from .cli import main

main()
