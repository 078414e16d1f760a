"""The split of a data set, and checks for errors that make results too good: duplicates, groups, leaking columns."""
