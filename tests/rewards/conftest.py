"""No deadlines: the first example pays for imports, and the machine may be busy."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
