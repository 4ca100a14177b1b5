"""Files of figures that a validation is given: good ones with a value replaced, and texts."""

import copy
import json


def write(folder, data, name="figures.json"):
    """The path of a file of this name that holds a text, or data as JSON."""
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def replaced(data, keys, value):
    """Data with one value replaced; the keys lead to it."""
    data = here = copy.deepcopy(data)
    for key in keys[:-1]:
        here = here[key]
    here[keys[-1]] = value
    return data
