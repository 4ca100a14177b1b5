"""A tensor brought from one mesh of devices to another: what has to be sent, by whom, and how long it takes."""
