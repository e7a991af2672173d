"""Settings for all tests: how hard Hypothesis tries.

`ANABRANCH_PROFILE` is `fast` (default, for work at the keyboard), `ci` or `deep`.
"""

import os

from hypothesis import HealthCheck, settings

# Runs on shared machines: a slow example is no error, so there is no deadline.
_SLOW = (HealthCheck.too_slow,)

settings.register_profile("fast", max_examples=50, deadline=None, suppress_health_check=_SLOW)
# The same examples in every run: a change is judged by what it changed, not by luck. New
# examples are looked for at the keyboard and in the deep runs, by seed.
settings.register_profile(
    "ci", max_examples=100, derandomize=True, deadline=None, suppress_health_check=_SLOW
)
# Another SEED of `make test-deep` tries other streams; each run is counted (see resume.py).
settings.register_profile(
    "deep", max_examples=1_000, deadline=None, suppress_health_check=_SLOW
)
settings.load_profile(os.environ.get("ANABRANCH_PROFILE", "fast"))
