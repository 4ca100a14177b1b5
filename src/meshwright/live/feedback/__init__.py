"""Feedback of measured step times: runs, a layer over the predictions, figures of plans with it, an alarm for slow jobs."""
