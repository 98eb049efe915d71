"""`python -m ata` is the program `ata`."""

from ata.command import command

command()
