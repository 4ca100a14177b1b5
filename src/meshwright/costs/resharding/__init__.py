"""A tensor that one mesh of devices holds and another one wants: what has to be sent, by whom, and how long it takes."""
