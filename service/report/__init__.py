"""GET /calibration-report: its query, its reads of the store, and its page with forms and links."""
