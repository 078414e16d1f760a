"""GET /calibration-report: its query, its one read of the store, and its page with forms and links."""
