"""What schedules of pipelines ask of a layout."""
