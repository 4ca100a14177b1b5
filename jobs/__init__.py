"""What is to be run: job graphs, readers of users' formats, the built-in zoo, arrivals."""
