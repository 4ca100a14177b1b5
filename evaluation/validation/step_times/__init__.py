"""Step times of published runs compared with ours: the rows, what their sources say, errors and coverage."""
