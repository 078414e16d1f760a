"""Results of answers without labels: expected precision and recall, and class shares under prior shift."""
