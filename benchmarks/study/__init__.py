"""The study behind the page "Results": its tasks, tables and figures (``make results``)."""
