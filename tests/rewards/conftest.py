"""No deadlines: the first example pays for imports, and the machine may be busy.

HYPOTHESIS_PROFILE=thousands runs each property on 2000 cases instead of 100.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("no-deadline", deadline=None)
settings.register_profile(
    "thousands", deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "no-deadline"))
