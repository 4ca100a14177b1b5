"""Types of jobs of their keys."""

from meshwright.planners.menu.settings import JobTypesSettings
from meshwright.settings import build_settings


def types_of(*given):
    return build_settings(JobTypesSettings, {"job_types": list(given)}).job_types
