"""Pages of HTML that need nothing beside them: one evaluation, or several."""
