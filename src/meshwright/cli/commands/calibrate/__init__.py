"""``meshwright calibrate``: one file for each kind of measurements that constants are fitted to."""
