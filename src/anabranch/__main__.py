"""`python -m anabranch` is the `anabranch` command."""

from anabranch.cli.main import main

main()
