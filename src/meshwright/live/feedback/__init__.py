"""What measured step times teach: runs, a layer over the predictions, figures of plans with it, an alarm for slow jobs."""
