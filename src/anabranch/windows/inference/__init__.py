"""The settings of an engine that can only be run: `anabranch.windows.infer`.

probes, candidates   what is asked, and the engines that come into question
answers, recorded    an engine that answers; runs that were written down
asked                each probe, its answer, and what it ruled out
infer, result        the search, and what it found
"""
