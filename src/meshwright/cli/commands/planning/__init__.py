"""Commands about one job: what it takes, how it is cut, and on which devices it runs."""
