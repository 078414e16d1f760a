"""Pictures of training and of studies: matplotlib, readable in grey, the same bytes on every run."""
