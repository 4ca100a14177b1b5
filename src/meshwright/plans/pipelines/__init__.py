"""Requirements of pipeline schedules on a layout."""
