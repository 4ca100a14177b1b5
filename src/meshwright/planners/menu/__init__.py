"""The menu: layouts of each type of job on each number of devices, priced wherever they may be placed."""
