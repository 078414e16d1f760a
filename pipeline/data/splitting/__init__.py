"""The split into parts, and the data errors that make its numbers too good: duplicates, groups, telling columns."""
