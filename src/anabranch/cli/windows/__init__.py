"""`anabranch windows`: what a window query returns on an engine, and which engine it is.

command            the command, and predict, compare, explain
infer, recorded    the settings of an engine, from running it or from recorded runs
port               translate and choose
query, input       options and tuples, validated
show               lines, drawings, pictures
"""

from anabranch.cli.windows.command import command

__all__ = ["command"]
