"""Pages for people, drawn on the server: the cluster, the decisions, one decision; served, or written to a file.

Nothing here imports the web framework but `routes`, so that commands write pages without it.
"""

from .cluster_page import cluster_page, state_page
from .decision_page import decision_page

__all__ = ["cluster_page", "decision_page", "state_page"]
