"""Self-contained HTML pages: one evaluation, or several."""
