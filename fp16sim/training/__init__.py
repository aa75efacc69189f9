"""Training: data, models, the step, the loop, and comparisons of runs."""
