"""Training: data, models and recipes, the step and the loop, saved runs, and comparisons of runs."""
