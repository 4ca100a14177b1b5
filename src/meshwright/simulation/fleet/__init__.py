"""A shared cluster where jobs are cut by a menu of layouts, wait in a queue and share links."""
