"""Labels that come back, and labelled answers that go out."""
